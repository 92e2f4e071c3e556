//! No output of a command can fake its end: each end is reported once, with the command's own
//! status and output. In a sandbox, as root and as an ordinary user.

use std::cell::RefCell;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ringfence_api::HostFacts;
use ringfence_api::{ExitStatus, ShellCommand, ShellState};
use ringfence_linux::LocalProvider;
use ringfence_policy::{AbsPath, Facts, Flags, resolve};
use ringfence_provider::{Provider, Sandbox, SandboxShell, ShellSpec};
use ringfence_testkit::{ProcessPerTest, repetitions};
use rustix::fs::Mode as RawMode;

const CASES: usize = 1_000;
const CASES_UNDER_STRESS: usize = 10_000;

/// Shells that may crash by themselves.
const MAX_CRASHES: u32 = 50;

/// One action of a command.
#[derive(Debug, Clone)]
enum Action {
    Out(Vec<u8>),
    Err(Vec<u8>),
    /// To another fd than the standard ones, by the shell itself.
    Noise(u8, Vec<u8>),
    /// The same by a child process.
    FromChild(u8, Vec<u8>),
    /// To every fd of any process, by a program that searches for them.
    Everywhere(Vec<u8>),
    /// To standard output or error, by a background process that waits for a signal after the end
    /// of the command.
    Background(u8, Vec<u8>),
}

#[derive(Debug, Clone)]
enum Case {
    /// With a known result.
    Known(Vec<Action>, u8),
    /// One plain word after another.
    Plain(u8),
    /// Pieces of shell syntax in any order.
    Garbage(Vec<Vec<u8>>),
}

/// No piece touches a file or takes long, in any order.
const PIECES: &[&str] = &[
    "'",
    "\"",
    "`",
    "(",
    ")",
    "((",
    "))",
    "{",
    "}",
    "[[",
    "]]",
    ";",
    ";;",
    "&&",
    "&",
    "||",
    "|",
    "<<E",
    "<<'E'",
    "\n",
    "\nE\n",
    "\\",
    "#",
    "!",
    "$",
    "${",
    "$x",
    "=",
    "*",
    "@",
    "@ ",
    "true",
    "false",
    ":",
    "if",
    "then",
    "else",
    "fi",
    "do",
    "done",
    "for",
    "in",
    "case",
    "esac",
    "x",
    "return 3",
    "break",
    "continue",
    " ",
    " ",
    " ",
    " 0 AAAAAA\n",
    "\u{e9}",
    "\t",
    "\r",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let forged = "[ ]?[0-9]{1,3} [A-Za-z0-9_.]{6}\n?".prop_map(String::into_bytes);
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..40), forged]
}

fn descriptor() -> impl Strategy<Value = u8> {
    // Mostly the report fd. Not 10 and above, where the shell saves its standard streams during a
    // redirection: text written there is output.
    prop_oneof![6 => Just(61_u8), 1 => 3_u8..=9, 1 => 20_u8..=254, 1 => Just(255_u8)]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => bytes().prop_map(Action::Out),
        2 => bytes().prop_map(Action::Err),
        4 => (descriptor(), bytes()).prop_map(|(to, what)| Action::Noise(to, what)),
        1 => (descriptor(), bytes()).prop_map(|(to, what)| Action::FromChild(to, what)),
    ]
}

/// Actions with a background process, or a search of all fds, are slow, so they are rare.
fn actions() -> impl Strategy<Value = Vec<Action>> {
    let left = (1_u8..=2, bytes()).prop_map(|(to, what)| Action::Background(to, what));
    let everywhere = bytes().prop_map(Action::Everywhere);
    let some = proptest::collection::vec(action(), 0..5);
    (some, proptest::option::weighted(0.05, prop_oneof![left, everywhere]))
        .prop_map(|(some, slow)| some.into_iter().chain(slow).collect())
}

fn case() -> impl Strategy<Value = Case> {
    let piece = prop_oneof![
        9 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(128_u8..=255, 1..4),
    ];
    prop_oneof![
        5 => (actions(), any::<u8>()).prop_map(|(actions, status)| Case::Known(actions, status)),
        1 => any::<u8>().prop_map(Case::Plain),
        3 => proptest::collection::vec(piece, 0..12).prop_map(Case::Garbage),
    ]
}

/// `printf` with each byte as an octal escape.
fn printed(bytes: &[u8]) -> String {
    let numbers: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("builtin printf '{numbers}'")
}

/// Separates `$(`: bash 5.2 corrupts its memory, and that of later children, on an unclosed one.
fn without_open_substitutions(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    for byte in text {
        if *byte == b'(' && kept.last() == Some(&b'$') {
            kept.push(b' ');
        }
        kept.push(*byte);
    }
    kept
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|window| window == what)
}

impl Action {
    /// Without reserved words: after some garbage, bash 5.2 knows none any more.
    fn text(&self) -> String {
        match self {
            Action::Out(bytes) => printed(bytes),
            Action::Err(bytes) => format!("{} >&2", printed(bytes)),
            Action::Noise(to, bytes) => format!("{} 2>/dev/null >&{to}", printed(bytes)),
            Action::FromChild(to, bytes) => format!("( {} >&{to} ) 2>/dev/null", printed(bytes)),
            Action::Everywhere(bytes) => {
                let print = printed(bytes).replace("builtin ", "").replace('\'', "\"");
                let each = format!("case $f in /proc/$$/*) ;; *) {print} >$f ;; esac");
                format!(
                    "/bin/sh -c 'for f in /proc/[0-9]*/fd/* /proc/[0-9]*/task/*/fd/*; do {each}; done' 2>/dev/null"
                )
            }
            Action::Background(to, bytes) => {
                format!("( builtin read x <> {SIGN}; {} >&{to} ) &", printed(bytes))
            }
        }
    }
}

/// A FIFO that releases the waiting background processes.
const SIGN: &str = "sign";

/// The shell under test.
struct FuzzReport {
    sign: File,
    shell: Box<dyn SandboxShell>,
    live_sandbox: Box<dyn Sandbox>,
    start: ShellSpec,
    /// Number of shells that crashed after garbage.
    crashed: u32,
    /// Set once this shell got garbage.
    is_confused: bool,
}

impl FuzzReport {
    fn start(directory: &AbsPath) -> Result<Self, Box<dyn Error>> {
        let workspace = directory.join("app");
        std::fs::create_dir(workspace.as_path())?;
        let at = workspace.join(SIGN);
        rustix::fs::mkfifoat(rustix::fs::CWD, at.as_path(), RawMode::from_raw_mode(0o600))?;
        let sign = File::options().read(true).write(true).open(at.as_path())?;
        let facts = Facts {
            state: directory.join("state"),
            ..Facts::minimal(workspace.clone(), directory.clone(), directory.join("store"))
        };
        let user = HostFacts::without_settings(directory.join("quarantine"));
        let grants = resolve(&[], &Flags::none(workspace.clone()), &facts)?;
        let live_sandbox =
            LocalProvider::default().prepare(&grants, &user)?.start_sandbox(&workspace)?;
        // No word of garbage is a program, with nothing on PATH.
        let variables = vec![("PATH".into(), "/nowhere".into()), ("LC_ALL".into(), "C".into())];
        let start =
            ShellSpec { program: "/bin/bash".into(), environment: variables, cwd: workspace };
        Ok(Self {
            sign,
            shell: live_sandbox.start_shell(&start)?,
            live_sandbox,
            start,
            crashed: 0,
            is_confused: false,
        })
    }

    fn renew(&mut self) {
        self.shell = self.live_sandbox.start_shell(&self.start).expect("a shell");
        self.is_confused = false;
    }

    fn check(
        &mut self,
        text: Vec<u8>,
        wanted: Option<(Vec<u8>, Vec<u8>, i32)>,
    ) -> Result<ShellState, TestCaseError> {
        let line =
            ShellCommand { deadline: Some(Duration::from_secs(10)), ..ShellCommand::new(text) };
        let mut streamed = 0;
        let ran = self.shell.execute(&line, &mut |_, bytes| streamed += bytes.len());
        let ran = ran.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(!ran.timed_out);
        let (out, err) = (ran.stdout.bytes(), ran.stderr.bytes());
        prop_assert_eq!(streamed, out.len() + err.len());
        let is_torn = matches!(ran.status, ExitStatus::Killed(libc::SIGABRT | libc::SIGSEGV));
        prop_assert!(!is_torn || ran.shell == ShellState::Ended);
        // Bash 5.2 corrupts its memory on garbage, and its children crash.
        if self.is_confused
            && (is_torn || contains(&err, b"free(): ") || contains(&err, b"alloc(): "))
        {
            self.crashed += 1;
            prop_assert!(self.crashed < MAX_CRASHES, "{} shells crashed", self.crashed);
            self.renew();
            return Ok(ShellState::Alive);
        }
        if let Some(wanted) = wanted {
            prop_assert_eq!((out, err, ran.exit_code()), wanted);
            prop_assert_eq!(ran.shell, ShellState::Alive);
        }
        Ok(ran.shell)
    }

    /// Removes signals for a background process that ended early, which another would take.
    fn drain_signals(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        while rustix::io::ioctl_fionread(&self.sign).is_ok_and(|left| left > 0) {
            if Instant::now() > end {
                let _ = rustix::io::read(&self.sign, &mut [0; 1]);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn run_case(&mut self, case: &Case) -> Result<ShellState, TestCaseError> {
        match case {
            Case::Known(actions, status) => {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                for action in actions {
                    match action {
                        Action::Out(bytes) => out.extend_from_slice(bytes),
                        Action::Err(bytes) => err.extend_from_slice(bytes),
                        Action::Noise(..)
                        | Action::FromChild(..)
                        | Action::Everywhere(..)
                        | Action::Background(..) => {}
                    }
                }
                if actions.iter().any(|action| matches!(action, Action::Background(..))) {
                    self.drain_signals();
                }
                let mut lines: Vec<String> = actions.iter().map(Action::text).collect();
                lines.push(format!("return {status}"));
                let after =
                    self.check(lines.join("\n").into_bytes(), Some((out, err, i32::from(*status))));
                for _ in actions.iter().filter(|action| matches!(action, Action::Background(..))) {
                    self.sign
                        .write_all(b"\n")
                        .map_err(|error| TestCaseError::fail(error.to_string()))?;
                }
                after
            }
            Case::Plain(word) => self.check(
                format!("echo {word}").into_bytes(),
                Some((format!("{word}\n").into_bytes(), Vec::new(), 0)),
            ),
            Case::Garbage(pieces) => {
                self.is_confused = true;
                // Bash itself exits on a syntax error inside `$(`, which is reported.
                if self.check(without_open_substitutions(&pieces.concat()), None)?
                    == ShellState::Ended
                {
                    self.renew();
                }
                // Nothing of it is left for the next command.
                self.run_case(&Case::Known(vec![Action::Out(b"next".to_vec())], 7))
            }
        }
    }
}

/// A test, by its name.
type FuzzTest = (&'static str, fn(&Path) -> Result<(), Box<dyn Error>>);

#[rustfmt::skip]
const TESTS: &[FuzzTest] = &[
    ("fuzz::no_command_fakes_or_hides_an_end_or_another_commands_output", no_command_fakes_or_hides_an_end_or_another_commands_output),
];

fn main() -> ExitCode {
    ringfence_linux::enter_if_helper();
    let names = TESTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    ProcessPerTest { names, input: b"", variable: ("RINGFENCE_TEST", "fuzz"), body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = TESTS.iter().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(directory)
}

/// Promise: end-marker
fn no_command_fakes_or_hides_an_end_or_another_commands_output(
    directory: &Path,
) -> Result<(), Box<dyn Error>> {
    let shell =
        RefCell::new(FuzzReport::start(&AbsPath::new(directory).ok_or("not an absolute path")?)?);
    let cases = u32::try_from(repetitions(CASES, CASES_UNDER_STRESS))?;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&case(), |case| {
        let mut shell = shell.borrow_mut();
        // A smaller failing case starts with a fresh shell.
        shell.run_case(&case).map(drop).inspect_err(|_| shell.renew())
    });
    Ok(result?)
}
