//! Data on standard output.

use std::env;
use std::io::{self, IsTerminal, Write};

use ringfence_api::is_hidden;
use serde::Serialize;

use crate::error::CliError;

/// Writes `text` unchanged.
///
/// A reader that closes the pipe early, such as `head`, is not an error.
pub(crate) fn print_text(text: &str) -> Result<(), CliError> {
    print_bytes(text.as_bytes())
}

/// Like [`text`], for bytes that need not be UTF-8.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CliError::File { what: "write to", path: "standard output".into(), source: error })
        }
        _ => Ok(()),
    }
}

/// Prints a value on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let text = serde_json::to_string(value).expect("the types of ringfence are JSON");
    print_text(&format!("{text}\n"))
}

/// The output style.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorMode {
    /// No colours.
    Plain,
    /// Colours.
    Colour,
}

impl ColorMode {
    /// Uses colours only on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
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

/// Formats `text` in exactly `width` columns: padded, or cut with an ellipsis.
///
/// Replaces control characters, which a file name may contain.
pub(crate) fn fit_cell(text: &str, width: usize) -> String {
    let clean = printable(text);
    let length = clean.chars().count();
    if length <= width {
        return format!("{clean}{}", " ".repeat(width - length));
    }
    clean.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Formats `text` on one line, without control characters. A newline becomes `\n`.
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

/// Formats a path for display: `~` for home.
pub(crate) fn tilde_path(
    path: &ringfence_policy::AbsPath,
    home: &ringfence_policy::AbsPath,
) -> String {
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
        assert_eq!(fit_cell(text, width), expect);
        assert_eq!(fit_cell(text, width).chars().count(), width);
    }

    #[test]
    fn cell_has_exactly_the_given_width() {
        check("ab", 4, "ab  ");
        check("abcd", 4, "abcd");
        check("abcde", 4, "abc…");
        check("é\x1b[31m", 4, "é\u{fffd}[…");
        check("", 2, "  ");
    }

    #[test]
    fn home_is_shown_as_tilde() {
        let path = |text: &str| AbsPath::new(text).unwrap();
        assert_eq!(tilde_path(&path("/home/me/x"), &path("/home/me")), "~/x");
        assert_eq!(tilde_path(&path("/home/me"), &path("/home/me")), "~");
        assert_eq!(tilde_path(&path("/home/meme"), &path("/home/me")), "/home/meme");
        assert_eq!(tilde_path(&path("/etc"), &path("/")), "/etc");
    }

    #[test]
    fn plain_output_has_no_escapes() {
        assert_eq!(ColorMode::Plain.bad("x"), "x");
        assert_eq!(ColorMode::Colour.good("x"), "\x1b[32mx\x1b[0m");
    }
}
