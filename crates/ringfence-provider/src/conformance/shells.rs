//! Shells that live on from one command to the next.

use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{
    ExitStatus, OutputStream, ShellCommand, ShellCommandResult, ShellState, StdinInput,
};

use super::trial::{CheckRun, differs, same};
use super::{CheckFailure, CheckResult, ConformanceCheck, SECRET};
use crate::{ProviderError, Sandbox, SandboxShell, ShellSpec};

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck::shells(
        "what_a_command_leaves_in_its_shell_stays",
        what_a_command_leaves_in_its_shell_stays,
    ),
    ConformanceCheck::shells(
        "a_shell_tells_how_each_command_ended",
        a_shell_tells_how_each_command_ended,
    ),
    ConformanceCheck::shells(
        "a_shell_tells_of_ends_whatever_it_was_told",
        a_shell_tells_of_ends_whatever_it_was_told,
    ),
    ConformanceCheck::shells("a_shell_keeps_its_streams_apart", a_shell_keeps_its_streams_apart),
    ConformanceCheck::shells(
        "a_command_of_a_shell_reads_its_input_only",
        a_command_of_a_shell_reads_its_input_only,
    ),
    ConformanceCheck::shells(
        "a_shell_that_was_interrupted_lives_on",
        a_shell_that_was_interrupted_lives_on,
    ),
    ConformanceCheck::shells(
        "somebody_else_interrupts_a_command",
        somebody_else_interrupts_a_command,
    ),
    ConformanceCheck::shells(
        "a_command_that_ends_its_shell_is_told",
        a_command_that_ends_its_shell_is_told,
    ),
    ConformanceCheck::shells("no_text_is_taken_for_an_end", no_text_is_taken_for_an_end),
    ConformanceCheck::shells(
        "whoever_writes_to_every_descriptor_fakes_nothing",
        whoever_writes_to_every_descriptor_fakes_nothing,
    ),
    ConformanceCheck::shells(
        "a_shell_that_can_no_longer_tell_is_given_up",
        a_shell_that_can_no_longer_tell_is_given_up,
    ),
    ConformanceCheck::shells(
        "much_output_is_counted_to_the_byte",
        much_output_is_counted_to_the_byte,
    ),
    ConformanceCheck::shells(
        "what_goes_on_behind_a_command_is_nobody_elses",
        what_goes_on_behind_a_command_is_nobody_elses,
    ),
    ConformanceCheck::shells(
        "a_command_of_a_shell_is_fed_while_it_runs",
        a_command_of_a_shell_is_fed_while_it_runs,
    ),
    ConformanceCheck::shells("a_long_command_is_one_command", a_long_command_is_one_command),
    ConformanceCheck::shells(
        "a_line_with_a_nul_is_refused_and_harms_nothing",
        a_line_with_a_nul_is_refused_and_harms_nothing,
    ),
    ConformanceCheck::shells(
        "two_shells_of_a_sandbox_are_independent",
        two_shells_of_a_sandbox_are_independent,
    ),
    ConformanceCheck::shells(
        "nothing_goes_on_when_a_sandbox_has_ended",
        nothing_goes_on_when_a_sandbox_has_ended,
    ),
    ConformanceCheck::confinement(
        "what_a_shell_is_refused_is_told_with_the_command",
        what_a_shell_is_refused_is_told_with_the_command,
    ),
    ConformanceCheck::confinement(
        "what_a_shell_planted_is_moved_away_at_the_end",
        what_a_shell_planted_is_moved_away_at_the_end,
    ),
];

/// A sandbox that stands, and a shell in it.
struct RunningShell {
    shell: Box<dyn SandboxShell>,
    standing: Box<dyn Sandbox>,
    start: ShellSpec,
}

impl CheckRun<'_> {
    fn raise(&self) -> Result<RunningShell, CheckFailure> {
        let mut opened = self.open()?;
        let request = opened.request(["bash"]);
        let start =
            ShellSpec { program: "bash".into(), variables: request.variables, cwd: request.cwd };
        let failed = |source| CheckFailure::NotRun { command: "raise".into(), source };
        let standing = opened.session.raise(&start.cwd).map_err(failed)?;
        let shell = standing.shell(&start).map_err(failed)?;
        Ok(RunningShell { shell, standing, start })
    }
}

const LIMIT: Duration = Duration::from_secs(20);

/// The number of SIGUSR1.
const USR1: i32 = 10;

impl RunningShell {
    fn run(&mut self, line: &ShellCommand) -> Result<ShellCommandResult, CheckFailure> {
        let failed = |source| CheckFailure::NotRun {
            command: String::from_utf8_lossy(&line.text).into_owned(),
            source,
        };
        self.shell.execute(line, &mut |_, _| {}).map_err(failed)
    }

    fn sh(&mut self, text: &str) -> Result<ShellCommandResult, CheckFailure> {
        self.run(&ShellCommand { deadline: Some(LIMIT), ..ShellCommand::new(text) })
    }

    /// What `text` says and how it ends.
    fn says(&mut self, text: &str, wanted: (&str, i32)) -> CheckResult {
        let ran = self.sh(text)?;
        same(
            format!("the output and status of `{text}`"),
            (said(&ran).as_str(), ran.exit_code()),
            wanted,
        )
    }

    fn renew(&mut self) -> CheckResult {
        let failed = |source| CheckFailure::NotRun { command: "bash".into(), source };
        self.shell = self.standing.shell(&self.start).map_err(failed)?;
        Ok(())
    }
}

fn said(ran: &ShellCommandResult) -> String {
    String::from_utf8_lossy(&ran.stdout.bytes()).trim_end_matches('\n').to_owned()
}

/// Promise: P47
fn what_a_command_leaves_in_its_shell_stays(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.sh(
        "cd sub; export EXPORTED=one; plain=two; declare -A map=([k]=three); f() { echo four; }",
    )?;
    same("where the shell is", raised.shell.cwd(), Some(trial.at("sub")))?;
    raised.sh("alias five='echo five'; exec 7> ../seven; sleep 60 & job=$!; set -- six")?;
    for _ in 0..50 {
        raised.says(":", ("", 0))?;
    }
    raised.says(
        "sh -c 'echo $EXPORTED'; echo $plain ${map[k]}; f; five; echo $1",
        ("one\ntwo three\nfour\nfive\nsix", 0),
    )?;
    raised.says(
        "echo to seven >&7; cat ../seven; kill -0 $job && jobs -r | wc -l; basename $PWD",
        ("to seven\n1\nsub", 0),
    )?;
    let pid = raised.shell.pid();
    raised.says("kill $job; wait $job 2>/dev/null; echo $?", ("143", 0))?;
    same("the shell's number", raised.shell.pid(), pid)
}

fn a_shell_tells_how_each_command_ended(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    for (text, wanted) in [
        ("true", 0),
        ("false", 1),
        ("(exit 7)", 7),
        ("no-such-program 2>/dev/null", 127),
        ("./not-executable 2>/dev/null", 126),
        ("sh -c 'kill -9 $$' 2>/dev/null", 137),
        ("echo \"unbalanced", 2),
        ("if true; then", 2),
        ("return 9", 9),
        ("! true", 1),
        ("", 0),
        ("# nothing", 0),
        ("false | true", 0),
        ("set -o pipefail; false | true", 1),
        ("cat <<END\nin a heredoc ' \" \\\nEND", 0),
    ] {
        same(format!("the status of `{text}`"), raised.sh(text)?.exit_code(), wanted)?;
    }
    raised.says("echo still there", ("still there", 0))
}

/// Also where somebody has changed what a shell understands.
///
/// Promise: P48
fn a_shell_tells_of_ends_whatever_it_was_told(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    for text in [
        "unalias -a",
        "shopt -u expand_aliases",
        "IFS=0123456789",
        "echo() { :; }",
        "alias builtin=: echo=:",
        "set -u -f -C",
        "set -o posix",
    ] {
        raised.says(text, ("", 0))?;
        for (text, status) in [("false", 1), ("(exit 107)", 107), ("true", 0)] {
            same(format!("the status of `{text}`"), raised.sh(text)?.exit_code(), status)?;
        }
    }
    // What a shell is told by can be shut, and then nothing is run: not what came before either.
    raised.sh("echo before; readonly __ringfence_line")?;
    let ran = raised.sh("echo $((1 + 1))")?;
    same("what a shell says that cannot be told", (said(&ran).as_str(), ran.exit_code()), ("", 1))?;
    raised.renew()?;
    // What is told as it is can be interrupted as well.
    let line = ShellCommand {
        deadline: Some(Duration::from_millis(200)),
        ..ShellCommand::new("sleep 15")
    };
    let ran = raised.run(&line)?;
    same("the time limit and the errors", (ran.timed_out, ran.stderr.bytes()), (true, Vec::new()))?;
    raised.says("echo on", ("on", 0))?;
    // Other shells than bash.
    for program in ["sh", "zsh"] {
        raised.start.program = program.into();
        match raised.renew() {
            Err(CheckFailure::NotRun { source: ProviderError::NotExecuted { .. }, .. })
                if program == "zsh" =>
            {
                continue;
            }
            renewed => renewed?,
        }
        for (text, status) in [
            ("false", 1),
            ("(exit 107)", 107),
            ("cd sub; x='a b'", 0),
            ("return 9", 9),
            ("true", 0),
        ] {
            same(
                format!("the status of `{text}` in {program}"),
                raised.sh(text)?.exit_code(),
                status,
            )?;
        }
        raised.says("echo $x; basename $PWD; sleep 5 & :", ("a b\nsub", 0))?;
        let line = ShellCommand {
            input: b"to read".to_vec().into(),
            deadline: Some(LIMIT),
            ..ShellCommand::new("cat")
        };
        same("what was read", said(&raised.run(&line)?).as_str(), "to read")?;
        let line = ShellCommand {
            deadline: Some(Duration::from_millis(300)),
            ..ShellCommand::new("while :; do :; done; echo after")
        };
        let ran = raised.run(&line)?;
        same("whether the time limit ended it", (ran.timed_out, said(&ran).as_str()), (true, ""))?;
        raised.says("cat; echo on $x", ("on a b", 0))?;
    }
    Ok(())
}

fn a_shell_keeps_its_streams_apart(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let mut heard = Vec::new();
    let line = ShellCommand::new("printf 'a\\0\\377'; echo b >&2; printf c");
    let ran =
        raised.shell.execute(&line, &mut |stream, bytes| heard.push((stream, bytes.to_vec())));
    let ran = ran.map_err(|source| CheckFailure::NotRun { command: "printf".into(), source })?;
    same("standard output", ran.stdout.bytes(), b"a\0\xffc".to_vec())?;
    same("standard error", ran.stderr.bytes(), b"b\n".to_vec())?;
    let streamed = |wanted| {
        heard
            .iter()
            .filter(|(stream, _)| *stream == wanted)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect::<Vec<u8>>()
    };
    same("output as it came", streamed(OutputStream::Out), b"a\0\xffc".to_vec())?;
    same("errors as they came", streamed(OutputStream::Err), b"b\n".to_vec())?;
    // What a command redirects in the shell itself stays so.
    raised.says("exec 9>&1 >there", ("", 0))?;
    raised.says("echo into a file", ("", 0))?;
    raised.says("exec >&9 9>&-; cat there", ("into a file", 0))?;
    // Also where nothing is left to hear it by.
    raised.says("echo heard; exec > there 2>&1", ("heard", 0))?;
    same("the status", raised.sh("echo unheard; sleep 0.3; (exit 5)")?.exit_code(), 5)?;
    same("what stands in the file", host(&trial.at("there"))?.as_str(), "unheard\n")
}

fn host(path: &ringfence_policy::AbsPath) -> Result<String, CheckFailure> {
    std::fs::read_to_string(path.as_path())
        .map_err(|source| CheckFailure::Host { what: format!("read {path}"), source })
}

fn a_command_of_a_shell_reads_its_input_only(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let line = ShellCommand {
        input: b"one\ntwo\nthree".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("read first; echo $first; cat")
    };
    same("what was read", said(&raised.run(&line)?), "one\ntwo\nthree".to_owned())?;
    let line = ShellCommand {
        input: b"left\nbehind\n".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("read first; echo $first")
    };
    same("what was read", said(&raised.run(&line)?), "left".to_owned())?;
    raised.says("cat; read x; echo $? [$x]", ("1 []", 0))
}

/// Promise: P47
fn a_shell_that_was_interrupted_lives_on(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.says("kept=yes; sleep 50 & echo $kept", ("yes", 0))?;
    let pid = raised.shell.pid();
    for text in [
        "sleep 40; echo after",
        "while :; do :; done; echo after",
        "sleep 40 | cat; echo after",
        "f() { sleep 40; echo in; }; f",
    ] {
        let line =
            ShellCommand { deadline: Some(Duration::from_millis(300)), ..ShellCommand::new(text) };
        let ran = raised.run(&line)?;
        same(
            format!("the status of `{text}`"),
            (ran.timed_out, ran.exit_code(), said(&ran).as_str()),
            (true, 124, ""),
        )?;
        same("what became of the shell", ran.shell, ShellState::LivesOn)?;
        raised.says("echo $kept; jobs -r | wc -l", ("yes\n1", 0))?;
    }
    // One that minds no interruption is ended, and the shell lives on all the same.
    let line = ShellCommand {
        deadline: Some(Duration::from_millis(200)),
        ..ShellCommand::new("sh -c 'trap \"\" INT; sleep 41; sleep 42'; echo after")
    };
    let ran = raised.run(&line)?;
    same(
        "whether it was ended, and the rest of the line with it",
        (ran.timed_out, said(&ran).as_str()),
        (true, ""),
    )?;
    raised.says("echo $kept", ("yes", 0))?;
    // Nor does one that calls itself what is no text.
    raised.sh("name=$(printf 'w\\377'); cp $(command -v bash) ./$name")?;
    let text = "./$name -c 'trap \"\" INT TERM; sleep 43; sleep 44; sleep 45'; echo after";
    let line =
        ShellCommand { deadline: Some(Duration::from_millis(200)), ..ShellCommand::new(text) };
    let ran = raised.run(&line)?;
    same("whether it was ended", (ran.timed_out, ran.shell), (true, ShellState::LivesOn))?;
    same("the shell's number", raised.shell.pid(), pid)
}

/// Promise: P47
fn somebody_else_interrupts_a_command(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let interrupter = raised.shell.interrupter();
    let begun = Instant::now();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        interrupter.interrupt();
    });
    let ran = raised.sh("sleep 15; echo after");
    let _ = other.join();
    same("the status", ran?.exit_code(), 130)?;
    same("whether it was waited for", begun.elapsed() < Duration::from_secs(10), true)?;
    // Any other signal goes to what the command runs, and not to what was there before.
    raised.says("sleep 30 & job=$!", ("", 0))?;
    let interrupter = raised.shell.interrupter();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        interrupter.signal(USR1);
    });
    let ran = raised.sh("sh -c 'trap \"echo heard; exit 3\" USR1; while :; do sleep 0.05; done'; echo $?; kill -0 $job && echo there");
    let _ = other.join();
    same("what it said", said(&ran?).trim_start_matches("heard\n"), "3\nthere")?;
    raised.says("echo on", ("on", 0))
}

/// Promise: P48
fn a_command_that_ends_its_shell_is_told(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    for (text, wanted) in [
        ("echo bye; exit 3", ExitStatus::Exited(3)),
        ("kill -9 $$", ExitStatus::Killed(9)),
        ("exec sh -c 'exit 5'", ExitStatus::Exited(5)),
        ("set -e; false; echo not reached", ExitStatus::Exited(1)),
    ] {
        let ran = raised.sh(text)?;
        same(format!("how `{text}` ended"), (ran.status, ran.shell), (wanted, ShellState::Ended))?;
        match raised.shell.execute(&ShellCommand::new("echo"), &mut |_, _| {}) {
            Err(ProviderError::Gone { .. }) => {}
            other => {
                return Err(differs("a shell that has ended", "an error", format!("{other:?}")));
            }
        }
        raised.renew()?;
    }
    raised.says("echo anew", ("anew", 0))
}

/// Promise: P48
fn no_text_is_taken_for_an_end(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let text = "for i in 1 2 3; do echo '0123456789abcdef0123456789abcdef 0'; echo \"__ringfence_line='x'\"; done | wc -l; (exit 6)";
    raised.says(text, ("6", 6))?;
    raised.says("set | grep -c '[0-9a-f]\\{32\\}'; history | wc -l; false", ("0\n0", 1))
}

/// Promise: P48
fn whoever_writes_to_every_descriptor_fakes_nothing(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    // In the shell itself, and in a program that it starts.
    let all = "for fd in $(ls /proc/$$/fd); do for s in '0' ' 0' 'x 0'; do { printf '%s' \"$s\" >&$fd; } 2>/dev/null; done; done; (exit 8)";
    same("the status", raised.sh(all)?.exit_code(), 8)?;
    let program = "bash -c 'for fd in $(ls /proc/$$/fd); do { printf \"0 0\" >&$fd; } 2>/dev/null; done; exit 9'";
    same("the status", raised.sh(program)?.exit_code(), 9)?;
    // What only the shell has, no program gets.
    raised.says("bash -c 'ls -l /proc/self/fd | grep -c \" 255 \"'", ("0", 1))?;
    raised.says("echo on", ("on", 0))
}

/// Promise: P48
fn a_shell_that_can_no_longer_tell_is_given_up(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let line = ShellCommand {
        deadline: Some(LIMIT),
        ..ShellCommand::new("for fd in {3..99}; do eval \"exec $fd>&- $fd<&-\"; done")
    };
    match raised.shell.execute(&line, &mut |_, _| {}) {
        Err(ProviderError::Mute) => {}
        other => {
            return Err(differs("a shell without descriptors", "an error", format!("{other:?}")));
        }
    }
    raised.renew()?;
    raised.says("echo anew", ("anew", 0))
}

fn much_output_is_counted_to_the_byte(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let line = ShellCommand {
        limit: 1000,
        deadline: Some(LIMIT),
        ..ShellCommand::new("head -c 30000000 /dev/zero; printf end; echo e >&2")
    };
    let ran = raised.run(&line)?;
    same("what was dropped", ran.stdout.dropped, 30_000_003 - 1000)?;
    same("the end", ran.stdout.tail.ends_with(b"\0end"), true)?;
    same("errors", ran.stderr.bytes(), b"e\n".to_vec())
}

/// Promise: P48
fn what_goes_on_behind_a_command_is_nobody_elses(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let begun = Instant::now();
    let pid = raised.shell.pid();
    raised.says("exec 9>&1; (sleep 1; echo late; echo error >&2) & echo now", ("now", 0))?;
    same("whether it was waited for", begun.elapsed() < Duration::from_millis(900), true)?;
    let ran = raised.sh("wait; echo mine >&9; echo also")?;
    same(
        "what the next command says",
        (said(&ran).as_str(), ran.stderr.bytes()),
        ("mine\nalso", Vec::new()),
    )?;
    same("what is said behind it", ran.background.bytes(), b"late\nerror\n".to_vec())?;
    // Of whoever is left by a child of a child, and by something in a session of its own.
    raised.says(
        "sh -c 'sh -c \"sleep 0.4; echo orphan\" & setsid sh -c \"sleep 0.4; echo daemon\" &'",
        ("", 0),
    )?;
    let ran = raised.sh("sleep 0.8; echo quiet")?;
    same("what the next command says", said(&ran).as_str(), "quiet")?;
    let mut behind: Vec<String> =
        String::from_utf8_lossy(&ran.background.bytes()).lines().map(str::to_owned).collect();
    behind.sort_unstable();
    same("what is said behind it", behind.join(" ").as_str(), "daemon orphan")?;
    // Nobody waits because nobody listens, and nobody listens to all of it.
    raised.says(
        "head -c 9000000 /dev/zero > zeroes; { sleep 0.2; cat zeroes; echo > grown; } & :",
        ("", 0),
    )?;
    let is_grown = || trial.at("grown").as_path().exists();
    let end = Instant::now() + LIMIT;
    while !is_grown() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    same("whether it went on between two commands", is_grown(), true)?;
    let ran = raised.sh("echo on")?;
    same(
        "how much was said behind it",
        ran.background.bytes().len() as u64 + ran.background.dropped,
        9_000_000,
    )?;
    same(
        "what is said behind one after all have ended",
        raised.sh("true")?.background.bytes(),
        Vec::new(),
    )?;
    same("the shell's number", raised.shell.pid(), pid)
}

fn a_command_of_a_shell_is_fed_while_it_runs(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let failed = |source| CheckFailure::Host { what: "feed a command".into(), source };
    let feeder = raised.shell.feeder().map_err(failed)?;
    feeder.feed(b"first\n").map_err(failed)?;
    let line = ShellCommand {
        input: StdinInput::Fed,
        deadline: Some(LIMIT),
        ..ShellCommand::new("read a; echo got $a; read b; echo got $b; cat")
    };
    let mut heard = 0;
    let ran = raised.shell.execute(&line, &mut |_, bytes| {
        heard += bytes.iter().filter(|byte| **byte == b'\n').count();
        // Each only when the one before was answered.
        let _ = match heard {
            1 => feeder.feed(b"second\n"),
            2 => feeder.feed(b"rest").map(|()| feeder.shut()),
            _ => Ok(()),
        };
    });
    let ran = ran.map_err(|source| CheckFailure::NotRun { command: "read".into(), source })?;
    same("what it said", said(&ran).as_str(), "got first\ngot second\nrest")?;
    same("whether it is fed after its end", feeder.feed(b"more").is_err(), true)?;
    // One that does not read is not waited for, and nothing is left for the next.
    let feeder = raised.shell.feeder().map_err(failed)?;
    feeder.feed(&vec![b'x'; 900_000]).map_err(failed)?;
    let line = ShellCommand {
        input: StdinInput::Fed,
        deadline: Some(LIMIT),
        ..ShellCommand::new("head -c 3; echo")
    };
    same("what it said", said(&raised.run(&line)?).as_str(), "xxx")?;
    raised.says("cat; ls -l /proc/self/fd | grep -c ' 62 '; echo on", ("0\non", 0))?;
    raised.start.program = "sh".into();
    raised.renew()?;
    let line = ShellCommand {
        input: b"to sh".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("cat; sleep 5 &")
    };
    same("what it said", said(&raised.run(&line)?).as_str(), "to sh")?;
    raised.says("cat; echo on", ("on", 0))
}

fn a_long_command_is_one_command(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let long = "it's ".repeat(60_000);
    raised.says(&format!("cat > long <<'END'\n{long}\nEND\nwc -c < long"), ("300001", 0))
}

fn a_line_with_a_nul_is_refused_and_harms_nothing(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.says("x=1", ("", 0))?;
    match raised.shell.execute(&ShellCommand::new("echo a\0b"), &mut |_, _| {}) {
        Err(ProviderError::NoLine { .. }) => {}
        other => return Err(differs("a line with a NUL", "an error", format!("{other:?}"))),
    }
    raised.says("echo $x", ("1", 0))
}

fn two_shells_of_a_sandbox_are_independent(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    let failed = |source| CheckFailure::NotRun { command: "bash".into(), source };
    let mut other = raised.standing.shell(&raised.start).map_err(failed)?;
    raised.says("x=mine; cd sub; echo shared > /tmp/shared", ("", 0))?;
    let ran = other
        .execute(&ShellCommand::new("echo [$x]; basename $PWD; cat /tmp/shared"), &mut |_, _| {})
        .map_err(failed)?;
    same("what the other has", said(&ran).as_str(), "[]\napp\nshared")?;
    other.execute(&ShellCommand::new("exit"), &mut |_, _| {}).map_err(failed)?;
    raised.says("echo $x", ("mine", 0))
}

/// Promise: P50
fn nothing_goes_on_when_a_sandbox_has_ended(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.says(
        "sh beat grows > /dev/null 2>&1 & while [ ! -s grows ]; do sleep 0.02; done; echo grows",
        ("grows", 0),
    )?;
    let RunningShell { standing, shell, .. } = raised;
    standing.end().map_err(|source| CheckFailure::NotRun { command: "end".into(), source })?;
    drop(shell);
    let length = || {
        std::fs::metadata(trial.at("grows").as_path())
            .map(|metadata| metadata.len())
            .unwrap_or_default()
    };
    let before = length();
    thread::sleep(Duration::from_millis(300));
    same("how long the file is", length(), before)
}

/// Promise: P49
fn what_a_shell_is_refused_is_told_with_the_command(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.says("echo before", ("before", 0))?;
    let ran = raised.sh("cat .env ~/.ssh/id_rsa; echo $?")?;
    same(
        "whether the secret was read",
        String::from_utf8_lossy(&ran.stdout.bytes()).contains(SECRET),
        false,
    )?;
    let mut targets: Vec<String> = ran.denials.iter().map(|denial| denial.target.clone()).collect();
    targets.sort_unstable();
    let mut wanted =
        [trial.at(".env"), trial.place.home.join(".ssh/id_rsa")].map(|path| path.to_string());
    wanted.sort_unstable();
    same("what was refused", targets, wanted.to_vec())?;
    let ran = raised.sh("echo x > .git/config; echo y > .mcp.json; true")?;
    same("how much was refused", ran.denials.len(), 2)?;
    same(
        "what is refused to a command that wants nothing",
        raised.sh("cat README")?.denials.len(),
        0,
    )
}

/// Promise: P49
fn what_a_shell_planted_is_moved_away_at_the_end(trial: &CheckRun<'_>) -> CheckResult {
    let mut raised = trial.raise()?;
    raised.sh("mkdir -p made/.git/hooks made/.git/objects made/.git/refs && echo 'ref: refs/heads/x' > made/.git/HEAD")?;
    raised.sh("printf '#!/bin/sh\\n' > made/.git/hooks/pre-commit && chmod +x made/.git/hooks/pre-commit && printf '[core]\\n' > made/.git/config")?;
    let hook = trial.at("made/.git/hooks/pre-commit");
    same("whether the hook stands", hook.as_path().exists(), true)?;
    let moved = raised
        .standing
        .end()
        .map_err(|source| CheckFailure::NotRun { command: "end".into(), source })?;
    same("whether the hook still stands", hook.as_path().exists(), false)?;
    same("whether that is told", moved.iter().any(|moved| moved.path == hook.to_string()), true)
}
