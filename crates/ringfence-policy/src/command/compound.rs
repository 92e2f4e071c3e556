//! Compound commands and functions.

use super::ReachedBy;
use super::arithmetic::ArithmeticKind;
use super::reader::{LineReader, ReadResult, TakeResult};
use super::simple::RawCommand;

impl LineReader<'_> {
    /// A command of any kind.
    pub(super) fn command(&mut self) -> ReadResult<()> {
        self.deeper()?;
        self.skip_blanks()?;
        if self.compound()? == TakeResult::Nothing {
            self.simple_or_function()?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// A compound command with its redirections, if one begins here.
    fn compound(&mut self) -> ReadResult<TakeResult> {
        let start = self.at;
        if self.peek() == Some('(') {
            if self.peek_second() == Some('(') {
                self.bash_only("`((`")?;
                self.take_all("((");
                self.arithmetic(start, ArithmeticKind::Expression)?;
            } else {
                self.bump();
                self.list_of_some()?;
                if self.take(')') == TakeResult::Nothing {
                    return Err(self.problem_at(start, "a parenthesis that nothing closes"));
                }
            }
            self.trailing_redirects(start)?;
            return Ok(TakeResult::It);
        }
        let Some(word) = self.reserved() else { return Ok(TakeResult::Nothing) };
        self.at += word.len();
        match word {
            "{" => {
                self.list_of_some()?;
                self.expect_reserved("}")?;
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.list_of_some()?;
                self.do_done()?;
            }
            "for" => self.repetition()?,
            "select" => {
                self.bash_only("`select`")?;
                self.repetition()?;
            }
            "case" => self.choice()?,
            "function" => {
                self.bash_only("`function`")?;
                self.skip_blanks()?;
                let name = self.word()?.ok_or_else(|| self.problem("a function without a name"))?;
                self.skip_blanks()?;
                if self.take('(').it() {
                    self.skip_blanks()?;
                    if self.take(')') == TakeResult::Nothing {
                        return Err(self.problem("`)` is missing"));
                    }
                }
                let name = name
                    .literal()
                    .ok_or_else(|| self.problem_at(start, "the name of a function is not plain"))?;
                self.function_body(name)?;
                return Ok(TakeResult::It);
            }
            "[[" => {
                self.bash_only("`[[`")?;
                self.condition(start)?;
            }
            _ => return Err(self.problem_at(start, format!("unexpected `{word}`"))),
        }
        self.trailing_redirects(start)?;
        Ok(TakeResult::It)
    }

    /// After a function's name and parentheses.
    pub(super) fn function_body(&mut self, name: String) -> ReadResult<()> {
        self.found.functions.push(name);
        self.skip_newlines()?;
        let outer = std::mem::replace(&mut self.way, ReachedBy::Function);
        self.deeper()?;
        if self.compound()? == TakeResult::Nothing {
            return Err(self.problem("a function without a body"));
        }
        self.depth -= 1;
        self.way = outer;
        Ok(())
    }

    /// What follows a compound command, which becomes a part without words.
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
        // Behind a redirection no word is a reserved one: `{ (a) >x }` is not closed.
        if !matches!(self.peek(), None | Some('\n' | ';' | '&' | '|' | ')' | '#')) {
            return Err(self.problem("`;` is missing behind a redirection"));
        }
        simple.span = self.span(start, self.at);
        self.finish(simple)
    }

    fn conditional(&mut self) -> ReadResult<()> {
        loop {
            self.list_of_some()?;
            self.expect_reserved("then")?;
            self.list_of_some()?;
            if self.take_reserved("elif") == TakeResult::Nothing {
                break;
            }
        }
        if self.take_reserved("else").it() {
            self.list_of_some()?;
        }
        self.expect_reserved("fi")
    }

    /// `do … done`.
    fn do_done(&mut self) -> ReadResult<()> {
        self.expect_reserved("do")?;
        self.list_of_some()?;
        self.expect_reserved("done")
    }

    /// After `for` or `select`.
    fn repetition(&mut self) -> ReadResult<()> {
        self.skip_blanks()?;
        if self.peek() == Some('(') {
            let start = self.at;
            self.bash_only("`for ((`")?;
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
        if name.is_empty() || super::leads_elsewhere(&name) {
            return Err(self.problem("a loop over something that is no plain variable"));
        }
        self.skip_newlines()?;
        if self.take_reserved("in").it() {
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

    /// After `case`.
    fn choice(&mut self) -> ReadResult<()> {
        self.skip_blanks()?;
        self.word()?.ok_or_else(|| self.problem("`case` without a word"))?;
        self.skip_newlines()?;
        self.expect_reserved("in")?;
        loop {
            self.skip_newlines()?;
            if self.take_reserved("esac").it() {
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
            if self.take_all(";;").it() {
                if self.peek() == Some('&') {
                    self.bash_only("`;;&`")?;
                    self.bump();
                }
            } else if self.peek() == Some(';') && self.peek_second() == Some('&') {
                self.bash_only("`;&`")?;
                self.take_all(";&");
            } else {
                return self.expect_reserved("esac");
            }
        }
    }
}
