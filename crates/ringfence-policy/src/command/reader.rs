//! A text, and how far it has been read.
//!
//! Everything that looks at the next character goes through [`Reader::peek`], which takes away a
//! backslash before a newline as a shell does, wherever it is not quoted.

use std::ops::Range;

use super::heredoc::PendingHeredoc;
use super::simple::RawCommand;
use super::{LONGEST, ParseProblem, ReachedBy, ShellDialect, SimpleCommand};
use crate::display::is_hidden;

/// How deep substitutions and strings in strings may go.
const DEEPEST: usize = 40;
/// How many parts a line may have.
const MOST: usize = 10_000;
/// How many doubts are told.
const MOST_DOUBTS: usize = 100;

/// What was found so far, in this text and all that was read because of it.
#[derive(Debug, Default)]
pub(super) struct ParseFindings {
    pub(super) parts: Vec<SimpleCommand>,
    pub(super) doubts: Vec<ParseProblem>,
    pub(super) functions: Vec<String>,
    pub(super) bindings: Vec<super::Binding>,
    /// Bytes of strings that were read because something would run them.
    followed: usize,
}

/// Where in the line a text stands.
#[derive(Debug, Clone)]
pub(super) enum TextOrigin {
    /// From this byte on, as it is.
    From(usize),
    /// Somewhere in here: quotes or escapes were taken away.
    Within(Range<usize>),
}

pub(super) struct LineReader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) ground: TextOrigin,
    pub(super) dialect: ShellDialect,
    pub(super) way: ReachedBy,
    pub(super) depth: usize,
    pub(super) pending: Vec<PendingHeredoc>,
    /// Whether a text around this one waits for the body of a here-document.
    pub(super) outer_waits: NewlineWait,
    pub(super) found: &'a mut ParseFindings,
}

/// Whether somebody waits for a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewlineWait {
    Nobody,
    Somebody,
}

pub(super) type ReadResult<T> = Result<T, ParseProblem>;

impl<'a> LineReader<'a> {
    pub(super) fn new(
        text: &'a str,
        dialect: ShellDialect,
        found: &'a mut ParseFindings,
    ) -> ReadResult<Self> {
        if text.len() > LONGEST {
            return Err(ParseProblem {
                position: LONGEST,
                reason: "the line is too long to be read".into(),
            });
        }
        let reader = Self {
            text,
            at: 0,
            ground: TextOrigin::From(0),
            dialect,
            way: ReachedBy::Plain,
            depth: 0,
            pending: Vec::new(),
            outer_waits: NewlineWait::Nobody,
            found,
        };
        reader.check_characters()?;
        Ok(reader)
    }

    /// bash drops or misreads these wherever they stand.
    fn check_characters(&self) -> ReadResult<()> {
        match self.text.find(['\0', '\u{1}', '\u{7f}']) {
            Some(at) => Err(self.problem_at(at, "a control character that shells drop or misread")),
            None => Ok(()),
        }
    }

    /// Reads another text that would be run because of this one.
    pub(super) fn inner(
        &mut self,
        text: &str,
        ground: TextOrigin,
        dialect: ShellDialect,
        way: ReachedBy,
    ) -> ReadResult<()> {
        self.found.followed += text.len();
        let mut reader = LineReader {
            text,
            at: 0,
            ground,
            dialect,
            way,
            depth: self.depth,
            pending: Vec::new(),
            outer_waits: NewlineWait::Nobody,
            found: self.found,
        };
        reader.deeper()?;
        reader.check_characters()?;
        if reader.found.followed > LONGEST {
            return Err(reader.problem("the strings in it are too long to be read"));
        }
        reader.whole()
    }

    /// All of the text.
    pub(super) fn whole(&mut self) -> ReadResult<()> {
        self.list_until_end()?;
        match self.peek() {
            None => self.no_heredoc_left(),
            Some(c) => match self.reserved() {
                Some(word) => Err(self.problem(format!("unexpected `{word}`"))),
                None => Err(self.problem(format!("unexpected `{}`", c.escape_debug()))),
            },
        }
    }

    /// One level down; whoever comes back up subtracts one.
    pub(super) fn deeper(&mut self) -> ReadResult<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            Err(self.problem("it is nested too deeply to be read"))
        } else {
            Ok(())
        }
    }

    pub(super) fn add(&mut self, part: SimpleCommand) -> ReadResult<()> {
        if self.found.parts.len() >= MOST {
            return Err(self.problem("it has too many parts to be read"));
        }
        self.found.parts.push(part);
        Ok(())
    }

    /// A doubt about what stands at a byte of this text.
    pub(super) fn doubt(&mut self, at: usize, reason: &str) {
        self.note(self.span(at, at).start, reason);
    }

    /// A doubt about what stands at a byte of the line. One is enough for every rule, so that not
    /// all of very many are kept.
    pub(super) fn note(&mut self, position: usize, reason: &str) {
        let doubt = ParseProblem { position, reason: reason.to_owned() };
        if self.found.doubts.len() < MOST_DOUBTS && !self.found.doubts.contains(&doubt) {
            self.found.doubts.push(doubt);
        }
    }

    pub(super) fn problem(&self, reason: impl Into<String>) -> ParseProblem {
        self.problem_at(self.at, reason)
    }

    pub(super) fn problem_at(&self, at: usize, reason: impl Into<String>) -> ParseProblem {
        ParseProblem { position: self.span(at, at).start, reason: reason.into() }
    }

    /// For what bash has of its own: not every `sh` reads it alike.
    pub(super) fn bash_only(&self, what: &str) -> ReadResult<()> {
        match self.dialect {
            ShellDialect::Bash => Ok(()),
            ShellDialect::Posix => Err(self.problem(format!("not every sh reads {what} alike"))),
        }
    }

    /// Of this text, in the line.
    pub(super) fn span(&self, start: usize, end: usize) -> Range<usize> {
        match &self.ground {
            TextOrigin::From(base) => base + start..base + end,
            TextOrigin::Within(span) => span.clone(),
        }
    }

    /// What is left, as it stands.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Takes away backslashes before newlines.
    fn settle(&mut self) {
        while self.rest().starts_with("\\\n") {
            self.at += 2;
        }
    }

    /// The next character.
    pub(super) fn peek(&mut self) -> Option<char> {
        self.settle();
        self.rest().chars().next()
    }

    /// The one after it.
    pub(super) fn peek_second(&mut self) -> Option<char> {
        let first = self.peek()?;
        let rest = &self.rest()[first.len_utf8()..];
        rest.trim_start_matches("\\\n").chars().next()
    }

    /// The next character as it stands.
    pub(super) fn peek_raw(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes the next character.
    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Takes `c` if it is next.
    pub(super) fn take(&mut self, c: char) -> TakeResult {
        if self.peek() == Some(c) {
            self.at += c.len_utf8();
            TakeResult::It
        } else {
            TakeResult::Nothing
        }
    }

    /// Takes these characters if they are next.
    pub(super) fn take_all(&mut self, characters: &str) -> TakeResult {
        let before = self.at;
        for c in characters.chars() {
            if self.take(c) == TakeResult::Nothing {
                self.at = before;
                return TakeResult::Nothing;
            }
        }
        TakeResult::It
    }

    /// Blanks and a comment.
    pub(super) fn skip_blanks(&mut self) -> ReadResult<()> {
        let mut is_word_start =
            self.at == 0 || !self.text[..self.at].ends_with(|c: char| !is_separator(c));
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' => {
                    self.at += 1;
                    is_word_start = true;
                }
                '#' if is_word_start => {
                    let end = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.at += end;
                    break;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Refuses what does not show, or shows as a space and is none.
    pub(super) fn check_shown(&self, c: char) -> ReadResult<()> {
        match c {
            '\n' | '\t' | ' ' => Ok(()),
            _ if is_hidden(c) || c.is_whitespace() => Err(self.problem(format!(
                "U+{:04X} does not show, or shows as a space and is none",
                u32::from(c)
            ))),
            _ => Ok(()),
        }
    }

    /// A command that was read to its end: what it runs is followed.
    pub(super) fn finish(&mut self, simple: RawCommand) -> ReadResult<()> {
        self.settle_part(simple)
    }
}

/// Whether something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeResult {
    It,
    Nothing,
}

impl TakeResult {
    pub(super) fn it(self) -> bool {
        self == TakeResult::It
    }
}

/// Whether a character ends a word and stands for itself between words.
pub(super) fn is_separator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}
