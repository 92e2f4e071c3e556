//! Parser for shell command lines. It runs nothing.
//!
//! [`ParsedLine`] comes from a strict parser of the shell grammar. Its parts are all simple
//! commands in the line: in pipelines, substitutions, functions, and in the strings passed to
//! `eval` and `sh -c`. Rules on command text apply to the parts, never to the raw text.
//!
//! The parser must never claim to know something that a shell reads differently. Anything uncertain
//! becomes a [`ParseProblem`], a word that is not literal, or a doubt, and the caller must assume
//! the worst.
//!
//! The guard rules of a policy ([`find_refusal`]) and the exclusions ([`check_exclusion`]) apply to
//! a parsed line. `ringfence-policy` holds the rules; this crate applies them.
//!
//! The crate is pure, like `ringfence-policy`.
#![forbid(unsafe_code)]

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

pub use excluded::{Exclusion, check_exclusion};
pub use guard::{
    GuardRefusal, GuardRuling, UNREADABLE, check_each_rule, find_doubt, find_refusal,
    parse_for_rules,
};
pub use pattern::CommandPattern;
pub use sandbox::{
    RunConsent, SandboxAbility, SandboxChoice, SandboxQuery, SandboxSettings, SandboxWish,
    UnsandboxedReason, should_use_sandbox,
};
pub use variables::can_redirect_program;
pub use word::{ShellWord, UnknownWord};

use reader::LineReader;

/// Maximum length of a command line, in bytes.
pub const MAX_LINE_BYTES: usize = 256 * 1024;

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedLine {
    /// The original text.
    pub text: String,
    /// All simple commands in the line, including unreachable ones.
    pub parts: Vec<SimpleCommand>,
    /// Constructs that may make a shell run something that is not among the parts.
    pub doubts: Vec<ParseProblem>,
    /// Names of the functions that the line defines.
    pub functions: Vec<String>,
    /// Variables that the line assigns.
    pub(crate) bindings: Vec<Binding>,
}

/// A variable and the words that the line assigns to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) name: String,
    /// The words with their quotes.
    pub(crate) raws: Vec<String>,
}

/// One simple command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimpleCommand {
    /// Position in the line. For a command from a string, the position of the string.
    pub span: Range<usize>,
    /// Assignments in front of the command or made by one of its wrappers.
    pub assignments: Vec<Assignment>,
    /// The words as written, then the words left after each wrapper is removed. Never empty, but a
    /// bare assignment or redirection has a layer without words.
    pub layers: Vec<UnwrappedCommand>,
    /// Redirections of the command.
    pub redirects: Vec<Redirect>,
    /// Construct through which a shell reaches the command.
    pub reached_by: ReachedBy,
}

impl SimpleCommand {
    /// Program and arguments, without wrappers.
    pub fn words(&self) -> &[ShellWord] {
        self.layers.last().map_or(&[], |layer| layer.words.as_slice())
    }

    /// The removed wrappers with their options, outermost first.
    pub fn wrappers(&self) -> impl Iterator<Item = &str> + '_ {
        self.layers.iter().skip(1).map(|layer| layer.wrapper.as_str())
    }

    /// The command without wrappers, quoted for a shell.
    pub fn to_shell_text(&self) -> String {
        word::join_quoted(self.words())
    }
}

/// A command with some of its wrappers removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwrappedCommand {
    /// The wrapper removed last, with its options; empty for the first layer.
    pub wrapper: String,
    /// Program and arguments.
    pub words: Vec<ShellWord>,
    /// True if the wrappers around the command change neither its privileges nor its program.
    pub is_plain: bool,
}

/// `NAME=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Position in the line.
    pub span: Range<usize>,
    /// Name of the variable.
    pub name: String,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// Position in the line.
    pub span: Range<usize>,
    /// The fd as written: a number, `{name}`, or empty.
    pub descriptor: String,
    /// The operator: `<`, `>>`, `<<<` and so on.
    pub operator: String,
    /// The file, the fd, or the text.
    pub target: ShellWord,
}

/// Construct through which a shell reaches a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReachedBy {
    /// Directly in the line.
    Plain,
    /// A command substitution: `$(…)`, `` `…` ``.
    Substitution,
    /// A process substitution: `<(…)`, `>(…)`.
    ProcessSubstitution,
    /// The body of a function.
    Function,
    /// A string or arguments that another part runs.
    Followed,
}

impl ReachedBy {
    /// The name of the construct in messages.
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

/// A place in a line that cannot be parsed, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseProblem {
    /// Byte offset in the line.
    pub position: usize,
    /// The construct at that position.
    pub reason: String,
}

impl fmt::Display for ParseProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {})", self.reason, self.position + 1)
    }
}

impl std::error::Error for ParseProblem {}

/// Shell grammar to parse with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellDialect {
    /// bash running a script.
    Bash,
    /// The common subset of all `sh` implementations, bash or not.
    Posix,
}

impl ParsedLine {
    /// Parses a line as bash.
    pub fn parse(text: &str) -> Result<Self, ParseProblem> {
        Self::parse_as(text, ShellDialect::Bash)
    }

    /// Parses a line in the given dialect.
    pub fn parse_as(text: &str, dialect: ShellDialect) -> Result<Self, ParseProblem> {
        let mut found = reader::ParseFindings::default();
        LineReader::new(text, dialect, &mut found)?.parse_all()?;
        Ok(Self::from_found(text.to_owned(), found))
    }

    /// Builds a line from literal words that no shell parses. The text is the quoted form of the
    /// words, and spans refer to it.
    pub fn from_literal_words<S: AsRef<str>>(words: &[S]) -> Result<Self, ParseProblem> {
        let words = words.iter().map(|word| ShellWord::from_literal(word.as_ref(), 0..0)).collect();
        Self::from_words(words)
    }

    /// Builds a line from words that may be partly unknown.
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
            return Err(ParseProblem { position, reason: "a NUL character inside a word".into() });
        }
        let mut found = reader::ParseFindings::default();
        let part = simple::RawCommand {
            span: 0..text.len(),
            words: placed,
            ..simple::RawCommand::default()
        };
        LineReader::new("", ShellDialect::Bash, &mut found)?.finish_command(part)?;
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
