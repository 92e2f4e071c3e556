//! Whatever a command says, and wherever: its end is told once, with its own status and its
//! own output.

use std::cell::RefCell;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use ringfence_api::{Afterwards, Line, Status};
use ringfence_enforce::Person;
use ringfence_local::Local;
use ringfence_policy::{AbsPath, Facts, Flags, Mode, resolve};
use ringfence_provider::{Provider, Shell, ShellStart, Standing};

const CASES: u32 = 10_000;

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

/// None of these touches a file or takes long, in whatever order. There is no `$(`: where one
/// is not closed, bash 5.2 corrupts its own memory, and whatever it does then is told truly
/// but cannot be foreseen.
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
    " && ",
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
    // streams while they are redirected: what is written there is output. Nor where whoever
    // runs this test may have left something of its own.
    prop_oneof![6 => Just(61_u8), 1 => 55_u8..=64, 1 => Just(255_u8)]
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        3 => bytes().prop_map(Deed::Out),
        2 => bytes().prop_map(Deed::Err),
        4 => (descriptor(), bytes()).prop_map(|(to, what)| Deed::Noise(to, what)),
        1 => (descriptor(), bytes()).prop_map(|(to, what)| Deed::Childs(to, what)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let piece = prop_oneof![
        9 => proptest::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => proptest::collection::vec(128_u8..=255, 1..4),
    ];
    prop_oneof![
        5 => (proptest::collection::vec(deed(), 0..5), any::<u8>()).prop_map(|(deeds, status)| Case::Known(deeds, status)),
        1 => any::<u8>().prop_map(Case::Plain),
        3 => proptest::collection::vec(piece, 0..12).prop_map(Case::Garbage),
    ]
}

/// `printf` with each byte by its number.
fn printed(bytes: &[u8]) -> String {
    let numbers: String = bytes.iter().map(|byte| format!("\\{byte:03o}")).collect();
    format!("builtin printf '{numbers}'")
}

impl Deed {
    /// Without a reserved word: after some garbage, bash 5.2 knows none any more.
    fn text(&self) -> String {
        match self {
            Deed::Out(bytes) => printed(bytes),
            Deed::Err(bytes) => format!("{} >&2", printed(bytes)),
            Deed::Noise(to, bytes) => format!("{} 2>/dev/null >&{to}", printed(bytes)),
            Deed::Childs(to, bytes) => format!("( {} >&{to} ) 2>/dev/null", printed(bytes)),
        }
    }
}

/// The shell that all are told.
struct Told {
    shell: Box<dyn Shell>,
    standing: Box<dyn Standing>,
    start: ShellStart,
    /// How many shells broke down by what was wrong in them, which each of them was told.
    broken: u32,
    /// Whether this one was told what makes no sense.
    is_confused: bool,
}

impl Told {
    fn start(directory: &AbsPath) -> Self {
        let facts = Facts { state: directory.join("state"), ..Facts::plain(directory.clone(), directory.clone(), directory.join("store")) };
        let person = Person::plain(directory.join("quarantine"));
        let flags = Flags { mode: Some(Mode::FullAccess), ..Flags::none(directory.clone()) };
        let grants = resolve(&[], &flags, &facts).expect("the built-in policy");
        let standing = Local::default().open(&grants, &person).and_then(|mut session| session.raise(directory)).expect("a place");
        // With nothing on its path, no word of garbage is a program.
        let variables = vec![("PATH".into(), "/nowhere".into()), ("LC_ALL".into(), "C".into())];
        let start = ShellStart { program: "/bin/bash".into(), variables, cwd: directory.clone() };
        Self { shell: standing.shell(&start).expect("a shell"), standing, start, broken: 0, is_confused: false }
    }

    fn renew(&mut self) {
        self.shell = self.standing.shell(&self.start).expect("a shell");
        self.is_confused = false;
    }

    fn check(&mut self, text: Vec<u8>, wanted: Option<(Vec<u8>, Vec<u8>, i32)>) -> Result<Afterwards, TestCaseError> {
        let line = Line { deadline: Some(Duration::from_secs(10)), ..Line::new(text) };
        let mut streamed = 0;
        let ran = self.shell.execute(&line, &mut |_, bytes| streamed += bytes.len());
        let ran = ran.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(!ran.timed_out);
        let (out, err) = (ran.stdout.bytes(), ran.stderr.bytes());
        prop_assert_eq!(streamed, out.len() + err.len());
        if self.is_confused && matches!(ran.status, Status::Killed(libc::SIGABRT | libc::SIGSEGV)) {
            // Bash 5.2 corrupts its own memory where a `$(` is not closed. That it has ended is told.
            prop_assert_eq!(ran.shell, Afterwards::Ended);
            self.broken += 1;
            prop_assert!(self.broken < BREAKS, "{} shells broke down", self.broken);
            self.renew();
            return Ok(Afterwards::LivesOn);
        }
        if let Some(wanted) = wanted {
            prop_assert_eq!((out, err, ran.exit_code()), wanted);
            prop_assert_eq!(ran.shell, Afterwards::LivesOn);
        }
        Ok(ran.shell)
    }

    fn judge(&mut self, case: &Case) -> Result<Afterwards, TestCaseError> {
        match case {
            Case::Known(deeds, status) => {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                for deed in deeds {
                    match deed {
                        Deed::Out(bytes) => out.extend_from_slice(bytes),
                        Deed::Err(bytes) => err.extend_from_slice(bytes),
                        Deed::Noise(..) | Deed::Childs(..) => {}
                    }
                }
                let mut lines: Vec<String> = deeds.iter().map(Deed::text).collect();
                lines.push(format!("return {status}"));
                self.check(lines.join("\n").into_bytes(), Some((out, err, i32::from(*status))))
            }
            Case::Plain(word) => self.check(format!("echo {word}").into_bytes(), Some((format!("{word}\n").into_bytes(), Vec::new(), 0))),
            Case::Garbage(pieces) => {
                self.is_confused = true;
                // Bash itself ends where what is in a `$(` makes no sense, which is told.
                if self.check(pieces.concat(), None)? == Afterwards::Ended {
                    self.renew();
                }
                // Nothing of it is left over for the next.
                self.judge(&Case::Known(vec![Deed::Out(b"next".to_vec())], 7))
            }
        }
    }
}

#[test]
fn no_command_fakes_or_hides_an_end_or_another_commands_output() {
    let directory = AbsPath::new(std::env::current_dir().expect("we are somewhere")).expect("an absolute path");
    let told = RefCell::new(Told::start(&directory));
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let judged = TestRunner::new(config).run(&case(), |case| {
        let mut told = told.borrow_mut();
        // For a smaller case that fails as well, there is a shell to be found out with.
        told.judge(&case).map(drop).inspect_err(|_| told.renew())
    });
    judged.expect("every end is told as it was");
}
