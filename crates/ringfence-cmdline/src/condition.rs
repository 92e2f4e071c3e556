//! Conditions: `[[ … ]]`.

use super::reader::{LineReader, ReadResult, TakeResult};
use super::word::{RawChar, ShellWord};

/// Operators that evaluate both operands as arithmetic.
const NUMERIC: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];
const BINARY: &[&str] = &["=", "==", "!=", "-ef", "-nt", "-ot"];
/// Letters of the unary tests.
const UNARY: &str = "abcdefghknoprstuvwxzGLNORS";

impl LineReader<'_> {
    /// Parses after `[[`, up to and including `]]`.
    pub(super) fn condition(&mut self, start: usize) -> ReadResult<()> {
        self.alternatives(start)?;
        match self.word()? {
            Some(word) if word.is_plain("]]") => Ok(()),
            _ => Err(self.problem_at(start, "a `[[` condition that cannot be parsed")),
        }
    }

    /// Parses tests separated by `&&` and `||`.
    fn alternatives(&mut self, start: usize) -> ReadResult<()> {
        self.enter_level()?;
        loop {
            self.skip_newlines()?;
            self.test(start)?;
            self.skip_blanks()?;
            if !self.take_all("&&").is_taken() && !self.take_all("||").is_taken() {
                break;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Parses one test.
    fn test(&mut self, start: usize) -> ReadResult<()> {
        let mut first = None;
        // `!` does not nest: any number of them may precede the test.
        while first.as_ref().is_none_or(|word: &ShellWord| word.is_plain("!"))
            && self.peek() != Some('(')
        {
            first = Some(self.operand()?);
            self.skip_blanks()?;
        }
        let Some(first) = first.filter(|word| !word.is_plain("!")) else {
            self.bump();
            self.alternatives(start)?;
            return match self.take(')') {
                TakeResult::It => Ok(()),
                TakeResult::Nothing => Err(self.problem_at(start, "unclosed parenthesis")),
            };
        };
        let is_unary = first.is_plain(&first.bare)
            && first.bare.len() == 2
            && first.bare.starts_with('-')
            && UNARY.contains(&first.bare[1..]);
        if is_unary {
            let operand = self.operand()?;
            if matches!(first.bare.as_str(), "-v" | "-R") {
                self.doubt(start, "testing if a variable is set may evaluate a subscript");
            }
            return if operand.is_plain("]]") {
                Err(self.problem("an empty `[[` condition"))
            } else {
                Ok(())
            };
        }
        if matches!(self.peek(), Some('<' | '>')) {
            self.bump();
            self.skip_blanks()?;
            return self.operand().map(drop);
        }
        let before = self.at;
        match self.word()? {
            Some(word) if word.is_plain("]]") => {
                self.at = before;
                Ok(())
            }
            Some(word) => self.compared(start, &first, &word),
            None => Ok(()),
        }
    }

    /// Parses after an operator with two operands.
    fn compared(
        &mut self,
        start: usize,
        first: &ShellWord,
        operator: &ShellWord,
    ) -> ReadResult<()> {
        let is = |list: &[&str]| list.iter().any(|known| operator.is_plain(known));
        self.skip_blanks()?;
        if operator.is_plain("=~") {
            return self.regex().map(drop);
        }
        if !is(BINARY) && !is(NUMERIC) {
            return Err(self.problem_at(start, "a `[[` condition that cannot be parsed"));
        }
        let second = self.operand()?;
        let is_number = |word: &ShellWord| {
            word.literal()
                .is_some_and(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()))
        };
        if is(NUMERIC) && !(is_number(first) && is_number(&second)) {
            self.doubt(start, "a numeric comparison evaluates the values of variables");
        }
        Ok(())
    }

    /// Parses one operand.
    fn operand(&mut self) -> ReadResult<ShellWord> {
        let word = self
            .word()?
            .ok_or_else(|| self.problem("a token that cannot be parsed inside `[[`"))?;
        match self.peek() {
            Some('(') => Err(self.problem("a pattern with a parenthesis")),
            // With a number in front of `<` or `>`, shells read a redirection.
            Some('<' | '>') => Err(self.problem("a comparison without blanks")),
            _ if word.is_plain("]]") => Err(self.problem("an empty `[[` condition")),
            _ => Ok(word),
        }
    }

    /// Parses the right side of `=~`, where parentheses and `|` are ordinary characters.
    fn regex(&mut self) -> ReadResult<ShellWord> {
        let start = self.at;
        let mut raws = Vec::new();
        let mut open = 0usize;
        loop {
            match self.peek() {
                Some('(') => open += 1,
                Some(')') if open > 0 => open -= 1,
                Some('|') if open > 0 => {}
                _ if self.piece(&mut raws)? => continue,
                _ => break,
            }
            raws.push(RawChar::Quoted('|'));
            self.bump();
        }
        if raws.is_empty() || open > 0 || matches!(self.peek(), Some('|' | '&' | '<' | '>' | ';')) {
            return Err(self.problem_at(start, "a regular expression that cannot be parsed"));
        }
        Ok(self.build_word(raws, start))
    }
}
