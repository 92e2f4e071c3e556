//! Data, to standard output.

use std::env;
use std::io::{self, IsTerminal, Write};

use ringfence_api::is_hidden;
use serde_json::Value;

use crate::error::CliError;

/// Writes `text` as it is.
///
/// A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn text(text: &str) -> Result<(), CliError> {
    bytes(text.as_bytes())
}

/// As [`text`], for what need not be text.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::File { what: "write to", path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

/// One object on one line.
pub(crate) fn json(value: &Value) -> Result<(), CliError> {
    text(&format!("{value}\n"))
}

/// How words are set off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorMode {
    /// Not at all.
    Plain,
    /// By colour.
    Colour,
}

impl ColorMode {
    /// Colour only for a person who looks at it and has not declined it (<https://no-color.org>).
    pub(crate) fn for_stdout() -> Self {
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        if io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb {
            ColorMode::Colour
        } else {
            ColorMode::Plain
        }
    }

    pub(crate) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.with("1;31", text)
    }

    pub(crate) fn weak(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(crate) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        match self {
            ColorMode::Plain => text.to_owned(),
            ColorMode::Colour => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

/// `text` in exactly `width` columns: filled up, or cut with an ellipsis.
///
/// Control characters, which a file's name may hold, do not reach the terminal.
pub(crate) fn cell(text: &str, width: usize) -> String {
    let clean = printable(text);
    let length = clean.chars().count();
    if length <= width {
        return format!("{clean}{}", " ".repeat(width - length));
    }
    clean.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in one line, without anything that a terminal would obey. Line ends are written `\n`.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if is_hidden(c) => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
    }
    shown
}

/// A path for people: `~` for home.
pub(crate) fn short(path: &ringfence_policy::AbsPath, home: &ringfence_policy::AbsPath) -> String {
    match path.relative_to(home) {
        Some(below) if below.as_os_str().is_empty() => "~".into(),
        Some(below) if home.depth() > 0 => format!("~/{}", below.display()),
        _ => path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::AbsPath;

    use super::*;

    #[track_caller]
    fn check(text: &str, width: usize, expect: &str) {
        assert_eq!(cell(text, width), expect);
        assert_eq!(cell(text, width).chars().count(), width);
    }

    #[test]
    fn a_cell_has_its_width() {
        check("ab", 4, "ab  ");
        check("abcd", 4, "abcd");
        check("abcde", 4, "abc…");
        check("é\x1b[31m", 4, "é\u{fffd}[…");
        check("", 2, "  ");
    }

    #[test]
    fn home_is_a_tilde() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        assert_eq!(short(&path("/home/me/x"), &path("/home/me")), "~/x");
        assert_eq!(short(&path("/home/me"), &path("/home/me")), "~");
        assert_eq!(short(&path("/home/meme"), &path("/home/me")), "/home/meme");
        assert_eq!(short(&path("/etc"), &path("/")), "/etc");
    }

    #[test]
    fn plain_is_plain() {
        assert_eq!(ColorMode::Plain.bad("x"), "x");
        assert_eq!(ColorMode::Colour.good("x"), "\x1b[32mx\x1b[0m");
    }
}
