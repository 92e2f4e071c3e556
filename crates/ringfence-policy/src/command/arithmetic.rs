//! Arithmetic, which is not as harmless as it looks: what a variable holds is evaluated, too,
//! and a subscript in there may hold a substitution.

use super::expansion::is_name_start;
use super::reader::{LineReader, ReadResult};
use super::word::WordEnclosure;

/// Where arithmetic stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArithmeticKind {
    /// `$((…))` or `((…))`.
    Expression,
    /// `for ((…; …; …))`.
    Loop,
}

impl LineReader<'_> {
    /// After `((`, up to and with `))`. Answers whether it is made of numbers alone.
    pub(super) fn arithmetic(&mut self, start: usize, kind: ArithmeticKind) -> ReadResult<bool> {
        self.deeper()?;
        let mut open = 0usize;
        let mut is_plain = true;
        let mut divided = 0;
        loop {
            let Some(c) = self.peek() else {
                return Err(self.problem_at(start, "arithmetic that nothing closes"));
            };
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' if self.take_all("))").it() => break,
                ')' => {
                    return Err(
                        self.problem_at(start, "`((` that `))` does not close: write `( (`")
                    );
                }
                '$' => {
                    is_plain = false;
                    self.dollar(WordEnclosure::Double, &mut Vec::new())?;
                    continue;
                }
                '`' => {
                    is_plain = false;
                    self.backtick(WordEnclosure::Double)?;
                    continue;
                }
                _ if is_name_start(c) => {
                    is_plain = false;
                    self.name();
                    continue;
                }
                _ if c.is_ascii_digit() => {
                    while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '#') {
                        self.bump();
                    }
                    continue;
                }
                ';' if kind == ArithmeticKind::Loop && open == 0 => divided += 1,
                ' ' | '\t' | '\n' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&'
                | '|' | '^' | '~' | '?' | ':' | ',' | '[' | ']' => {}
                _ => return Err(self.problem(format!("`{c}` in arithmetic"))),
            }
            self.bump();
        }
        if kind == ArithmeticKind::Loop && divided != 2 {
            return Err(self.problem_at(start, "a loop that has not three parts"));
        }
        if !is_plain {
            self.doubt(start, "arithmetic evaluates what variables hold");
        }
        self.depth -= 1;
        Ok(is_plain)
    }
}
