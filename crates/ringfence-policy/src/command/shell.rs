//! What a shell is told to run: a string, a script, or its input.

use super::reader::{LineReader, ReadResult};
use super::{Redirect, ShellDialect, SimpleCommand};

/// Whether a file is whatever somebody gives at that moment.
pub(super) fn is_stream(file: &str) -> bool {
    let mut names = file.split('/').filter(|name| !matches!(*name, "" | "."));
    let is_of_kernel =
        matches!(names.clone().next(), Some("dev" | "proc")) || names.any(|name| name == "..");
    file == "-" || file.starts_with('/') && is_of_kernel
}

impl LineReader<'_> {
    /// A shell: what it is told to run, if that is known. `None` is one whose grammar is its own.
    pub(super) fn shell(
        &mut self,
        part: &SimpleCommand,
        documents: usize,
        dialect: Option<ShellDialect>,
    ) -> ReadResult<()> {
        let words = part.words();
        let mut dialect = dialect;
        let mut at = 1;
        let mut source = ShellTextSource::Script;
        while let Some(word) = words.get(at) {
            let Some(text) = word.literal() else {
                return self.unknown(word.span.clone(), "what a shell is told to run");
            };
            if text == "--" || text == "-" {
                at += 1;
                break;
            }
            if !text.starts_with(['-', '+']) || text.len() < 2 {
                break;
            }
            at += 1;
            if let Some(long) = text.strip_prefix("--") {
                match long {
                    "posix" => dialect = dialect.map(|_| ShellDialect::Posix),
                    "login" | "norc" | "noprofile" | "restricted" | "verbose" | "noediting" => {}
                    "version" | "help" => return Ok(()),
                    _ => return self.unknown(word.span.clone(), "what a shell is told to run"),
                }
                continue;
            }
            for letter in text[1..].chars() {
                match letter {
                    'c' => source = ShellTextSource::Words,
                    's' if source == ShellTextSource::Script => source = ShellTextSource::Input,
                    'o' => {
                        if words.get(at).is_none_or(|word| word.literal().is_none()) {
                            return self.unknown(part.span.clone(), "what a shell is told to run");
                        }
                        if words[at].is("keyword") {
                            return self
                                .unknown(part.span.clone(), "what a shell reads by other rules");
                        }
                        if words[at].is("posix") {
                            dialect = dialect.map(|_| ShellDialect::Posix);
                        }
                        at += 1;
                    }
                    'O' | 'k' => {
                        return self
                            .unknown(word.span.clone(), "what a shell reads by other rules");
                    }
                    _ if letter.is_ascii_alphabetic() => {}
                    _ => return self.unknown(word.span.clone(), "what a shell is told to run"),
                }
            }
        }
        let first = words.get(at);
        match (source, first, dialect) {
            (ShellTextSource::Words, None, _) => Ok(()),
            (ShellTextSource::Words, Some(word), Some(dialect)) => {
                self.string(word.literal(), part, dialect, "what a shell is told to run")
            }
            (ShellTextSource::Script, Some(word), _)
                if word.literal().is_some_and(|file| !is_stream(&file)) =>
            {
                Ok(())
            }
            (ShellTextSource::Input, ..) | (ShellTextSource::Script, None, _) => match dialect {
                Some(dialect) => self.shell_input(part, documents, dialect),
                None => self.unknown(part.span.clone(), "what a shell reads from its input"),
            },
            _ => self.unknown(part.span.clone(), "what a shell is told to run"),
        }
    }

    /// What a shell reads: a here-string or a here-document, or what nobody knows.
    fn shell_input(
        &mut self,
        part: &SimpleCommand,
        documents: usize,
        dialect: ShellDialect,
    ) -> ReadResult<()> {
        let is_input = |redirect: &&Redirect| {
            redirect.operator.starts_with('<')
                || !matches!(redirect.descriptor.as_str(), "" | "1" | "2")
        };
        let inputs: Vec<_> = part.redirects.iter().filter(is_input).collect();
        match inputs.as_slice() {
            [redirect] if redirect.descriptor.is_empty() && redirect.operator == "<<<" => {
                self.string(redirect.target.literal(), part, dialect, "what a shell reads")
            }
            [redirect]
                if redirect.descriptor.is_empty()
                    && redirect.operator.starts_with("<<")
                    && documents == 1
                    && !self.pending.is_empty() =>
            {
                if let Some(pending) = self.pending.last_mut() {
                    pending.runs = Some(dialect);
                }
                Ok(())
            }
            _ => self.unknown(part.span.clone(), "what a shell reads from its input"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShellTextSource {
    /// A file that is named, or else the input.
    Script,
    /// `-c`.
    Words,
    /// `-s`.
    Input,
}
