//! Cursor over the text of a line.
//!
//! All lookahead goes through [`LineReader::peek`]. It removes an unquoted backslash before a
//! newline, as a shell does.

use std::ops::Range;

use super::heredoc::PendingHeredoc;
use super::simple::RawCommand;
use super::{MAX_LINE_BYTES, ParseProblem, ReachedBy, ShellDialect, SimpleCommand};
use ringfence_policy::is_hidden;

/// Maximum depth of substitutions and nested strings.
const DEEPEST: usize = 40;
/// Maximum number of parts per line.
const MOST: usize = 10_000;
/// Maximum number of recorded doubts.
const MOST_DOUBTS: usize = 100;

/// Results so far, from this text and all texts nested in it.
#[derive(Debug, Default)]
pub(super) struct ParseFindings {
    pub(super) parts: Vec<SimpleCommand>,
    pub(super) doubts: Vec<ParseProblem>,
    pub(super) functions: Vec<String>,
    pub(super) bindings: Vec<super::Binding>,
    /// Bytes of nested strings parsed so far.
    followed: usize,
}

/// Position of a text in the line.
#[derive(Debug, Clone)]
pub(super) enum TextOrigin {
    /// Starts at this byte, unchanged.
    From(usize),
    /// Lies in this range, with quotes or escapes removed.
    Within(Range<usize>),
}

pub(super) struct LineReader<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) origin: TextOrigin,
    pub(super) dialect: ShellDialect,
    pub(super) way: ReachedBy,
    pub(super) depth: usize,
    pub(super) pending: Vec<PendingHeredoc>,
    /// Set when an enclosing text waits for the body of a here-document.
    pub(super) outer_waits: NewlineWait,
    pub(super) found: &'a mut ParseFindings,
}

/// Pending here-document of an enclosing text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewlineWait {
    None,
    Pending,
}

pub(super) type ReadResult<T> = Result<T, ParseProblem>;

impl<'a> LineReader<'a> {
    pub(super) fn new(
        text: &'a str,
        dialect: ShellDialect,
        found: &'a mut ParseFindings,
    ) -> ReadResult<Self> {
        if text.len() > MAX_LINE_BYTES {
            return Err(ParseProblem {
                position: MAX_LINE_BYTES,
                reason: "the line is too long to parse".into(),
            });
        }
        let reader = Self {
            text,
            at: 0,
            origin: TextOrigin::From(0),
            dialect,
            way: ReachedBy::Plain,
            depth: 0,
            pending: Vec::new(),
            outer_waits: NewlineWait::None,
            found,
        };
        reader.check_characters()?;
        Ok(reader)
    }

    /// Rejects characters that bash drops or misreads everywhere.
    fn check_characters(&self) -> ReadResult<()> {
        match self.text.find(['\0', '\u{1}', '\u{7f}']) {
            Some(at) => Err(self.problem_at(at, "a control character that shells drop or misread")),
            None => Ok(()),
        }
    }

    /// Parses another text that this one would run.
    pub(super) fn parse_nested(
        &mut self,
        text: &str,
        origin: TextOrigin,
        dialect: ShellDialect,
        way: ReachedBy,
    ) -> ReadResult<()> {
        self.found.followed += text.len();
        let mut reader = LineReader {
            text,
            at: 0,
            origin,
            dialect,
            way,
            depth: self.depth,
            pending: Vec::new(),
            outer_waits: NewlineWait::None,
            found: self.found,
        };
        reader.enter_level()?;
        reader.check_characters()?;
        if reader.found.followed > MAX_LINE_BYTES {
            return Err(reader.problem("the nested strings are too long to parse"));
        }
        reader.parse_all()
    }

    /// Parses the whole text.
    pub(super) fn parse_all(&mut self) -> ReadResult<()> {
        self.list_until_end()?;
        match self.peek() {
            None => self.no_heredoc_left(),
            Some(c) => match self.reserved() {
                Some(word) => Err(self.problem(format!("unexpected `{word}`"))),
                None => Err(self.problem(format!("unexpected `{}`", c.escape_debug()))),
            },
        }
    }

    /// Enters one nesting level. The caller decrements `depth` when it leaves.
    pub(super) fn enter_level(&mut self) -> ReadResult<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            Err(self.problem("the line is nested too deeply to parse"))
        } else {
            Ok(())
        }
    }

    pub(super) fn add(&mut self, part: SimpleCommand) -> ReadResult<()> {
        if self.found.parts.len() >= MOST {
            return Err(self.problem("the line has too many commands to parse"));
        }
        self.found.parts.push(part);
        Ok(())
    }

    /// Records a doubt at a byte of this text.
    pub(super) fn doubt(&mut self, at: usize, reason: &str) {
        self.note(self.span(at, at).start, reason);
    }

    /// Records a doubt at a byte of the line. One doubt is enough for every rule, so the number is
    /// capped.
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

    /// Rejects bash-only syntax in the POSIX dialect.
    pub(super) fn require_bash(&self, what: &str) -> ReadResult<()> {
        match self.dialect {
            ShellDialect::Bash => Ok(()),
            ShellDialect::Posix => {
                Err(self.problem(format!("sh implementations parse {what} differently")))
            }
        }
    }

    /// Converts a range of this text into a span of the line.
    pub(super) fn span(&self, start: usize, end: usize) -> Range<usize> {
        match &self.origin {
            TextOrigin::From(base) => base + start..base + end,
            TextOrigin::Within(span) => span.clone(),
        }
    }

    /// The unread text.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips backslashes before newlines.
    fn skip_line_joins(&mut self) {
        while self.rest().starts_with("\\\n") {
            self.at += 2;
        }
    }

    /// The next character.
    pub(super) fn peek(&mut self) -> Option<char> {
        self.skip_line_joins();
        self.rest().chars().next()
    }

    /// The character after the next one.
    pub(super) fn peek_second(&mut self) -> Option<char> {
        let first = self.peek()?;
        let rest = &self.rest()[first.len_utf8()..];
        rest.trim_start_matches("\\\n").chars().next()
    }

    /// The next character, without joining lines.
    pub(super) fn peek_raw(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Consumes the next character.
    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Consumes `c` if it is next.
    pub(super) fn take(&mut self, c: char) -> TakeResult {
        if self.peek() == Some(c) {
            self.at += c.len_utf8();
            TakeResult::It
        } else {
            TakeResult::Nothing
        }
    }

    /// Consumes these characters if they are next.
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

    /// Skips blanks and a comment.
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

    /// Rejects invisible characters and characters that only look like a space.
    pub(super) fn check_shown(&self, c: char) -> ReadResult<()> {
        match c {
            '\n' | '\t' | ' ' => Ok(()),
            _ if is_hidden(c) || c.is_whitespace() => Err(self.problem(format!(
                "U+{:04X} is invisible, or only looks like a space",
                u32::from(c)
            ))),
            _ => Ok(()),
        }
    }

    /// Finishes a command and follows the commands that it runs.
    pub(super) fn finish_command(&mut self, simple: RawCommand) -> ReadResult<()> {
        self.add_part(simple)
    }
}

/// Result of a conditional read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeResult {
    It,
    Nothing,
}

impl TakeResult {
    pub(super) fn is_taken(self) -> bool {
        self == TakeResult::It
    }
}

/// True if a character ends a word and is an operator between words.
pub(super) fn is_separator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}
