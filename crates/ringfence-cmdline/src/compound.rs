//! Compound commands and functions.

use super::ReachedBy;
use super::arithmetic::ArithmeticKind;
use super::reader::{LineReader, ReadResult, TakeResult};
use super::simple::RawCommand;

impl LineReader<'_> {
    /// Parses a command of any kind.
    pub(super) fn command(&mut self) -> ReadResult<()> {
        self.enter_level()?;
        self.skip_blanks()?;
        if self.compound()? == TakeResult::Nothing {
            self.simple_or_function()?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Parses a compound command with its redirections, if one begins here.
    fn compound(&mut self) -> ReadResult<TakeResult> {
        let start = self.at;
        if self.peek() == Some('(') {
            if self.peek_second() == Some('(') {
                self.require_bash("`((`")?;
                self.take_all("((");
                self.arithmetic(start, ArithmeticKind::Expression)?;
            } else {
                self.bump();
                self.nonempty_list()?;
                if self.take(')') == TakeResult::Nothing {
                    return Err(self.problem_at(start, "unclosed parenthesis"));
                }
            }
            self.trailing_redirects(start)?;
            return Ok(TakeResult::It);
        }
        let Some(word) = self.reserved() else { return Ok(TakeResult::Nothing) };
        self.at += word.len();
        match word {
            "{" => {
                self.nonempty_list()?;
                self.expect_reserved("}")?;
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.nonempty_list()?;
                self.do_done()?;
            }
            "for" => self.repetition()?,
            "select" => {
                self.require_bash("`select`")?;
                self.repetition()?;
            }
            "case" => self.choice()?,
            "function" => {
                self.require_bash("`function`")?;
                self.skip_blanks()?;
                let name = self.word()?.ok_or_else(|| self.problem("a function without a name"))?;
                self.skip_blanks()?;
                if self.take('(').is_taken() {
                    self.skip_blanks()?;
                    if self.take(')') == TakeResult::Nothing {
                        return Err(self.problem("`)` is missing"));
                    }
                }
                let name = name.literal().ok_or_else(|| {
                    self.problem_at(start, "a function name that is not a plain word")
                })?;
                self.function_body(name)?;
                return Ok(TakeResult::It);
            }
            "[[" => {
                self.require_bash("`[[`")?;
                self.condition(start)?;
            }
            _ => return Err(self.problem_at(start, format!("unexpected `{word}`"))),
        }
        self.trailing_redirects(start)?;
        Ok(TakeResult::It)
    }

    /// Parses after the name and the parentheses of a function.
    pub(super) fn function_body(&mut self, name: String) -> ReadResult<()> {
        self.found.functions.push(name);
        self.skip_newlines()?;
        let outer = std::mem::replace(&mut self.way, ReachedBy::Function);
        self.enter_level()?;
        if self.compound()? == TakeResult::Nothing {
            return Err(self.problem("a function without a body"));
        }
        self.depth -= 1;
        self.way = outer;
        Ok(())
    }

    /// Parses the redirections after a compound command, which become a part without words.
    fn trailing_redirects(&mut self, start: usize) -> ReadResult<()> {
        let mut simple = RawCommand::default();
        loop {
            self.skip_blanks()?;
            let from = self.at;
            let digits = self.rest().len()
                - self.rest().trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits > 0 && self.rest()[digits..].starts_with(['<', '>']) {
                self.at += digits;
            }
            if self.redirect(Some(from), &mut simple)? == TakeResult::Nothing {
                break;
            }
        }
        if simple.redirects.is_empty() {
            return Ok(());
        }
        // After a redirection no word is reserved: `{ (a) >x }` is not closed.
        if !matches!(self.peek(), None | Some('\n' | ';' | '&' | '|' | ')' | '#')) {
            return Err(self.problem("missing `;` after a redirection"));
        }
        simple.span = self.span(start, self.at);
        self.finish_command(simple)
    }

    fn conditional(&mut self) -> ReadResult<()> {
        loop {
            self.nonempty_list()?;
            self.expect_reserved("then")?;
            self.nonempty_list()?;
            if self.take_reserved("elif") == TakeResult::Nothing {
                break;
            }
        }
        if self.take_reserved("else").is_taken() {
            self.nonempty_list()?;
        }
        self.expect_reserved("fi")
    }

    /// Parses `do … done`.
    fn do_done(&mut self) -> ReadResult<()> {
        self.expect_reserved("do")?;
        self.nonempty_list()?;
        self.expect_reserved("done")
    }

    /// Parses after `for` or `select`.
    fn repetition(&mut self) -> ReadResult<()> {
        self.skip_blanks()?;
        if self.peek() == Some('(') {
            let start = self.at;
            self.require_bash("`for ((`")?;
            if self.take_all("((") == TakeResult::Nothing {
                return Err(self.problem("`((` is missing"));
            }
            self.arithmetic(start, ArithmeticKind::Loop)?;
            self.skip_blanks()?;
            self.take(';');
            self.skip_newlines()?;
            return self.do_done();
        }
        let name = self.name();
        if name.is_empty() || super::can_redirect_program(&name) {
            return Err(self.problem("a loop variable that is not a plain name"));
        }
        self.skip_newlines()?;
        if self.take_reserved("in").is_taken() {
            loop {
                self.skip_blanks()?;
                let Some(word) = self.word()? else { break };
                self.found
                    .bindings
                    .push(super::Binding { name: name.clone(), raws: vec![word.raw] });
            }
            if self.peek() != Some(';') && self.peek() != Some('\n') {
                return Err(self.problem("`;` is missing"));
            }
        }
        self.take(';');
        self.skip_newlines()?;
        self.do_done()
    }

    /// Parses after `case`.
    fn choice(&mut self) -> ReadResult<()> {
        self.skip_blanks()?;
        self.word()?.ok_or_else(|| self.problem("`case` without a word"))?;
        self.skip_newlines()?;
        self.expect_reserved("in")?;
        loop {
            self.skip_newlines()?;
            if self.take_reserved("esac").is_taken() {
                return Ok(());
            }
            self.take('(');
            loop {
                self.skip_blanks()?;
                self.word()?.ok_or_else(|| self.problem("a pattern is missing"))?;
                self.skip_blanks()?;
                if self.take('|') == TakeResult::Nothing {
                    break;
                }
            }
            if self.take(')') == TakeResult::Nothing {
                return Err(self.problem("`)` is missing after a pattern"));
            }
            self.list()?;
            if self.take_all(";;").is_taken() {
                if self.peek() == Some('&') {
                    self.require_bash("`;;&`")?;
                    self.bump();
                }
            } else if self.peek() == Some(';') && self.peek_second() == Some('&') {
                self.require_bash("`;&`")?;
                self.take_all(";&");
            } else {
                return self.expect_reserved("esac");
            }
        }
    }
}
