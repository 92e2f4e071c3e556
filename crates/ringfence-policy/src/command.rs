//! Command lines: what a shell would run, read without running anything.
//!
//! A [`Line`] is read by a strict parser of the shell's grammar. Its [`Part`]s are all the simple
//! commands that stand in it, wherever they stand: in pipelines, substitutions, functions, and in
//! the strings that `eval` and `sh -c` are given. Rules on the text of commands are asked about
//! parts, never about the text as such.
//!
//! The parser must never believe that it knows what a shell reads differently. Whatever it does
//! not know for certain is a [`Problem`], a word that is not literal, or a doubt, and whoever asks
//! about the line has to take it for the worst.

mod arguments;
mod arithmetic;
mod compound;
mod condition;
mod decode;
mod doubt;
mod excluded;
mod expand_word;
mod expansion;
mod follow;
mod globs_and_braces;
mod guard;
mod guess;
mod heredoc;
mod input;
mod lists;
mod options;
mod output;
mod pattern;
mod reader;
mod sandbox;
mod sed;
mod shell;
mod simple;
mod strings;
mod unwrap;
mod variables;
mod word;
mod wrappers;

use std::fmt;
use std::ops::Range;

pub use excluded::{Exclusion, excluded};
pub use guard::{GuardRefusal, GuardRuling, STRICT_ARGUMENTS, STRICT_BINARIES, UNREADABLE};
pub use pattern::CommandPattern;
pub use sandbox::{
    Platform, RunConsent, SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings,
    SandboxWish, UnsandboxedReason, should_use_sandbox,
};
pub use variables::leads_elsewhere;
pub use word::{ShellWord, UnknownWord};

use reader::LineReader;

/// The longest text that is read, in bytes.
pub const LONGEST: usize = 256 * 1024;

/// A command line and what a shell would run of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLine {
    /// As it was written.
    pub text: String,
    /// Every simple command in it, whether it would be reached or not.
    pub parts: Vec<SimpleCommand>,
    /// What could make a shell run something that is not among the parts.
    pub doubts: Vec<ParseProblem>,
    /// The functions that it defines.
    pub functions: Vec<String>,
    /// The variables that it assigns.
    pub(crate) bindings: Vec<Binding>,
}

/// A variable and the words that the line assigns to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) name: String,
    /// As they are written, quotes included.
    pub(crate) raws: Vec<String>,
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Where it stands in the line; for one out of a string, where the string stands.
    pub span: Range<usize>,
    /// What is assigned in front of it or by one of its wrappers.
    pub assignments: Vec<Assignment>,
    /// The words as they stand, then what is left after each wrapper was taken away. Never
    /// empty, but the words of a mere assignment or redirection are.
    pub layers: Vec<UnwrappedCommand>,
    /// Where its streams are led.
    pub redirects: Vec<Redirect>,
    /// How a shell comes to it.
    pub way: ReachedBy,
}

impl SimpleCommand {
    /// Program and arguments, without wrappers.
    pub fn words(&self) -> &[ShellWord] {
        self.layers.last().map_or(&[], |layer| layer.words.as_slice())
    }

    /// The wrappers that were taken away, outermost first, each with its options.
    pub fn stripped(&self) -> impl Iterator<Item = &str> + '_ {
        self.layers.iter().skip(1).map(|layer| layer.wrapper.as_str())
    }

    /// As somebody would write it, without wrappers.
    pub fn shown(&self) -> String {
        word::shown(self.words())
    }
}

/// A command with some of its wrappers taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwrappedCommand {
    /// The wrapper that was taken away last, with its options; empty for the first layer.
    pub wrapper: String,
    /// Program and arguments.
    pub words: Vec<ShellWord>,
    /// Whether it runs as if the wrappers around it were not there: with the same rights, and
    /// the same program.
    pub is_plain: bool,
}

/// `NAME=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Where it stands.
    pub span: Range<usize>,
    /// The variable.
    pub name: String,
}

/// Where a stream is led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Where it stands.
    pub span: Range<usize>,
    /// Which stream, if that is said: a number, or `{name}`.
    pub descriptor: String,
    /// `<`, `>>`, `<<<` and so on.
    pub operator: String,
    /// The file, the descriptor, or the text.
    pub target: ShellWord,
}

/// How a shell comes to a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReachedBy {
    /// It stands in the line.
    Plain,
    /// Its output becomes part of a word: `$(…)`, `` `…` ``.
    Substitution,
    /// A word leads to its input or output: `<(…)`, `>(…)`.
    ProcessSubstitution,
    /// It is the body of a function.
    Function,
    /// It stands in a string or in arguments that another part runs.
    Followed,
}

impl ReachedBy {
    /// The word for it in messages.
    pub fn word(self) -> &'static str {
        match self {
            ReachedBy::Plain => "plain",
            ReachedBy::Substitution => "substitution",
            ReachedBy::ProcessSubstitution => "process-substitution",
            ReachedBy::Function => "function",
            ReachedBy::Followed => "followed",
        }
    }
}

/// Why a line, or a place in it, cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseProblem {
    /// Where, in bytes from the start of the line.
    pub position: usize,
    /// What is there.
    pub reason: String,
}

impl fmt::Display for ParseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.reason, self.position + 1)
    }
}

impl std::error::Error for ParseProblem {}

/// Whose grammar counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellDialect {
    /// bash, as it runs a script.
    Bash,
    /// What every `sh` reads alike: some are bash, some are not.
    Posix,
}

impl ParsedLine {
    /// Reads a line as bash would.
    pub fn parse(text: &str) -> Result<Self, ParseProblem> {
        Self::parse_as(text, ShellDialect::Bash)
    }

    /// Reads a line as a shell of this kind would.
    pub fn parse_as(text: &str, dialect: ShellDialect) -> Result<Self, ParseProblem> {
        let mut found = reader::ParseFindings::default();
        LineReader::new(text, dialect, &mut found)?.whole()?;
        Ok(Self::from_found(text.to_owned(), found))
    }

    /// A command of which the words are known, which no shell reads. The text is what somebody
    /// would type for it, and spans are those of the text.
    pub fn of_words<S: AsRef<str>>(words: &[S]) -> Result<Self, ParseProblem> {
        let words = words.iter().map(|word| ShellWord::literal_of(word.as_ref(), 0..0)).collect();
        Self::from_words(words)
    }

    /// The same for words of which not everything is known.
    pub(crate) fn from_words(words: Vec<ShellWord>) -> Result<Self, ParseProblem> {
        let mut text = String::new();
        let mut placed = Vec::new();
        for word in words {
            if !text.is_empty() {
                text.push(' ');
            }
            let start = text.len();
            word::quote(&word.raw, &mut text);
            placed.push(ShellWord { span: start..text.len(), ..word });
        }
        if let Some(position) = text.find('\0') {
            return Err(ParseProblem {
                position,
                reason: "a NUL character ends a word in the middle".into(),
            });
        }
        let mut found = reader::ParseFindings::default();
        let part = simple::RawCommand {
            span: 0..text.len(),
            words: placed,
            ..simple::RawCommand::default()
        };
        LineReader::new("", ShellDialect::Bash, &mut found)?.finish(part)?;
        Ok(Self { functions: Vec::new(), ..Self::from_found(text, found) })
    }

    fn from_found(text: String, found: reader::ParseFindings) -> Self {
        Self {
            text,
            parts: found.parts,
            doubts: found.doubts,
            functions: found.functions,
            bindings: found.bindings,
        }
    }
}
