//! The lines of the script.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The number under which a shell is given its script. It reads it under another one, and
/// closes this.
pub const SCRIPT: i32 = 63;

/// The number under which a shell tells that a command has ended.
pub const REPORT: i32 = 61;

/// A file in the sandbox through which every command goes: a shell can be made to return
/// from a file that it reads, whatever it is in the middle of, but not from what it was told
/// directly.
pub const RUNNER: &str = "/run/shell";

/// What stands in [`RUNNER`].
pub const RUNNER_TEXT: &str = "eval \"$__ringfence_line\"\n";

/// What is known of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// GNU bash.
    Bash,
    /// Any other that speaks as the standard says.
    Plain,
}

impl Kind {
    /// By the name of the program.
    pub fn of(program: &Path) -> Self {
        if program.file_name() == Some(OsStr::from_bytes(b"bash")) { Kind::Bash } else { Kind::Plain }
    }
}

/// A word that nobody has seen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(String);

impl Word {
    /// Out of bytes that nobody can guess.
    pub fn new(random: [u8; 16]) -> Self {
        Self(random.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Why something is no command for a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No shell can be told of it.
    #[error("the command has a NUL byte at position {0}, and no shell takes one")]
    Nul(usize),
}

/// What a shell is told first.
pub fn prelude(kind: Kind) -> String {
    let own = match kind {
        Kind::Bash => "shopt -s expand_aliases; ",
        Kind::Plain => "",
    };
    format!("{own}exec {SCRIPT}<&-; trap 'return 130' INT\n")
}

/// What a shell is told to run `line` through the file `runner`. `input` is where it reads
/// from, unless from what the shell reads from.
pub fn script(line: &[u8], word: &Word, runner: &str, input: Option<&str>) -> Result<Vec<u8>, LineError> {
    if let Some(at) = line.iter().position(|byte| *byte == 0) {
        return Err(LineError::Nul(at));
    }
    let mut script = Vec::with_capacity(line.len() + 128);
    script.extend_from_slice(b"__ringfence_line=");
    quote(line, &mut script);
    script.extend_from_slice(b"\n. ");
    script.extend_from_slice(runner.as_bytes());
    if let Some(input) = input {
        script.extend_from_slice(format!(" <{input}").as_bytes());
    }
    script.extend_from_slice(format!("\n\\command printf '%s %s' {} \"$?\" >&{REPORT}\n", word.0).as_bytes());
    Ok(script)
}

/// As one word of a shell, whatever is in it.
fn quote(text: &[u8], quoted: &mut Vec<u8>) {
    quoted.push(b'\'');
    for part in text.split_inclusive(|byte| *byte == b'\'') {
        match part.split_last() {
            Some((b'\'', before)) => {
                quoted.extend_from_slice(before);
                quoted.extend_from_slice(b"'\\''");
            }
            _ => quoted.extend_from_slice(part),
        }
    }
    quoted.push(b'\'');
}

/// The status of the command that was to say `word`, if that is what was said.
pub fn ended(said: &[u8], word: &Word) -> Option<i32> {
    let rest = said.strip_prefix(word.0.as_bytes())?.strip_prefix(b" ")?;
    std::str::from_utf8(rest).ok()?.parse().ok().filter(|status| (0..=255).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> Word {
        Word::new(*b"0123456789abcdef")
    }

    #[track_caller]
    fn check(line: &str, quoted: &str) {
        let mut got = Vec::new();
        quote(line.as_bytes(), &mut got);
        assert_eq!(String::from_utf8(got).unwrap(), quoted);
    }

    #[test]
    fn every_line_is_one_word() {
        check("", "''");
        check("a b", "'a b'");
        check("it's", "'it'\\''s'");
        check("''", "''\\'''\\'''");
        check("a\nb\\", "'a\nb\\'");
    }

    #[test]
    fn what_no_shell_takes_is_refused() {
        assert_eq!(script(b"ab\0c", &word(), RUNNER, None), Err(LineError::Nul(2)));
    }

    #[test]
    fn an_end_is_told_by_its_word_alone() {
        let said = |rest: &str| [word().0.as_bytes(), rest.as_bytes()].concat();
        assert_eq!(ended(&said(" 0"), &word()), Some(0));
        assert_eq!(ended(&said(" 255"), &word()), Some(255));
        for wrong in ["", " ", " 256", " -1", " 0 ", "0", " 0\n"] {
            assert_eq!(ended(&said(wrong), &word()), None, "{wrong}");
        }
        assert_eq!(ended(b"0 0", &word()), None);
    }
}
