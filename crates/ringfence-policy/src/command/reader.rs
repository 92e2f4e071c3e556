//! A text, and how far it has been read.
//!
//! Everything that looks at the next character goes through [`Reader::peek`], which takes away a
//! backslash before a newline as a shell does, wherever it is not quoted.

use std::ops::Range;

use super::heredoc::Pending;
use super::simple::Simple;
use super::{Dialect, LONGEST, Part, Problem, Way};
use crate::words::is_hidden;

/// How deep substitutions and strings in strings may go.
const DEEPEST: usize = 40;
/// How many parts a line may have.
const MOST: usize = 10_000;
/// How many doubts are told.
const MOST_DOUBTS: usize = 100;

/// What was found so far, in this text and all that was read because of it.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) parts: Vec<Part>,
    pub(super) doubts: Vec<Problem>,
    pub(super) functions: Vec<String>,
    pub(super) bindings: Vec<super::Binding>,
    /// Bytes of strings that were read because something would run them.
    followed: usize,
}

/// Where in the line a text stands.
#[derive(Debug, Clone)]
pub(super) enum Ground {
    /// From this byte on, as it is.
    From(usize),
    /// Somewhere in here: quotes or escapes were taken away.
    Within(Range<usize>),
}

pub(super) struct Reader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) ground: Ground,
    pub(super) dialect: Dialect,
    pub(super) way: Way,
    pub(super) depth: usize,
    pub(super) pending: Vec<Pending>,
    /// Whether a text around this one waits for the body of a here-document.
    pub(super) outer_waits: Waits,
    pub(super) found: &'a mut Found,
}

/// Whether somebody waits for a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    Nobody,
    Somebody,
}

pub(super) type Read<T> = Result<T, Problem>;

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, dialect: Dialect, found: &'a mut Found) -> Read<Self> {
        if text.len() > LONGEST {
            return Err(Problem {
                position: LONGEST,
                reason: "the line is too long to be read".into(),
            });
        }
        let reader = Self {
            text,
            at: 0,
            ground: Ground::From(0),
            dialect,
            way: Way::Plain,
            depth: 0,
            pending: Vec::new(),
            outer_waits: Waits::Nobody,
            found,
        };
        reader.check_characters()?;
        Ok(reader)
    }

    /// bash drops or misreads these wherever they stand.
    fn check_characters(&self) -> Read<()> {
        match self.text.find(['\0', '\u{1}', '\u{7f}']) {
            Some(at) => Err(self.problem_at(at, "a control character that shells drop or misread")),
            None => Ok(()),
        }
    }

    /// Reads another text that would be run because of this one.
    pub(super) fn inner(
        &mut self,
        text: &str,
        ground: Ground,
        dialect: Dialect,
        way: Way,
    ) -> Read<()> {
        self.found.followed += text.len();
        let mut reader = Reader {
            text,
            at: 0,
            ground,
            dialect,
            way,
            depth: self.depth,
            pending: Vec::new(),
            outer_waits: Waits::Nobody,
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
    pub(super) fn whole(&mut self) -> Read<()> {
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
    pub(super) fn deeper(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            Err(self.problem("it is nested too deeply to be read"))
        } else {
            Ok(())
        }
    }

    pub(super) fn add(&mut self, part: Part) -> Read<()> {
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
        let doubt = Problem { position, reason: reason.to_owned() };
        if self.found.doubts.len() < MOST_DOUBTS && !self.found.doubts.contains(&doubt) {
            self.found.doubts.push(doubt);
        }
    }

    pub(super) fn problem(&self, reason: impl Into<String>) -> Problem {
        self.problem_at(self.at, reason)
    }

    pub(super) fn problem_at(&self, at: usize, reason: impl Into<String>) -> Problem {
        Problem { position: self.span(at, at).start, reason: reason.into() }
    }

    /// For what bash has of its own: not every `sh` reads it alike.
    pub(super) fn bash_only(&self, what: &str) -> Read<()> {
        match self.dialect {
            Dialect::Bash => Ok(()),
            Dialect::Posix => Err(self.problem(format!("not every sh reads {what} alike"))),
        }
    }

    /// Of this text, in the line.
    pub(super) fn span(&self, start: usize, end: usize) -> Range<usize> {
        match &self.ground {
            Ground::From(base) => base + start..base + end,
            Ground::Within(span) => span.clone(),
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
    pub(super) fn take(&mut self, c: char) -> Took {
        if self.peek() == Some(c) {
            self.at += c.len_utf8();
            Took::It
        } else {
            Took::Nothing
        }
    }

    /// Takes these characters if they are next.
    pub(super) fn take_all(&mut self, characters: &str) -> Took {
        let before = self.at;
        for c in characters.chars() {
            if self.take(c) == Took::Nothing {
                self.at = before;
                return Took::Nothing;
            }
        }
        Took::It
    }

    /// Blanks and a comment.
    pub(super) fn skip_blanks(&mut self) -> Read<()> {
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
    pub(super) fn check_shown(&self, c: char) -> Read<()> {
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
    pub(super) fn finish(&mut self, simple: Simple) -> Read<()> {
        self.settle_part(simple)
    }
}

/// Whether something was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Took {
    It,
    Nothing,
}

impl Took {
    pub(super) fn it(self) -> bool {
        self == Took::It
    }
}

/// Whether a character ends a word and stands for itself between words.
pub(super) fn is_separator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}
