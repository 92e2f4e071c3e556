//! Simple commands: assignments, words and redirections.

use std::ops::Range;

use super::expansion::is_name_start;
use super::heredoc::HeredocTabs;
use super::lists::RESERVED;
use super::reader::{LineReader, ReadResult, TakeResult, is_separator};
use super::variables;
use super::word::QuoteKind;
use super::{Assignment, Redirect, ShellWord};

/// A simple command as written.
#[derive(Debug, Default)]
pub(super) struct RawCommand {
    pub(super) span: Range<usize>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) words: Vec<ShellWord>,
    pub(super) redirects: Vec<Redirect>,
    /// Number of the pending here-documents that belong to this command.
    pub(super) documents: usize,
}

impl LineReader<'_> {
    /// Parses a simple command or a function definition.
    pub(super) fn simple_or_function(&mut self) -> ReadResult<()> {
        let mut simple = RawCommand::default();
        self.peek();
        let start = self.at;
        let mut end = start;
        loop {
            self.skip_blanks()?;
            if self.redirect(None, &mut simple)?.is_taken() {
                end = self.at;
                continue;
            }
            let from = self.at;
            let Some(word) = self.word()? else { break };
            if is_descriptor(&word) && matches!(self.peek(), Some('<' | '>')) {
                if word.bare.starts_with('{') {
                    self.require_bash("`{name}>`")?;
                }
                self.redirect(Some(from), &mut simple)?;
            } else if self.peek() == Some('(') && !word.bare.ends_with('=') {
                if simple.words.is_empty()
                    && simple.assignments.is_empty()
                    && simple.redirects.is_empty()
                {
                    return self.function(&word);
                }
                return Err(self.problem("unexpected `(`"));
            } else if simple.words.is_empty()
                && self.assignment(&word, from, &mut simple)?.is_taken()
            {
            } else {
                self.argument(word, from, &mut simple)?;
            }
            end = self.at;
            if simple.words.len() == 1
                && simple.assignments.is_empty()
                && simple.redirects.is_empty()
            {
                self.skip_blanks()?;
                if self.peek() == Some('(') {
                    let word = simple.words.remove(0);
                    return self.function(&word);
                }
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirects.is_empty() {
            return Err(match self.peek() {
                Some(c) => self.problem(format!("unexpected `{}`", c.escape_debug())),
                None => self.problem("a command is missing"),
            });
        }
        simple.span = self.span(start, end);
        self.finish_command(simple)
    }

    /// Parses at the parenthesis after a function name.
    fn function(&mut self, name: &ShellWord) -> ReadResult<()> {
        self.bump();
        self.skip_blanks()?;
        let is_reserved = RESERVED.contains(&name.bare.as_str());
        let is_plain =
            |name: &str| name.chars().all(|c| c.is_alphanumeric() || "_-.:+@%,^/".contains(c));
        match name.literal().filter(|name| is_plain(name)) {
            Some(plain)
                if name.quoting == QuoteKind::Bare && !is_reserved && self.take(')').is_taken() =>
            {
                self.function_body(plain)
            }
            _ => Err(self.problem("unexpected `(`")),
        }
    }

    /// Adds the program or an argument.
    fn argument(
        &mut self,
        word: ShellWord,
        from: usize,
        simple: &mut RawCommand,
    ) -> ReadResult<()> {
        if simple.words.is_empty()
            && word.is_plain(&word.bare)
            && RESERVED.contains(&word.bare.as_str())
        {
            return Err(self.problem_at(from, format!("unexpected `{}`", word.bare)));
        }
        if self.peek() == Some('(') {
            let is_declaring =
                |word: &ShellWord| variables::DECLARING.iter().any(|name| word.is_plain(name));
            let declares =
                simple.redirects.is_empty() && simple.words.first().is_some_and(is_declaring);
            let name = word
                .bare
                .strip_suffix("+=")
                .or_else(|| word.bare.strip_suffix('='))
                .unwrap_or_default();
            let is_one = is_name(name) && word.is_plain(&word.bare);
            if !declares || !is_one {
                return Err(self.problem("unexpected `(`"));
            }
            let raws = self.array()?;
            self.found.bindings.push(super::Binding { name: name.to_owned(), raws });
        }
        simple.words.push(word);
        Ok(())
    }

    /// Consumes `word` as an assignment if it is one.
    fn assignment(
        &mut self,
        word: &ShellWord,
        from: usize,
        simple: &mut RawCommand,
    ) -> ReadResult<TakeResult> {
        let name: String =
            word.bare.chars().take_while(|c| is_name_start(*c) || c.is_ascii_digit()).collect();
        if !name.starts_with(is_name_start) {
            return Ok(TakeResult::Nothing);
        }
        let mut rest = &word.bare[name.len()..];
        if rest.starts_with('[') {
            self.require_bash("a subscript")?;
            let Some((subscript, after)) = rest[1..].split_once(']') else {
                return Err(self.problem_at(from, "a subscript that shells may parse differently"));
            };
            if !subscript.chars().all(|c| c.is_ascii_digit()) || subscript.is_empty() {
                self.doubt(
                    from,
                    "a subscript is arithmetic, which evaluates the values of variables",
                );
            }
            if !after.starts_with(['=', '+']) || subscript.contains('[') {
                return Err(self.problem_at(from, "a subscript that shells may parse differently"));
            }
            rest = after;
        }
        if rest.starts_with("+=") {
            self.require_bash("`+=`")?;
        } else if !rest.starts_with('=') {
            return Ok(TakeResult::Nothing);
        }
        let mut raws = None;
        if self.peek() == Some('(') {
            if !matches!(rest, "=" | "+=") || !word.is_plain(&word.bare) {
                return Err(self.problem("unexpected `(`"));
            }
            self.require_bash("an array")?;
            // bash does not read an array after a redirection and another assignment.
            if !simple.redirects.is_empty() {
                return Err(self.problem("an array after a redirection"));
            }
            raws = Some(self.array()?);
        }
        if variables::NUMBERS.contains(&name.as_str()) {
            self.doubt(from, "bash evaluates a value assigned to one of its numeric variables");
        }
        let value =
            || word.raw.split_once('=').map_or_else(String::new, |(_, value)| value.to_owned());
        self.found.bindings.push(super::Binding {
            name: name.clone(),
            raws: raws.unwrap_or_else(|| vec![value()]),
        });
        simple.assignments.push(Assignment { span: self.span(from, self.at), name });
        Ok(TakeResult::It)
    }

    /// Parses at the parenthesis of `x=(…)`.
    fn array(&mut self) -> ReadResult<Vec<String>> {
        self.bump();
        let mut raws = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.peek() == Some('\n') && !self.pending.is_empty() {
                return Err(self.problem("a newline in an array before a here-document"));
            }
            self.skip_newlines()?;
            let from = self.at;
            match self.word()? {
                // bash reads everything up to the closing bracket as the subscript, including
                // blanks and parentheses.
                Some(word) if word.bare.starts_with('[') && !word.bare.contains(']') => {
                    return Err(self.problem("unclosed subscript in an array"));
                }
                Some(word) if word.bare.starts_with('[') && word.raw.contains('=') => {
                    self.doubt(
                        from,
                        "a subscript is arithmetic, which evaluates the values of variables",
                    );
                }
                Some(word) => raws.push(word.raw),
                None => break,
            }
            if self.peek() == Some('(') {
                return Err(self.problem("unexpected `(`"));
            }
        }
        if self.take(')') == TakeResult::Nothing {
            return Err(self.problem("unclosed array"));
        }
        // Text directly after the array would be part of the same word.
        match self.peek() {
            Some(c) if !is_separator(c) || c == '(' || c == '<' || c == '>' => {
                Err(self.problem("text directly after an array"))
            }
            _ => Ok(raws),
        }
    }

    /// Consumes a redirection if one is next; `from` is the position of its fd.
    pub(super) fn redirect(
        &mut self,
        from: Option<usize>,
        simple: &mut RawCommand,
    ) -> ReadResult<TakeResult> {
        let Some(operator) = self.redirect_operator()? else { return Ok(TakeResult::Nothing) };
        let from = from.unwrap_or(self.at);
        let descriptor = self.text[from..self.at].replace("\\\n", "");
        self.take_all(operator);
        let target = match operator {
            "<<" | "<<-" => {
                simple.documents += 1;
                self.announce(if operator == "<<-" {
                    HeredocTabs::Stripped
                } else {
                    HeredocTabs::Kept
                })?
            }
            _ => {
                self.skip_blanks()?;
                self.word()?.ok_or_else(|| self.problem("a redirection without a target"))?
            }
        };
        // For bash, a hyphen that closes an fd is a separate word, regardless of the next
        // character.
        if operator.ends_with('&') && target.prefix().starts_with('-') && !target.is_plain("-") {
            return Err(self.problem("a redirection that shells may parse differently"));
        }
        if self.peek() == Some('(')
            || is_descriptor(&target) && matches!(self.peek(), Some('<' | '>'))
        {
            return Err(self.problem("a redirection without a target"));
        }
        let is_bash = match operator {
            "&>" | "&>>" | "<<<" => true,
            ">&" | "<&" => !target
                .literal()
                .is_some_and(|text| text == "-" || text.chars().all(|c| c.is_ascii_digit())),
            _ => false,
        };
        if is_bash {
            self.require_bash(&format!("`{operator}`"))?;
        }
        simple.redirects.push(Redirect {
            span: self.span(from, self.at),
            descriptor,
            operator: operator.to_owned(),
            target,
        });
        Ok(TakeResult::It)
    }

    fn redirect_operator(&mut self) -> ReadResult<Option<&'static str>> {
        let first = self.peek();
        if !matches!(first, Some('<' | '>' | '&'))
            || matches!(first, Some('<' | '>')) && self.peek_second() == Some('(')
        {
            return Ok(None);
        }
        // Longest first.
        const OPERATORS: &[&str] =
            &["<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">", "&>>", "&>"];
        let before = self.at;
        let found = OPERATORS.iter().find(|operator| self.take_all(operator).is_taken()).copied();
        self.at = before;
        Ok(found)
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(|c| is_name_start(c) || c.is_ascii_digit())
}

/// True if a word before a redirection is an fd: a number or `{name}`.
fn is_descriptor(word: &ShellWord) -> bool {
    let text = word.bare.as_str();
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let is_variable =
        text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).is_some_and(is_name);
    word.is_plain(text) && (is_number || is_variable)
}
