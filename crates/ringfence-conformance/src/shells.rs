//! Shells that live on from one command to the next.

use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{
    ExitStatus, Outcome, OutputStream, ShellCommand, ShellState, Signal, StdinInput,
};
use ringfence_policy::AbsPath;
use ringfence_provider::{ProviderError, Sandbox, SandboxShell, ShellSpec, Support};

use super::check_run::{CheckRun, difference, expect_equal, expect_host_file};
use super::fixture::SECRET;
use super::{CheckFailure, CheckResult};

checks! {
    Shells: shell_state_persists_between_commands,
    Shells: shell_reports_each_exit_status,
    Shells: shell_reports_exit_status_after_option_changes,
    Shells: shell_keeps_stdout_and_stderr_separate,
    Shells: shell_command_reads_only_its_own_input,
    Shells: interrupted_shell_lives_on,
    Shells: command_is_interrupted_from_another_thread,
    Shells: command_that_ends_its_shell_is_reported,
    Shells: output_cannot_fake_an_exit_status,
    Shells | Unix: writing_to_every_fd_fakes_no_exit_status,
    Shells | Unix: shell_without_report_fds_is_abandoned,
    Shells: large_output_is_counted_exactly,
    Shells: background_output_is_kept_separate,
    Shells: shell_command_is_fed_while_it_runs,
    Shells: long_command_runs_as_one,
    Shells: command_with_nul_is_rejected,
    Shells: two_shells_of_one_sandbox_are_independent,
    Shells: ended_sandbox_has_no_processes,
    Shells: files_go_in_and_out,
    Shells | Files: files_in_and_out_obey_the_policy,
    Reports: shell_denials_are_reported_with_their_command,
    Reports: planted_files_of_a_shell_are_quarantined_at_the_end,
}

/// A live sandbox and a shell in it.
struct RunningShell {
    shell: Box<dyn SandboxShell>,
    sandbox: Box<dyn Sandbox>,
    start: ShellSpec,
}

impl CheckRun<'_> {
    fn start_shell(&self) -> Result<RunningShell, CheckFailure> {
        let mut opened = self.open()?;
        let request = opened.request(["bash"]);
        let start =
            ShellSpec { program: "bash".into(), environment: request.variables, cwd: request.cwd };
        let failed = |source| CheckFailure::NotRun { command: "start_sandbox".into(), source };
        let sandbox = opened.sandbox.start_sandbox(&start.cwd).map_err(failed)?;
        let shell = sandbox.start_shell(&start).map_err(failed)?;
        Ok(RunningShell { shell, sandbox, start })
    }
}

const LIMIT: Duration = Duration::from_secs(20);

impl RunningShell {
    fn run(&mut self, line: &ShellCommand) -> Result<Outcome, CheckFailure> {
        let failed = |source| CheckFailure::NotRun {
            command: String::from_utf8_lossy(&line.text).into_owned(),
            source,
        };
        self.shell.execute(line, &mut |_, _| {}).map_err(failed)
    }

    fn sh(&mut self, text: &str) -> Result<Outcome, CheckFailure> {
        self.run(&ShellCommand { deadline: Some(LIMIT), ..ShellCommand::new(text) })
    }

    /// Checks the output and the status of `text`.
    fn says(&mut self, text: &str, wanted: (&str, i32)) -> CheckResult {
        let ran = self.sh(text)?;
        expect_equal(
            format!("the output and status of `{text}`"),
            (said(&ran).as_str(), ran.exit_code()),
            wanted,
        )
    }

    fn renew(&mut self) -> CheckResult {
        let failed = |source| CheckFailure::NotRun { command: "bash".into(), source };
        self.shell = self.sandbox.start_shell(&self.start).map_err(failed)?;
        Ok(())
    }
}

fn said(ran: &Outcome) -> String {
    String::from_utf8_lossy(&ran.stdout.bytes()).trim_end_matches('\n').to_owned()
}

/// Promise: session-state
fn shell_state_persists_between_commands(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.sh(
        "cd sub; export EXPORTED=one; plain=two; declare -A map=([k]=three); f() { echo four; }",
    )?;
    expect_equal("the directory of the shell", live.shell.cwd(), Some(check_run.path("sub")))?;
    live.sh("alias five='echo five'; exec 7> ../seven; sleep 60 & job=$!; set -- six")?;
    for _ in 0..50 {
        live.says(":", ("", 0))?;
    }
    live.says(
        "sh -c 'echo $EXPORTED'; echo $plain ${map[k]}; f; five; echo $1",
        ("one\ntwo three\nfour\nfive\nsix", 0),
    )?;
    live.says(
        "echo to seven >&7; cat ../seven; kill -0 $job && jobs -r | wc -l; basename $PWD",
        ("to seven\n1\nsub", 0),
    )?;
    let id = live.shell.id().to_owned();
    live.says("kill $job; wait $job 2>/dev/null; echo $?", ("143", 0))?;
    expect_equal("the id of the shell", live.shell.id(), id.as_str())
}

fn shell_reports_each_exit_status(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
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
        expect_equal(format!("the status of `{text}`"), live.sh(text)?.exit_code(), wanted)?;
    }
    live.says("echo still there", ("still there", 0))
}

/// Also after a command has changed the shell's syntax and options.
///
/// Promise: end-marker
fn shell_reports_exit_status_after_option_changes(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    for text in [
        "unalias -a",
        "shopt -u expand_aliases",
        "IFS=0123456789",
        "echo() { :; }",
        "alias builtin=: echo=:",
        "set -u -f -C",
        "set -o posix",
    ] {
        live.says(text, ("", 0))?;
        for (text, status) in [("false", 1), ("(exit 107)", 107), ("true", 0)] {
            expect_equal(format!("the status of `{text}`"), live.sh(text)?.exit_code(), status)?;
        }
    }
    // A command can break the variable that carries the next one; then nothing runs.
    live.sh("echo before; readonly __ringfence_line")?;
    let ran = live.sh("echo $((1 + 1))")?;
    expect_equal("the output of a broken shell", (said(&ran).as_str(), ran.exit_code()), ("", 1))?;
    live.renew()?;
    // A command passed without that variable can be interrupted as well.
    let line = ShellCommand {
        deadline: Some(Duration::from_millis(200)),
        ..ShellCommand::new("sleep 15")
    };
    let ran = live.run(&line)?;
    expect_equal(
        "the time limit and the errors",
        (ran.timed_out, ran.stderr.bytes()),
        (true, Vec::new()),
    )?;
    live.says("echo on", ("on", 0))?;
    // Other shells than bash.
    for program in ["sh", "zsh"] {
        live.start.program = program.into();
        match live.renew() {
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
            expect_equal(
                format!("the status of `{text}` in {program}"),
                live.sh(text)?.exit_code(),
                status,
            )?;
        }
        live.says("echo $x; basename $PWD; sleep 5 & :", ("a b\nsub", 0))?;
        let line = ShellCommand {
            input: b"to read".to_vec().into(),
            deadline: Some(LIMIT),
            ..ShellCommand::new("cat")
        };
        expect_equal("the input", said(&live.run(&line)?).as_str(), "to read")?;
        let line = ShellCommand {
            deadline: Some(Duration::from_millis(300)),
            ..ShellCommand::new("while :; do :; done; echo after")
        };
        let ran = live.run(&line)?;
        expect_equal("the time limit ended it", (ran.timed_out, said(&ran).as_str()), (true, ""))?;
        live.says("cat; echo on $x", ("on a b", 0))?;
    }
    Ok(())
}

fn shell_keeps_stdout_and_stderr_separate(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let mut heard = Vec::new();
    let line = ShellCommand::new("printf 'a\\0\\377'; echo b >&2; printf c");
    let ran = live.shell.execute(&line, &mut |stream, bytes| heard.push((stream, bytes.to_vec())));
    let ran = ran.map_err(|source| CheckFailure::NotRun { command: "printf".into(), source })?;
    expect_equal("standard output", ran.stdout.bytes(), b"a\0\xffc".to_vec())?;
    expect_equal("standard error", ran.stderr.bytes(), b"b\n".to_vec())?;
    let streamed = |wanted| {
        heard
            .iter()
            .filter(|(stream, _)| *stream == wanted)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect::<Vec<u8>>()
    };
    expect_equal("output as it came", streamed(OutputStream::Out), b"a\0\xffc".to_vec())?;
    expect_equal("errors as they came", streamed(OutputStream::Err), b"b\n".to_vec())?;
    // A redirection of the shell itself persists.
    live.says("exec 9>&1 >there", ("", 0))?;
    live.says("echo into a file", ("", 0))?;
    live.says("exec >&9 9>&-; cat there", ("into a file", 0))?;
    // Also when no output is left to read.
    live.says("echo heard; exec > there 2>&1", ("heard", 0))?;
    expect_equal("the status", live.sh("echo unheard; sleep 0.3; (exit 5)")?.exit_code(), 5)?;
    expect_equal("the content of the file", host(&check_run.path("there"))?.as_str(), "unheard\n")
}

fn host(path: &AbsPath) -> Result<String, CheckFailure> {
    std::fs::read_to_string(path.as_path())
        .map_err(|source| CheckFailure::Host { what: format!("read {path}"), source })
}

fn shell_command_reads_only_its_own_input(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let line = ShellCommand {
        input: b"one\ntwo\nthree".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("read first; echo $first; cat")
    };
    expect_equal("the input", said(&live.run(&line)?), "one\ntwo\nthree".to_owned())?;
    let line = ShellCommand {
        input: b"left\nbehind\n".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("read first; echo $first")
    };
    expect_equal("the input", said(&live.run(&line)?), "left".to_owned())?;
    live.says("cat; read x; echo $? [$x]", ("1 []", 0))
}

/// Promise: session-state
fn interrupted_shell_lives_on(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.says("kept=yes; sleep 50 & echo $kept", ("yes", 0))?;
    let id = live.shell.id().to_owned();
    for text in [
        "sleep 40; echo after",
        "while :; do :; done; echo after",
        "sleep 40 | cat; echo after",
        "f() { sleep 40; echo in; }; f",
    ] {
        let line =
            ShellCommand { deadline: Some(Duration::from_millis(300)), ..ShellCommand::new(text) };
        let ran = live.run(&line)?;
        expect_equal(
            format!("the status of `{text}`"),
            (ran.timed_out, ran.exit_code(), said(&ran).as_str()),
            (true, 124, ""),
        )?;
        expect_equal("the state of the shell", ran.shell, ShellState::Alive)?;
        live.says("echo $kept; jobs -r | wc -l", ("yes\n1", 0))?;
    }
    // A command that ignores the interrupt is killed, and the shell lives on.
    let line = ShellCommand {
        deadline: Some(Duration::from_millis(200)),
        ..ShellCommand::new("sh -c 'trap \"\" INT; sleep 41; sleep 42'; echo after")
    };
    let ran = live.run(&line)?;
    expect_equal(
        "it was ended, and the rest of the line with it",
        (ran.timed_out, said(&ran).as_str()),
        (true, ""),
    )?;
    live.says("echo $kept", ("yes", 0))?;
    // The same for a program whose name is not UTF-8.
    live.sh("name=$(printf 'w\\377'); cp $(command -v bash) ./$name")?;
    let text = "./$name -c 'trap \"\" INT TERM; sleep 43; sleep 44; sleep 45'; echo after";
    let line =
        ShellCommand { deadline: Some(Duration::from_millis(200)), ..ShellCommand::new(text) };
    let ran = live.run(&line)?;
    expect_equal("it was ended", (ran.timed_out, ran.shell), (true, ShellState::Alive))?;
    expect_equal("the id of the shell", live.shell.id(), id.as_str())
}

/// Promise: session-state
fn command_is_interrupted_from_another_thread(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let interrupter = live.shell.interrupter();
    let begun = Instant::now();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        interrupter.interrupt();
    });
    let ran = live.sh("sleep 15; echo after");
    let _ = other.join();
    expect_equal("the status", ran?.exit_code(), 130)?;
    expect_equal("it was waited for", begun.elapsed() < Duration::from_secs(10), true)?;
    // Any other signal goes to the command's processes, and not to earlier jobs.
    live.says("sleep 30 & job=$!", ("", 0))?;
    let interrupter = live.shell.interrupter();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        interrupter.signal(Signal::User1);
    });
    let ran = live.sh("sh -c 'trap \"echo heard; exit 3\" USR1; while :; do sleep 0.05; done'; echo $?; kill -0 $job && echo there");
    let _ = other.join();
    expect_equal("the output", said(&ran?).trim_start_matches("heard\n"), "3\nthere")?;
    live.says("echo on", ("on", 0))
}

/// Promise: end-marker
fn command_that_ends_its_shell_is_reported(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    for (text, wanted) in [
        ("echo bye; exit 3", ExitStatus::Exited(3)),
        ("kill -9 $$", ExitStatus::Killed(9)),
        ("exec sh -c 'exit 5'", ExitStatus::Exited(5)),
        ("set -e; false; echo not reached", ExitStatus::Exited(1)),
    ] {
        let ran = live.sh(text)?;
        expect_equal(
            format!("the end of `{text}`"),
            (ran.status, ran.shell),
            (wanted, ShellState::Ended),
        )?;
        match live.shell.execute(&ShellCommand::new("echo"), &mut |_, _| {}) {
            Err(ProviderError::Gone { .. }) => {}
            other => {
                return Err(difference("a shell that has ended", "an error", format!("{other:?}")));
            }
        }
        live.renew()?;
    }
    live.says("echo anew", ("anew", 0))
}

/// Promise: end-marker
fn output_cannot_fake_an_exit_status(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let text = "for i in 1 2 3; do echo '0123456789abcdef0123456789abcdef 0'; echo \"__ringfence_line='x'\"; done | wc -l; (exit 6)";
    live.says(text, ("6", 6))?;
    live.says("set | grep -c '[0-9a-f]\\{32\\}'; history | wc -l; false", ("0\n0", 1))
}

/// Promise: end-marker
fn writing_to_every_fd_fakes_no_exit_status(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    // From the shell itself, and from a program it starts.
    let all = "for fd in $(ls /proc/$$/fd); do for s in '0' ' 0' 'x 0'; do { printf '%s' \"$s\" >&$fd; } 2>/dev/null; done; done; (exit 8)";
    expect_equal("the status", live.sh(all)?.exit_code(), 8)?;
    let program = "bash -c 'for fd in $(ls /proc/$$/fd); do { printf \"0 0\" >&$fd; } 2>/dev/null; done; exit 9'";
    expect_equal("the status", live.sh(program)?.exit_code(), 9)?;
    // Programs do not inherit the shell's private fds.
    live.says("bash -c 'ls -l /proc/self/fd | grep -c \" 255 \"'", ("0", 1))?;
    live.says("echo on", ("on", 0))
}

/// Promise: end-marker
fn shell_without_report_fds_is_abandoned(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let line = ShellCommand {
        deadline: Some(LIMIT),
        ..ShellCommand::new("for fd in {3..99}; do eval \"exec $fd>&- $fd<&-\"; done")
    };
    match live.shell.execute(&line, &mut |_, _| {}) {
        Err(ProviderError::ReportFdsClosed) => {}
        other => {
            return Err(difference(
                "a shell without descriptors",
                "an error",
                format!("{other:?}"),
            ));
        }
    }
    live.renew()?;
    live.says("echo anew", ("anew", 0))
}

fn large_output_is_counted_exactly(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let line = ShellCommand {
        limit: 1000,
        deadline: Some(LIMIT),
        ..ShellCommand::new("head -c 30000000 /dev/zero; printf end; echo e >&2")
    };
    let ran = live.run(&line)?;
    expect_equal("the number of dropped bytes", ran.stdout.dropped, 30_000_003 - 1000)?;
    expect_equal("the end", ran.stdout.tail.ends_with(b"\0end"), true)?;
    expect_equal("errors", ran.stderr.bytes(), b"e\n".to_vec())
}

/// Promise: end-marker
fn background_output_is_kept_separate(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let begun = Instant::now();
    let id = live.shell.id().to_owned();
    live.says("exec 9>&1; (sleep 1; echo late; echo error >&2) & echo now", ("now", 0))?;
    expect_equal("it was waited for", begun.elapsed() < Duration::from_millis(900), true)?;
    let ran = live.sh("wait; echo mine >&9; echo also")?;
    expect_equal(
        "the output of the next command",
        (said(&ran).as_str(), ran.stderr.bytes()),
        ("mine\nalso", Vec::new()),
    )?;
    expect_equal("the background output", ran.background.bytes(), b"late\nerror\n".to_vec())?;
    // Output of orphans, and of a process in its own session.
    live.says(
        "sh -c 'sh -c \"sleep 0.4; echo orphan\" & setsid sh -c \"sleep 0.4; echo daemon\" &'",
        ("", 0),
    )?;
    let ran = live.sh("sleep 0.8; echo quiet")?;
    expect_equal("the output of the next command", said(&ran).as_str(), "quiet")?;
    let mut background: Vec<String> =
        String::from_utf8_lossy(&ran.background.bytes()).lines().map(str::to_owned).collect();
    background.sort_unstable();
    expect_equal("the background output", background.join(" ").as_str(), "daemon orphan")?;
    // A writer without a reader is not blocked, and its output is limited.
    live.says(
        "head -c 9000000 /dev/zero > zeroes; { sleep 0.2; cat zeroes; echo > grown; } & :",
        ("", 0),
    )?;
    let is_grown = || check_run.path("grown").as_path().exists();
    let end = Instant::now() + LIMIT;
    while !is_grown() && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    expect_equal("it went on between two commands", is_grown(), true)?;
    let ran = live.sh("echo on")?;
    expect_equal(
        "the length of the background output",
        ran.background.bytes().len() as u64 + ran.background.dropped,
        9_000_000,
    )?;
    expect_equal(
        "the background output after all have ended",
        live.sh("true")?.background.bytes(),
        Vec::new(),
    )?;
    expect_equal("the id of the shell", live.shell.id(), id.as_str())
}

fn shell_command_is_fed_while_it_runs(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let failed = |source| CheckFailure::Host { what: "feed a command".into(), source };
    let feeder = live.shell.feeder().map_err(failed)?;
    feeder.feed(b"first\n").map_err(failed)?;
    let line = ShellCommand {
        input: StdinInput::Streamed,
        deadline: Some(LIMIT),
        ..ShellCommand::new("read a; echo got $a; read b; echo got $b; cat")
    };
    let mut heard = 0;
    let ran = live.shell.execute(&line, &mut |_, bytes| {
        heard += bytes.iter().filter(|byte| **byte == b'\n').count();
        // Each line only after the previous one was answered.
        let _ = match heard {
            1 => feeder.feed(b"second\n"),
            2 => feeder.feed(b"rest").map(|()| feeder.close()),
            _ => Ok(()),
        };
    });
    let ran = ran.map_err(|source| CheckFailure::NotRun { command: "read".into(), source })?;
    expect_equal("the output", said(&ran).as_str(), "got first\ngot second\nrest")?;
    expect_equal("it is fed after its end", feeder.feed(b"more").is_err(), true)?;
    // A command that does not read is not waited for, and nothing is left for the next.
    let feeder = live.shell.feeder().map_err(failed)?;
    feeder.feed(&vec![b'x'; 900_000]).map_err(failed)?;
    let line = ShellCommand {
        input: StdinInput::Streamed,
        deadline: Some(LIMIT),
        ..ShellCommand::new("head -c 3; echo")
    };
    expect_equal("the output", said(&live.run(&line)?).as_str(), "xxx")?;
    live.says("cat; ls -l /proc/self/fd | grep -c ' 62 '; echo on", ("0\non", 0))?;
    live.start.program = "sh".into();
    live.renew()?;
    let line = ShellCommand {
        input: b"to sh".to_vec().into(),
        deadline: Some(LIMIT),
        ..ShellCommand::new("cat; sleep 5 &")
    };
    expect_equal("the output", said(&live.run(&line)?).as_str(), "to sh")?;
    live.says("cat; echo on", ("on", 0))
}

fn long_command_runs_as_one(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let long = "it's ".repeat(60_000);
    live.says(&format!("cat > long <<'END'\n{long}\nEND\nwc -c < long"), ("300001", 0))
}

fn command_with_nul_is_rejected(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.says("x=1", ("", 0))?;
    match live.shell.execute(&ShellCommand::new("echo a\0b"), &mut |_, _| {}) {
        Err(ProviderError::NotACommand { .. }) => {}
        other => return Err(difference("a line with a NUL", "an error", format!("{other:?}"))),
    }
    live.says("echo $x", ("1", 0))
}

fn two_shells_of_one_sandbox_are_independent(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    let failed = |source| CheckFailure::NotRun { command: "bash".into(), source };
    let mut other = live.sandbox.start_shell(&live.start).map_err(failed)?;
    live.says("x=mine; cd sub; echo shared > /tmp/shared", ("", 0))?;
    let ran = other
        .execute(&ShellCommand::new("echo [$x]; basename $PWD; cat /tmp/shared"), &mut |_, _| {})
        .map_err(failed)?;
    expect_equal("the output of the other shell", said(&ran).as_str(), "[]\napp\nshared")?;
    other.execute(&ShellCommand::new("exit"), &mut |_, _| {}).map_err(failed)?;
    live.says("echo $x", ("mine", 0))
}

/// Promise: session-ends
fn ended_sandbox_has_no_processes(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.says(
        "sh beat grows > /dev/null 2>&1 & while [ ! -s grows ]; do sleep 0.02; done; echo grows",
        ("grows", 0),
    )?;
    let RunningShell { sandbox, shell, .. } = live;
    sandbox.end().map_err(|source| CheckFailure::NotRun { command: "end".into(), source })?;
    drop(shell);
    let length = || {
        std::fs::metadata(check_run.path("grows").as_path())
            .map(|metadata| metadata.len())
            .unwrap_or_default()
    };
    let before = length();
    thread::sleep(Duration::from_millis(300));
    expect_equal("the length of the file", length(), before)
}

/// Promise: session-denials
fn shell_denials_are_reported_with_their_command(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.says("echo before", ("before", 0))?;
    let ran = live.sh("cat .env ~/.ssh/id_rsa; echo $?")?;
    expect_equal(
        "the secret was read",
        String::from_utf8_lossy(&ran.stdout.bytes()).contains(SECRET),
        false,
    )?;
    let mut targets: Vec<String> = ran.denials.iter().map(|denial| denial.target.clone()).collect();
    targets.sort_unstable();
    let mut wanted = [check_run.path(".env"), check_run.fixture.home.join(".ssh/id_rsa")]
        .map(|path| path.to_string());
    wanted.sort_unstable();
    expect_equal("the denials", targets, wanted.to_vec())?;
    let ran = live.sh("echo x > .git/config; echo y > .mcp.json; true")?;
    expect_equal("the number of denials", ran.denials.len(), 2)?;
    expect_equal(
        "the denials of a command without denied accesses",
        live.sh("cat README")?.denials.len(),
        0,
    )
}

/// Promise: session-denials
fn planted_files_of_a_shell_are_quarantined_at_the_end(check_run: &CheckRun<'_>) -> CheckResult {
    let mut live = check_run.start_shell()?;
    live.sh("mkdir -p made/.git/hooks made/.git/objects made/.git/refs && echo 'ref: refs/heads/x' > made/.git/HEAD")?;
    live.sh("printf '#!/bin/sh\\n' > made/.git/hooks/pre-commit && chmod +x made/.git/hooks/pre-commit && printf '[core]\\n' > made/.git/config")?;
    let hook = check_run.path("made/.git/hooks/pre-commit");
    expect_equal("the hook stands", hook.as_path().exists(), true)?;
    let moved = live
        .sandbox
        .end()
        .map_err(|source| CheckFailure::NotRun { command: "end".into(), source })?;
    expect_equal("the hook still stands", hook.as_path().exists(), false)?;
    expect_equal(
        "the outcome reports it",
        moved.iter().any(|moved| moved.path == hook.to_string()),
        true,
    )
}

/// Does nothing for a provider that does not claim files.
fn files_go_in_and_out(check_run: &CheckRun<'_>) -> CheckResult {
    if check_run.provider.capabilities().files == Support::No {
        return Ok(());
    }
    let live = check_run.start_shell()?;
    let (path, empty) = (check_run.path("a b'$(c)"), check_run.path("empty"));
    let content: Vec<u8> = (0..300_000_u32).map(|byte| (byte % 251) as u8).collect();
    let not_run = |source| CheckFailure::NotRun { command: "put or get".into(), source };
    live.sandbox.put(&path, b"a longer text that was here before").map_err(not_run)?;
    live.sandbox.put(&path, &content).map_err(not_run)?;
    live.sandbox.put(&empty, b"").map_err(not_run)?;
    let found = |path: &AbsPath, limit| live.sandbox.get(path, limit);
    let length = content.len();
    expect_equal("the file", found(&path, length).map_err(not_run)? == content, true)?;
    expect_equal("the empty file", found(&empty, 0).map_err(not_run)?, Vec::new())?;
    expect_equal("a file over the limit fails", found(&path, length - 1).is_err(), true)?;
    let absent = check_run.path("absent/file");
    expect_equal("an absent file fails", found(&absent, 10).is_err(), true)?;
    expect_equal("a missing directory fails", live.sandbox.put(&absent, b"x").is_err(), true)
}

/// As [`files_go_in_and_out`].
fn files_in_and_out_obey_the_policy(check_run: &CheckRun<'_>) -> CheckResult {
    if check_run.provider.capabilities().files == Support::No {
        return Ok(());
    }
    let live = check_run.start_shell()?;
    let outside = check_run.fixture.outside.join("note.txt");
    for path in [check_run.path(".env"), check_run.path("link"), outside.clone()] {
        let found = live.sandbox.get(&path, 1000);
        expect_equal(format!("reading {path} fails"), found.is_err(), true)?;
        let done = live.sandbox.put(&path, b"changed");
        expect_equal(format!("writing {path} fails"), done.is_err(), true)?;
    }
    expect_host_file(&check_run.path(".env"), SECRET)?;
    expect_host_file(&outside, SECRET)
}
