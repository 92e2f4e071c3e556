//! Lists and pipelines.

use super::reader::{LineReader, ReadResult, TakeResult, is_separator};

/// Reserved words at the start of a command.
pub(super) const RESERVED: &[&str] = &[
    "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "in", "select", "function", "coproc", "time", "{", "}", "!", "[[", "]]",
];
/// Reserved words that end a list.
const CLOSING: &[&str] = &["then", "elif", "else", "fi", "do", "done", "esac", "}"];

impl LineReader<'_> {
    /// Parses a list up to the end of the text.
    pub(super) fn list_until_end(&mut self) -> ReadResult<()> {
        self.list().map(drop)
    }

    /// Parses commands in sequence, up to a token that cannot begin one. Returns their number.
    pub(super) fn list(&mut self) -> ReadResult<usize> {
        let mut count = 0;
        loop {
            self.skip_newlines()?;
            if self.is_over() {
                return Ok(count);
            }
            self.and_or()?;
            count += 1;
            self.skip_blanks()?;
            let goes_on = match (self.peek(), self.peek_second()) {
                (Some(';'), Some(';' | '&')) => false,
                (Some(';' | '&'), _) => self.bump().is_some(),
                (Some('\n'), _) => true,
                _ => false,
            };
            if !goes_on {
                return Ok(count);
            }
        }
    }

    /// Parses a list that must not be empty.
    pub(super) fn nonempty_list(&mut self) -> ReadResult<()> {
        match self.list()? {
            0 => Err(self.problem("an empty command list")),
            _ => Ok(()),
        }
    }

    pub(super) fn skip_newlines(&mut self) -> ReadResult<()> {
        loop {
            self.skip_blanks()?;
            if self.newline()? == TakeResult::Nothing {
                return Ok(());
            }
        }
    }

    /// True if no command can begin here.
    fn is_over(&mut self) -> bool {
        match self.peek() {
            None | Some(')' | ';') => true,
            _ => self.reserved().is_some_and(|word| CLOSING.contains(&word)),
        }
    }

    /// The reserved word at this position, if any.
    pub(super) fn reserved(&mut self) -> Option<&'static str> {
        self.peek();
        let rest = self.rest();
        let word = &rest[..rest.find(is_separator).unwrap_or(rest.len())];
        RESERVED.iter().find(|reserved| **reserved == word).copied()
    }

    /// Consumes a reserved word if it is next.
    pub(super) fn take_reserved(&mut self, word: &str) -> TakeResult {
        if self.reserved() == Some(word) {
            self.at += word.len();
            TakeResult::It
        } else {
            TakeResult::Nothing
        }
    }

    /// Consumes a reserved word, or fails.
    pub(super) fn expect_reserved(&mut self, word: &str) -> ReadResult<()> {
        match self.take_reserved(word) {
            TakeResult::It => Ok(()),
            TakeResult::Nothing => Err(self.problem(format!("`{word}` is missing"))),
        }
    }

    fn and_or(&mut self) -> ReadResult<()> {
        self.pipeline()?;
        loop {
            self.skip_blanks()?;
            if !self.take_all("&&").is_taken() && !self.take_all("||").is_taken() {
                return Ok(());
            }
            self.skip_newlines()?;
            self.pipeline()?;
        }
    }

    fn pipeline(&mut self) -> ReadResult<()> {
        loop {
            self.skip_blanks()?;
            match self.reserved() {
                Some("!") => self.at += 1,
                Some("time") => self.time()?,
                _ => break,
            }
        }
        self.command()?;
        loop {
            self.skip_blanks()?;
            if self.peek() != Some('|') || self.peek_second() == Some('|') {
                return Ok(());
            }
            self.bump();
            if self.peek() == Some('&') {
                self.require_bash("`|&`")?;
                self.bump();
            }
            self.skip_newlines()?;
            self.command()?;
        }
    }

    /// Parses the reserved word `time`, which is not the program of that name.
    fn time(&mut self) -> ReadResult<()> {
        self.require_bash("`time`")?;
        self.at += "time".len();
        for option in ["-p", "--"] {
            self.skip_blanks()?;
            let rest = self.rest();
            if rest.strip_prefix(option).is_some_and(|rest| rest.starts_with(is_separator)) {
                self.at += option.len();
            }
        }
        Ok(())
    }
}
