//! Here-documents: their bodies begin after the line in which they are announced.

use super::reader::{LineReader, NewlineWait, ReadResult, TakeResult, TextOrigin};
use super::word::{RawChar, WordEnclosure};
use super::{ReachedBy, ShellDialect, ShellWord};

/// A here-document that was announced.
#[derive(Debug, Clone)]
pub(super) struct PendingHeredoc {
    pub(super) delimiter: String,
    pub(super) body: HeredocBody,
    pub(super) tabs: HeredocTabs,
    /// The shell that runs what is in it, if one does.
    pub(super) runs: Option<ShellDialect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeredocBody {
    /// The delimiter is quoted: as it stands.
    Literal,
    Expanded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeredocTabs {
    Kept,
    /// `<<-`: those at the start of a line are taken away.
    Stripped,
}

impl LineReader<'_> {
    /// After `<<` or `<<-`: the delimiter.
    pub(super) fn announce(&mut self, tabs: HeredocTabs) -> ReadResult<ShellWord> {
        self.skip_blanks()?;
        let start = self.at;
        let word =
            self.word()?.ok_or_else(|| self.problem("a here-document without a delimiter"))?;
        let delimiter = word.literal().ok_or_else(|| {
            self.problem_at(start, "the delimiter of a here-document is not plain")
        })?;
        if delimiter.contains('\n') || self.text[start..self.at].contains("\\\n") {
            return Err(
                self.problem_at(start, "the delimiter of a here-document has a newline in it")
            );
        }
        let body = if word.quoting == super::word::QuoteKind::Bare {
            HeredocBody::Expanded
        } else {
            HeredocBody::Literal
        };
        self.pending.push(PendingHeredoc { delimiter, body, tabs, runs: None });
        Ok(word)
    }

    /// Takes a newline, and the bodies that begin after it.
    pub(super) fn newline(&mut self) -> ReadResult<TakeResult> {
        if self.take('\n') == TakeResult::Nothing {
            return Ok(TakeResult::Nothing);
        }
        if self.outer_waits == NewlineWait::Somebody {
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
                    format!("a here-document that `{}` does not end", pending.delimiter),
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
            // In a substitution bash takes this for the end, and for what closes the substitution.
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
                self.unknown(self.span(start, end), "what a shell reads from a here-document")
            }
            Some(dialect) => {
                let span = self.span(start, end);
                self.inner(&body, TextOrigin::Within(span), dialect, ReachedBy::Followed)
            }
            None => Ok(()),
        }
    }

    /// A line without its newline, which is taken.
    fn raw_line(&mut self) -> String {
        let rest = self.rest();
        let length = rest.find('\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.text.len());
        rest[..length].to_owned()
    }

    /// What is expanded in a body that ends at `end`.
    fn expansions(&mut self, end: usize) -> ReadResult<()> {
        let mut raws: Vec<RawChar> = Vec::new();
        while self.at < end {
            let Some(c) = self.peek() else { break };
            // A heredoc inside a body would have its own body there.
            self.in_double(c, WordEnclosure::Document, &mut raws)?;
            raws.clear();
        }
        if self.at > end {
            Err(self.problem_at(end, "a substitution that goes beyond its here-document"))
        } else {
            Ok(())
        }
    }
}

fn ends_with_backslash(line: &str) -> bool {
    let kept = line.trim_end_matches('\\');
    (line.len() - kept.len()) % 2 == 1
}
