//! Here-documents: the body begins after the line that declares it.

use super::reader::{LineReader, NewlineWait, ReadResult, TakeResult, TextOrigin};
use super::word::{RawChar, WordEnclosure};
use super::{ReachedBy, ShellDialect, ShellWord};

/// A declared here-document whose body is not read yet.
#[derive(Debug, Clone)]
pub(super) struct PendingHeredoc {
    pub(super) delimiter: String,
    pub(super) body: HeredocBody,
    pub(super) tabs: HeredocTabs,
    /// The shell that runs the body, if one does.
    pub(super) runs: Option<ShellDialect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeredocBody {
    /// Quoted delimiter: the body is literal.
    Literal,
    Expanded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeredocTabs {
    Kept,
    /// `<<-`: leading tabs are removed.
    Stripped,
}

impl LineReader<'_> {
    /// Parses the delimiter after `<<` or `<<-`.
    pub(super) fn announce(&mut self, tabs: HeredocTabs) -> ReadResult<ShellWord> {
        self.skip_blanks()?;
        let start = self.at;
        let word =
            self.word()?.ok_or_else(|| self.problem("a here-document without a delimiter"))?;
        let delimiter = word.literal().ok_or_else(|| {
            self.problem_at(start, "a here-document delimiter that is not a plain word")
        })?;
        if delimiter.contains('\n') || self.text[start..self.at].contains("\\\n") {
            return Err(self.problem_at(start, "a here-document delimiter with a newline"));
        }
        let body = if word.quoting == super::word::QuoteKind::Bare {
            HeredocBody::Expanded
        } else {
            HeredocBody::Literal
        };
        self.pending.push(PendingHeredoc { delimiter, body, tabs, runs: None });
        Ok(word)
    }

    /// Consumes a newline and the bodies that begin after it.
    pub(super) fn newline(&mut self) -> ReadResult<TakeResult> {
        if self.take('\n') == TakeResult::Nothing {
            return Ok(TakeResult::Nothing);
        }
        if self.outer_waits == NewlineWait::Pending {
            return Err(self.problem("a newline in a substitution before a here-document"));
        }
        for pending in std::mem::take(&mut self.pending) {
            self.body(&pending)?;
        }
        Ok(TakeResult::It)
    }

    pub(super) fn no_heredoc_left(&self) -> ReadResult<()> {
        match self.pending.first() {
            None => Ok(()),
            Some(pending) => Err(self.problem(format!(
                "the here-document that ends with `{}` has no body",
                pending.delimiter
            ))),
        }
    }

    fn body(&mut self, pending: &PendingHeredoc) -> ReadResult<()> {
        let start = self.at;
        let mut body = String::new();
        let end = loop {
            let from = self.at;
            if from >= self.text.len() {
                return Err(self.problem_at(
                    start,
                    format!("a here-document without its end `{}`", pending.delimiter),
                ));
            }
            let mut line = self.raw_line();
            while pending.body == HeredocBody::Expanded
                && ends_with_backslash(&line)
                && self.at < self.text.len()
            {
                line.pop();
                line += &self.raw_line();
            }
            let line = if pending.tabs == HeredocTabs::Stripped {
                line.trim_start_matches('\t')
            } else {
                &line
            };
            if line == pending.delimiter {
                break from;
            }
            // In a substitution bash accepts this as the end of the body, and then closes the
            // substitution.
            if line.strip_prefix(pending.delimiter.as_str()).is_some_and(|rest| rest.contains(')'))
            {
                return Err(self.problem_at(from, "a line that may end the here-document"));
            }
            body += line;
            body.push('\n');
        };
        let after = self.at;
        let has_expansions =
            pending.body == HeredocBody::Expanded && body.contains(['$', '`', '\\']);
        if has_expansions {
            self.at = start;
            self.expansions(end)?;
            self.at = after;
        }
        match pending.runs {
            Some(_) if has_expansions => {
                self.add_unknown(self.span(start, end), "the here-document for a shell")
            }
            Some(dialect) => {
                let span = self.span(start, end);
                self.parse_nested(&body, TextOrigin::Within(span), dialect, ReachedBy::Followed)
            }
            None => Ok(()),
        }
    }

    /// Consumes a line and returns it without its newline.
    fn raw_line(&mut self) -> String {
        let rest = self.rest();
        let length = rest.find('\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.text.len());
        rest[..length].to_owned()
    }

    /// Parses the expansions in a body that ends at `end`.
    fn expansions(&mut self, end: usize) -> ReadResult<()> {
        let mut raws: Vec<RawChar> = Vec::new();
        while self.at < end {
            let Some(c) = self.peek() else { break };
            // A here-document inside a body would have its own body there.
            self.in_double(c, WordEnclosure::Document, &mut raws)?;
            raws.clear();
        }
        if self.at > end {
            Err(self.problem_at(end, "a substitution that extends past its here-document"))
        } else {
            Ok(())
        }
    }
}

fn ends_with_backslash(line: &str) -> bool {
    let kept = line.trim_end_matches('\\');
    (line.len() - kept.len()) % 2 == 1
}
