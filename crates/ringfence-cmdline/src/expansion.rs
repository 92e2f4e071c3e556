//! Expansions: everything that begins with a dollar sign or a backtick.

use super::ReachedBy;
use super::decode;
use super::reader::{LineReader, NewlineWait, ReadResult, TakeResult, TextOrigin};
use super::word::{RawChar, UnknownWord, WordEnclosure};

impl LineReader<'_> {
    /// Parses at a dollar sign.
    pub(super) fn dollar(
        &mut self,
        place: WordEnclosure,
        raws: &mut Vec<RawChar>,
    ) -> ReadResult<()> {
        let start = self.at;
        self.bump();
        let hole = RawChar::Hole(UnknownWord::Expansion);
        match self.peek() {
            Some('(') if self.peek_second() == Some('(') => {
                self.take_all("((");
                let is_plain =
                    self.arithmetic(start, super::arithmetic::ArithmeticKind::Expression)?;
                raws.push(if is_plain { RawChar::Hole(UnknownWord::Number) } else { hole });
            }
            Some('(') => {
                self.bump();
                self.substitution(ReachedBy::Substitution)?;
                raws.push(hole);
            }
            Some('{') => {
                self.bump();
                self.parameter(start, place)?;
                raws.push(hole);
            }
            Some('[') => return Err(self.problem_at(start, "shells parse `$[` differently")),
            Some('\'') if place == WordEnclosure::Bare => {
                self.require_bash("`$'`")?;
                self.bump();
                raws.push(RawChar::Nothing);
                let (text, length) = decode::escapes(self.rest())
                    .map_err(|(at, why)| self.problem_at(self.at + at, why))?;
                self.at += length;
                raws.extend(text.chars().map(RawChar::Quoted));
            }
            Some('"') if place == WordEnclosure::Bare => {
                self.require_bash("`$\"`")?;
                self.bump();
                // `$"…"`: a translation may be any text.
                self.double_quoted(&mut Vec::new())?;
                raws.push(hole);
            }
            Some(c) if is_name_start(c) => {
                self.name();
                raws.push(hole);
            }
            Some('?' | '#' | '$' | '!') => {
                self.bump();
                raws.push(RawChar::Hole(UnknownWord::Number));
            }
            Some(c) if c.is_ascii_digit() || "@*-".contains(c) => {
                self.bump();
                raws.push(hole);
            }
            _ => raws.push(if place == WordEnclosure::Bare {
                RawChar::Bare('$')
            } else {
                RawChar::Quoted('$')
            }),
        }
        Ok(())
    }

    /// Parses the name of a variable.
    pub(super) fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek().filter(|c| is_name_start(*c) || c.is_ascii_digit()) {
            self.bump();
            name.push(c);
        }
        name
    }

    /// Parses after `$(`, `<(` or `>(`: a list up to the closing parenthesis.
    pub(super) fn substitution(&mut self, way: ReachedBy) -> ReadResult<()> {
        let start = self.at;
        self.enter_level()?;
        let outer = std::mem::replace(&mut self.way, way);
        let pending = std::mem::take(&mut self.pending);
        let waits = if pending.is_empty() { self.outer_waits } else { NewlineWait::Pending };
        let outer_waits = std::mem::replace(&mut self.outer_waits, waits);
        self.list()?;
        if self.take(')') == TakeResult::Nothing {
            return Err(self.problem_at(start, "unclosed command substitution"));
        }
        self.no_heredoc_left()?;
        self.pending = pending;
        self.outer_waits = outer_waits;
        self.way = outer;
        self.depth -= 1;
        Ok(())
    }

    /// Parses at `<(` or `>(`.
    pub(super) fn process_substitution(&mut self) -> ReadResult<()> {
        self.require_bash("`<(`")?;
        self.bump();
        self.bump();
        self.substitution(ReachedBy::ProcessSubstitution)
    }

    /// Parses at a backtick: removes one level of backslashes and parses the content again.
    pub(super) fn backtick(&mut self, place: WordEnclosure) -> ReadResult<()> {
        self.bump();
        let start = self.at;
        let mut text = String::new();
        let mut has_escapes = false;
        loop {
            let Some(c) = self.peek_raw() else {
                return Err(self.problem_at(start, "unclosed backtick"));
            };
            self.at += c.len_utf8();
            match c {
                '`' => break,
                '\\' => {
                    has_escapes = true;
                    match self.peek_raw() {
                        Some('\n') => {
                            return Err(self.problem("a backslash before a newline in backticks"));
                        }
                        Some(next) if matches!(next, '$' | '`' | '\\') => {
                            self.at += 1;
                            text.push(next);
                        }
                        Some('"') if place != WordEnclosure::Bare => {
                            return Err(self.problem("`\\\"` in backticks in double quotes"));
                        }
                        _ => text.push('\\'),
                    }
                }
                _ => text.push(c),
            }
        }
        let origin = match &self.origin {
            TextOrigin::From(base) if !has_escapes => TextOrigin::From(base + start),
            _ => TextOrigin::Within(self.span(start - 1, self.at)),
        };
        if !self.pending.is_empty() && text.contains('\n') {
            return Err(self.problem_at(start, "a newline in backticks before a here-document"));
        }
        self.parse_nested(&text, origin, self.dialect, ReachedBy::Substitution)
    }

    /// Parses after `${`.
    fn parameter(&mut self, start: usize, place: WordEnclosure) -> ReadResult<()> {
        self.enter_level()?;
        match self.peek() {
            Some('!') if self.peek_second() != Some('}') => {
                self.bump();
                self.doubt(start, "another variable holds the name of the variable");
            }
            Some('#')
                if !matches!(
                    self.peek_second(),
                    Some('}' | '#' | '-' | '?' | ':' | '%' | '=' | '+' | '/')
                ) =>
            {
                self.bump();
            }
            _ => {}
        }
        match self.peek() {
            Some(c) if is_name_start(c) => {
                let name = self.name();
                let is_assigned = self.peek() == Some('=')
                    || self.peek() == Some(':') && self.peek_second() == Some('=');
                if is_assigned && super::can_redirect_program(&name) {
                    self.doubt(
                        start,
                        "it assigns a variable that can make a program run another one",
                    );
                }
            }
            Some(c) if c.is_ascii_digit() => {
                while self.peek().is_some_and(|c| c.is_ascii_digit()) {
                    self.bump();
                }
            }
            Some(c) if "@*#?-$!".contains(c) => drop(self.bump()),
            _ => return Err(self.problem_at(start, "a `${` without a name")),
        }
        if self.take('[').is_taken() {
            self.subscript(start, place)?;
        }
        self.operator(start)?;
        self.parameter_word(start, place)?;
        self.depth -= 1;
        Ok(())
    }

    /// Parses between `[` and `]`: arithmetic, unless it is a plain number.
    fn subscript(&mut self, start: usize, place: WordEnclosure) -> ReadResult<()> {
        let mut raws = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.problem_at(start, "unclosed subscript")),
                Some(']') => break,
                Some('\'' | '"' | '\\' | '[' | '{' | '}' | '<' | '>') => {
                    return Err(self.problem("a subscript that shells may parse differently"));
                }
                Some('$') => self.dollar(place, &mut raws)?,
                Some('`') => self.backtick(place)?,
                Some(c) => {
                    self.check_shown(c)?;
                    self.bump();
                    raws.push(RawChar::Bare(c));
                }
            }
        }
        self.bump();
        let is_plain = raws.iter().all(|raw| matches!(raw, RawChar::Bare(c) if c.is_ascii_digit()))
            && !raws.is_empty();
        if !is_plain && raws != [RawChar::Bare('@')] && raws != [RawChar::Bare('*')] {
            self.doubt(start, "a subscript is arithmetic, which evaluates the values of variables");
        }
        Ok(())
    }

    /// Parses the operator of a parameter expansion.
    fn operator(&mut self, start: usize) -> ReadResult<()> {
        match (self.peek(), self.peek_second()) {
            (Some('}'), _) => Ok(()),
            (Some('@'), _) => {
                self.doubt(start, "a value may be expanded as a prompt, which runs commands");
                Ok(())
            }
            (Some(':'), Some('-' | '=' | '?' | '+')) => Ok(()),
            (Some(':'), _) => {
                self.doubt(
                    start,
                    "an offset is arithmetic, which evaluates the values of variables",
                );
                Ok(())
            }
            (Some(c), _) if "-=?+#%/^,~*".contains(c) => Ok(()),
            _ => Err(self.problem_at(start, "a `${` that cannot be parsed")),
        }
    }

    /// Parses up to the closing brace.
    fn parameter_word(&mut self, start: usize, place: WordEnclosure) -> ReadResult<()> {
        let mut raws = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.problem_at(start, "unclosed `${`")),
                Some('}') => {
                    self.bump();
                    return Ok(());
                }
                Some('\\') => {
                    self.bump();
                    match self.peek_raw() {
                        None | Some('\n') => {
                            return Err(self.problem("a backslash with nothing after it"));
                        }
                        Some(c) => self.at += c.len_utf8(),
                    }
                }
                Some('\'' | '"') if place != WordEnclosure::Bare => {
                    return Err(self.problem("quotes in `${` in double quotes"));
                }
                Some('\'') => {
                    self.bump();
                    self.single_quoted(&mut raws)?;
                }
                Some('"') => {
                    self.bump();
                    self.double_quoted(&mut raws)?;
                }
                Some('$') => self.dollar(place, &mut raws)?,
                Some('`') => self.backtick(place)?,
                Some('<' | '>') if self.peek_second() == Some('(') => {
                    return Err(self.problem("a process substitution in `${`"));
                }
                Some(c) => {
                    self.check_shown(c)?;
                    self.bump();
                }
            }
        }
    }
}

pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}
