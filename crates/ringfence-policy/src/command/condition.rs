//! `[[ … ]]`.

use super::reader::{Read, Reader};
use super::word::{Raw, Word};

/// Those that take both sides for arithmetic.
const NUMERIC: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl Reader<'_> {
    /// After `[[`, up to and with `]]`.
    pub(super) fn condition(&mut self, start: usize) -> Read<()> {
        let mut words: Vec<Word> = Vec::new();
        let mut open = 0usize;
        loop {
            self.skip_blanks()?;
            match (self.peek(), self.peek_second()) {
                (None, _) => return Err(self.problem_at(start, "a `[[` that nothing closes")),
                (Some('&'), Some('&')) | (Some('|'), Some('|')) => {
                    self.bump();
                    self.bump();
                    self.weigh(start, &words)?;
                    words.clear();
                }
                (Some('<' | '>'), second) if second != Some('(') => drop(self.bump()),
                (Some('('), _) => {
                    self.bump();
                    open += 1;
                }
                (Some(')'), _) if open > 0 => {
                    self.bump();
                    open -= 1;
                }
                (Some('\n'), _) => drop(self.newline()?),
                _ => {
                    let word = self.word()?.ok_or_else(|| self.problem("it cannot be read within `[[`"))?;
                    if word.is_plain("]]") {
                        break;
                    }
                    if self.peek() == Some('(') {
                        return Err(self.problem("a pattern with a parenthesis"));
                    }
                    let is_match = word.is_plain("=~");
                    words.push(word);
                    if is_match {
                        self.skip_blanks()?;
                        words.push(self.regex()?);
                    }
                }
            }
        }
        if open > 0 || words.is_empty() {
            return Err(self.problem_at(start, "a `[[` that cannot be read"));
        }
        self.weigh(start, &words)
    }

    /// The right side of `=~`, in which parentheses and bars are characters.
    fn regex(&mut self) -> Read<Word> {
        let start = self.at;
        let mut raws = Vec::new();
        let mut open = 0usize;
        loop {
            match self.peek() {
                Some('(') => open += 1,
                Some(')') if open > 0 => open -= 1,
                Some('|') => {}
                _ if self.piece(&mut raws)? => continue,
                _ => break,
            }
            raws.push(Raw::Quoted('|'));
            self.bump();
        }
        if raws.is_empty() || open > 0 {
            return Err(self.problem_at(start, "an expression that cannot be read"));
        }
        Ok(self.word_of(raws, start))
    }

    /// One test between `&&` and `||`.
    fn weigh(&mut self, start: usize, words: &[Word]) -> Read<()> {
        if words.is_empty() {
            return Err(self.problem_at(start, "a `[[` that cannot be read"));
        }
        let is_number = |word: &Word| word.literal().is_some_and(|text| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit()));
        let is_numeric = |word: &Word| NUMERIC.iter().any(|operator| word.is(operator));
        if let Some(at) = words.iter().position(is_numeric) {
            let sides = words[..at].iter().chain(&words[at + 1..]).filter(|word| !word.is("!"));
            if !sides.into_iter().all(is_number) {
                self.doubt(start, "a comparison of numbers evaluates what variables hold");
            }
        }
        if words.iter().any(|word| word.is("-v") || word.is("-R")) {
            self.doubt(start, "whether a variable is set may evaluate a subscript");
        }
        Ok(())
    }
}
