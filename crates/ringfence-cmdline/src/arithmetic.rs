//! Arithmetic expressions. They can run commands: the shell also evaluates the values of variables,
//! and a subscript in a value may contain a substitution.

use super::expansion::is_name_start;
use super::reader::{LineReader, ReadResult};
use super::word::WordEnclosure;

/// Construct that contains the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArithmeticKind {
    /// `$((…))` or `((…))`.
    Expression,
    /// `for ((…; …; …))`.
    Loop,
}

impl LineReader<'_> {
    /// Parses after `((`, up to and including `))`. Returns whether it consists of numbers only.
    pub(super) fn arithmetic(&mut self, start: usize, kind: ArithmeticKind) -> ReadResult<bool> {
        self.enter_level()?;
        let mut open = 0usize;
        let mut is_plain = true;
        let mut divided = 0;
        loop {
            let Some(c) = self.peek() else {
                return Err(self.problem_at(start, "unclosed arithmetic expression"));
            };
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' if self.take_all("))").is_taken() => break,
                ')' => {
                    return Err(self.problem_at(
                        start,
                        "`((` without `))`: for a nested subshell write `( (`",
                    ));
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
            return Err(self.problem_at(start, "a `for ((` loop without three parts"));
        }
        if !is_plain {
            self.doubt(start, "arithmetic evaluates the values of variables");
        }
        self.depth -= 1;
        Ok(is_plain)
    }
}
