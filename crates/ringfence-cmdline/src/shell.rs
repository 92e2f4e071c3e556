//! Shell invocations: the string, the script or the input that a shell runs.

use super::reader::{LineReader, ReadResult};
use super::{Redirect, ShellDialect, ShellWord, SimpleCommand};

/// True if the content of a file is only known at run time: a device, a pipe, `/proc`, or a path
/// with `..`.
pub(super) fn is_stream(file: &str) -> bool {
    let mut names = file.split('/').filter(|name| !matches!(*name, "" | "."));
    let is_of_kernel =
        matches!(names.clone().next(), Some("dev" | "proc")) || names.any(|name| name == "..");
    file == "-" || file.starts_with('/') && is_of_kernel
}

impl LineReader<'_> {
    /// Follows a shell invocation. A `dialect` of `None` is a shell with its own grammar.
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
                return self.add_unknown(word.span.clone(), "the command of a shell");
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
                    _ => return self.add_unknown(word.span.clone(), "the command of a shell"),
                }
                continue;
            }
            for letter in text[1..].chars() {
                match letter {
                    'c' => source = ShellTextSource::Words,
                    's' if source == ShellTextSource::Script => source = ShellTextSource::Input,
                    'o' => {
                        if words.get(at).is_none_or(|word| word.literal().is_none()) {
                            return self.add_unknown(part.span.clone(), "the command of a shell");
                        }
                        if words[at].is("keyword") {
                            return self.add_unknown(
                                part.span.clone(),
                                "the command of a shell with other parsing options",
                            );
                        }
                        if words[at].is("posix") {
                            dialect = dialect.map(|_| ShellDialect::Posix);
                        }
                        at += 1;
                    }
                    'O' | 'k' => {
                        return self.add_unknown(
                            word.span.clone(),
                            "the command of a shell with other parsing options",
                        );
                    }
                    _ if letter.is_ascii_alphabetic() => {}
                    _ => return self.add_unknown(word.span.clone(), "the command of a shell"),
                }
            }
        }
        self.shell_text(part, documents, dialect, (source, words.get(at)))
    }

    /// Follows the text that a shell runs, once its options are read.
    fn shell_text(
        &mut self,
        part: &SimpleCommand,
        documents: usize,
        dialect: Option<ShellDialect>,
        (source, first): (ShellTextSource, Option<&ShellWord>),
    ) -> ReadResult<()> {
        match (source, first, dialect) {
            (ShellTextSource::Words, None, _) => Ok(()),
            (ShellTextSource::Words, Some(word), Some(dialect)) => {
                self.string(word.literal(), part, dialect, "the command of a shell")
            }
            (ShellTextSource::Script, Some(word), _)
                if word.literal().is_some_and(|file| !is_stream(&file)) =>
            {
                Ok(())
            }
            (ShellTextSource::Input, ..) | (ShellTextSource::Script, None, _) => match dialect {
                Some(dialect) => self.shell_input(part, documents, dialect),
                None => self.add_unknown(part.span.clone(), "the input of a shell"),
            },
            _ => self.add_unknown(part.span.clone(), "the command of a shell"),
        }
    }

    /// Follows the input of a shell: a here-string or a here-document; anything else is unknown.
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
                self.string(redirect.target.literal(), part, dialect, "the here-string of a shell")
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
            _ => self.add_unknown(part.span.clone(), "the input of a shell"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShellTextSource {
    /// A named file, or else standard input.
    Script,
    /// `-c`.
    Words,
    /// `-s`.
    Input,
}
