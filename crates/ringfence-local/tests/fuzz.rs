//! Whatever a command says, and wherever: its end is told once, with its own status and its
//! own output. In a sandbox, as the superuser and as an ordinary user.

use std::cell::RefCell;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ringfence_api::{ExitStatus, ShellCommand, ShellState};
use ringfence_enforce::SandboxUser;
use ringfence_local::LocalProvider;
use ringfence_policy::{AbsPath, Facts, Flags, resolve};
use ringfence_provider::{Provider, Sandbox, SandboxShell, ShellSpec};
use ringfence_testkit::{ProcessPerTest, repetitions};
use rustix::fs::Mode as RawMode;

const CASES: usize = 1_000;
const CASES_UNDER_STRESS: usize = 10_000;

/// So many shells may break down by themselves.
const BREAKS: u32 = 50;

/// What a command does.
#[derive(Debug, Clone)]
enum Deed {
    Out(Vec<u8>),
    Err(Vec<u8>),
    /// To a descriptor other than the standard ones, by the shell itself.
    Noise(u8, Vec<u8>),
    /// The same by a process that it starts.
    Childs(u8, Vec<u8>),
    /// To everything that any process has open, by a program that looks for it.
    Everywhere(Vec<u8>),
    /// To standard output or error, by a process that is left running and waits for a sign,
    /// which it gets when the command has ended.
    Left(u8, Vec<u8>),
}

#[derive(Debug, Clone)]
enum Case {
    /// Of which it is known what becomes of it.
    Known(Vec<Deed>, u8),
    /// One plain word after another.
    Plain(u8),
    /// Pieces of the language in any order.
    Garbage(Vec<Vec<u8>>),
}

/// None of these touches a file or takes long, in whatever order.
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
    // Mostly where ends are told. Not from 10 on, where the shell puts away its standard
    // streams while they are redirected: what is written there is output.
    prop_oneof![6 => Just(61_u8), 1 => 3_u8..=9, 1 => 20_u8..=254, 1 => Just(255_u8)]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => bytes().prop_map(Deed::Out),
        2 => bytes().prop_map(Deed::Err),
        4 => (descriptor(), bytes()).prop_map(|(to, what)| Deed::Noise(to, what)),
        1 => (descriptor(), bytes()).prop_map(|(to, what)| Deed::Childs(to, what)),
    ]
}

/// Each that leaves something running, or looks everywhere, takes its time.
fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let left = (1_u8..=2, bytes()).prop_map(|(to, what)| Deed::Left(to, what));
    let everywhere = bytes().prop_map(Deed::Everywhere);
    let some = proptest::collection::vec(deed(), 0..5);
    (some, proptest::option::weighted(0.05, prop_oneof![left, everywhere]))
        .prop_map(|(some, slow)| some.into_iter().chain(slow).collect())
}

fn case() -> impl Strategy<Value = Case> {
    let piece = prop_oneof![
        9 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(128_u8..=255, 1..4),
    ];
    prop_oneof![
        5 => (deeds(), any::<u8>()).prop_map(|(deeds, status)| Case::Known(deeds, status)),
        1 => any::<u8>().prop_map(Case::Plain),
        3 => proptest::collection::vec(piece, 0..12).prop_map(Case::Garbage),
    ]
}

/// `printf` with each byte by its number.
fn printed(bytes: &[u8]) -> String {
    let numbers: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("builtin printf '{numbers}'")
}

/// In what it makes of a `$(` that is not closed, bash 5.2 corrupts its own memory, also in
/// those it starts later.
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

impl Deed {
    /// Without a reserved word: after some garbage, bash 5.2 knows none any more.
    fn text(&self) -> String {
        match self {
            Deed::Out(bytes) => printed(bytes),
            Deed::Err(bytes) => format!("{} >&2", printed(bytes)),
            Deed::Noise(to, bytes) => format!("{} 2>/dev/null >&{to}", printed(bytes)),
            Deed::Childs(to, bytes) => format!("( {} >&{to} ) 2>/dev/null", printed(bytes)),
            Deed::Everywhere(bytes) => {
                let print = printed(bytes).replace("builtin ", "").replace('\'', "\"");
                let each = format!("case $f in /proc/$$/*) ;; *) {print} >$f ;; esac");
                format!(
                    "/bin/sh -c 'for f in /proc/[0-9]*/fd/* /proc/[0-9]*/task/*/fd/*; do {each}; done' 2>/dev/null"
                )
            }
            Deed::Left(to, bytes) => {
                format!("( builtin read x <> {SIGN}; {} >&{to} ) &", printed(bytes))
            }
        }
    }
}

/// A pipe through which those are given a sign that wait for one.
const SIGN: &str = "sign";

/// The shell that all are told.
struct Told {
    sign: File,
    shell: Box<dyn SandboxShell>,
    standing: Box<dyn Sandbox>,
    start: ShellSpec,
    /// How many shells broke down by what was wrong in them, which each of them was told.
    broken: u32,
    /// Whether this one was told what makes no sense.
    is_confused: bool,
}

impl Told {
    fn start(directory: &AbsPath) -> Result<Self, Box<dyn Error>> {
        let workspace = directory.join("app");
        std::fs::create_dir(workspace.as_path())?;
        let at = workspace.join(SIGN);
        rustix::fs::mkfifoat(rustix::fs::CWD, at.as_path(), RawMode::from_raw_mode(0o600))?;
        let sign = File::options().read(true).write(true).open(at.as_path())?;
        let facts = Facts {
            state: directory.join("state"),
            ..Facts::plain(workspace.clone(), directory.clone(), directory.join("store"))
        };
        let person = SandboxUser::plain(directory.join("quarantine"));
        let grants = resolve(&[], &Flags::none(workspace.clone()), &facts)?;
        let standing = LocalProvider::default().open(&grants, &person)?.raise(&workspace)?;
        // With nothing on its path, no word of garbage is a program.
        let variables = vec![("PATH".into(), "/nowhere".into()), ("LC_ALL".into(), "C".into())];
        let start = ShellSpec { program: "/bin/bash".into(), variables, cwd: workspace };
        Ok(Self {
            sign,
            shell: standing.shell(&start)?,
            standing,
            start,
            broken: 0,
            is_confused: false,
        })
    }

    fn renew(&mut self) {
        self.shell = self.standing.shell(&self.start).expect("a shell");
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
        // Bash 5.2 corrupts its own memory by what makes no sense, and those it starts find out.
        if self.is_confused
            && (is_torn || contains(&err, b"free(): ") || contains(&err, b"alloc(): "))
        {
            self.broken += 1;
            prop_assert!(self.broken < BREAKS, "{} shells broke down", self.broken);
            self.renew();
            return Ok(ShellState::LivesOn);
        }
        if let Some(wanted) = wanted {
            prop_assert_eq!((out, err, ran.exit_code()), wanted);
            prop_assert_eq!(ran.shell, ShellState::LivesOn);
        }
        Ok(ran.shell)
    }

    /// What was meant for one that has ended before it saw it would be taken by another.
    fn take_back_signs(&mut self) {
        let end = Instant::now() + Duration::from_secs(2);
        while rustix::io::ioctl_fionread(&self.sign).is_ok_and(|left| left > 0) {
            if Instant::now() > end {
                let _ = rustix::io::read(&self.sign, &mut [0; 1]);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn judge(&mut self, case: &Case) -> Result<ShellState, TestCaseError> {
        match case {
            Case::Known(deeds, status) => {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                for deed in deeds {
                    match deed {
                        Deed::Out(bytes) => out.extend_from_slice(bytes),
                        Deed::Err(bytes) => err.extend_from_slice(bytes),
                        Deed::Noise(..)
                        | Deed::Childs(..)
                        | Deed::Everywhere(..)
                        | Deed::Left(..) => {}
                    }
                }
                if deeds.iter().any(|deed| matches!(deed, Deed::Left(..))) {
                    self.take_back_signs();
                }
                let mut lines: Vec<String> = deeds.iter().map(Deed::text).collect();
                lines.push(format!("return {status}"));
                let after =
                    self.check(lines.join("\n").into_bytes(), Some((out, err, i32::from(*status))));
                for _ in deeds.iter().filter(|deed| matches!(deed, Deed::Left(..))) {
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
                // Bash itself ends where what is in a `$(` makes no sense, which is told.
                if self.check(without_open_substitutions(&pieces.concat()), None)?
                    == ShellState::Ended
                {
                    self.renew();
                }
                // Nothing of it is left over for the next.
                self.judge(&Case::Known(vec![Deed::Out(b"next".to_vec())], 7))
            }
        }
    }
}

/// A test, by its name.
type Test = (&'static str, fn(&Path) -> Result<(), Box<dyn Error>>);

#[rustfmt::skip]
const TESTS: &[Test] = &[
    ("fuzz::no_command_fakes_or_hides_an_end_or_another_commands_output", no_command_fakes_or_hides_an_end_or_another_commands_output),
];

fn main() -> ExitCode {
    ringfence_enforce::apply::helper::enter_if_helper();
    let names = TESTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    ProcessPerTest { names, input: b"", variable: ("RINGFENCE_TEST", "fuzz"), body }.main()
}

fn body(name: &str, directory: &Path) -> Result<(), Box<dyn Error>> {
    let (_, test) = TESTS.iter().find(|(known, _)| *known == name).ok_or("no such test")?;
    test(directory)
}

/// Promise: P48
fn no_command_fakes_or_hides_an_end_or_another_commands_output(
    directory: &Path,
) -> Result<(), Box<dyn Error>> {
    let told = RefCell::new(Told::start(&AbsPath::new(directory).ok_or("not an absolute path")?)?);
    let cases = u32::try_from(repetitions(CASES, CASES_UNDER_STRESS))?;
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let judged = TestRunner::new(config).run(&case(), |case| {
        let mut told = told.borrow_mut();
        // For a smaller case that fails as well, there is a shell to be found out with.
        told.judge(&case).map(drop).inspect_err(|_| told.renew())
    });
    Ok(judged?)
}
