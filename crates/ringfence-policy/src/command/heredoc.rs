//! Here-documents: their bodies begin after the line in which they are announced.

use super::reader::{Ground, Read, Reader, Took, Waits};
use super::word::{In, Raw};
use super::{Dialect, Way, Word};

/// A here-document that was announced.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) delimiter: String,
    pub(super) body: Body,
    pub(super) tabs: Tabs,
    /// The shell that runs what is in it, if one does.
    pub(super) runs: Option<Dialect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// The delimiter is quoted: as it stands.
    Literal,
    Expanded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tabs {
    Kept,
    /// `<<-`: those at the start of a line are taken away.
    Stripped,
}

impl Reader<'_> {
    /// After `<<` or `<<-`: the delimiter.
    pub(super) fn announce(&mut self, tabs: Tabs) -> Read<Word> {
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
        let body =
            if word.quoting == super::word::Quoting::Bare { Body::Expanded } else { Body::Literal };
        self.pending.push(Pending { delimiter, body, tabs, runs: None });
        Ok(word)
    }

    /// Takes a newline, and the bodies that begin after it.
    pub(super) fn newline(&mut self) -> Read<Took> {
        if self.take('\n') == Took::Nothing {
            return Ok(Took::Nothing);
        }
        if self.outer_waits == Waits::Somebody {
            return Err(self.problem("a newline in a substitution before a here-document"));
        }
        for pending in std::mem::take(&mut self.pending) {
            self.body(&pending)?;
        }
        Ok(Took::It)
    }

    pub(super) fn no_heredoc_left(&self) -> Read<()> {
        match self.pending.first() {
            None => Ok(()),
            Some(pending) => Err(self.problem(format!(
                "the here-document that ends with `{}` has no body",
                pending.delimiter
            ))),
        }
    }

    fn body(&mut self, pending: &Pending) -> Read<()> {
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
            while pending.body == Body::Expanded
                && ends_with_backslash(&line)
                && self.at < self.text.len()
            {
                line.pop();
                line += &self.raw_line();
            }
            let line =
                if pending.tabs == Tabs::Stripped { line.trim_start_matches('\t') } else { &line };
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
        let has_expansions = pending.body == Body::Expanded && body.contains(['$', '`', '\\']);
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
                self.inner(&body, Ground::Within(span), dialect, Way::Followed)
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
    fn expansions(&mut self, end: usize) -> Read<()> {
        let mut raws: Vec<Raw> = Vec::new();
        while self.at < end {
            let Some(c) = self.peek() else { break };
            // A heredoc inside a body would have its own body there.
            self.in_double(c, In::Document, &mut raws)?;
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
