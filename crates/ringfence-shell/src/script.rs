//! Script lines for a persistent shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_api::Errors;

/// A file in the sandbox through which every command goes: an interrupted shell can return from a
/// file that it reads, but not from its script.
pub const RUNNER: &str = "/run/shell";

/// The content of [`RUNNER`].
pub const RUNNER_TEXT: &str = "eval \"$__ringfence_line\"\n";

/// The kind of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellKind {
    /// GNU bash.
    Bash,
    /// The Z shell, in which `command` finds no builtins.
    Zsh,
    /// Any other POSIX shell.
    Plain,
}

impl ShellKind {
    /// The kind by the name of the program.
    pub fn from_program(program: &Path) -> Self {
        match program.file_name().map(OsStr::as_bytes) {
            Some(b"bash") => ShellKind::Bash,
            Some(b"zsh") => ShellKind::Zsh,
            _ => ShellKind::Plain,
        }
    }

    /// The fd under which a shell is given its script. It reads the script under another one, and
    /// closes this. Not every shell supports fds of two digits.
    pub fn script(self) -> i32 {
        match self {
            ShellKind::Bash => 63,
            ShellKind::Zsh | ShellKind::Plain => 8,
        }
    }

    /// The fd of the input for the next command.
    pub fn input(self) -> i32 {
        match self {
            ShellKind::Bash => 62,
            ShellKind::Zsh | ShellKind::Plain => 7,
        }
    }

    /// The `exec` builtin, even if a function or alias has that name.
    fn exec(self) -> &'static str {
        match self {
            ShellKind::Bash | ShellKind::Plain => "\\command exec",
            ShellKind::Zsh => "\\builtin exec",
        }
    }

    /// The fd to which a shell reports the end of a command.
    pub fn report(self) -> i32 {
        match self {
            ShellKind::Bash => 61,
            ShellKind::Zsh | ShellKind::Plain => 9,
        }
    }
}

/// A fresh random marker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndMarker(String);

impl EndMarker {
    /// Length of a marker. A shell reads its script byte by byte, so each byte takes time.
    pub const LENGTH: usize = 6;

    /// A marker from random bytes.
    pub fn new(random: [u8; Self::LENGTH]) -> Self {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
        Self(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Reason why a text cannot be a shell command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A NUL byte.
    #[error("the command has a NUL byte at position {0}, which no shell accepts")]
    Nul(usize),
}

/// Name of bash's report: an alias, which is quick, and a function of the same name for a shell
/// whose aliases were removed.
const REPORT: &str = "@";

/// A function that sets `$?`: a report sets it to 0, but the next command must see the status of
/// the one before.
const STATUS: &str = "__ringfence_status";

/// The first lines of the script.
pub fn prelude(kind: ShellKind, program: &[u8]) -> Vec<u8> {
    let (given, report) = (kind.script(), kind.report());
    let own = match kind {
        ShellKind::Bash => format!(
            "shopt -s expand_aliases; {REPORT}() {{ builtin echo \" $?\" \"$1\" >&{report}; }}; alias {REPORT}='\\builtin echo \" $?\" >&{report}'; "
        ),
        ShellKind::Zsh | ShellKind::Plain => String::new(),
    };
    // A command outside of a file has nothing to return from, and needs no help.
    let mut script = Vec::new();
    if kind == ShellKind::Bash {
        // Otherwise `$0` is the name of the script's pipe.
        script.extend_from_slice(b"BASH_ARGV0=");
        quote(program, &mut script);
        script.extend_from_slice(b"; ");
    }
    script.extend_from_slice(
        format!("{own}{STATUS}() {{ return \"$1\"; }}; exec {given}<&-; trap '{{ return 130; }} 2>/dev/null' INT\n").as_bytes(),
    );
    script
}

/// Source of a command's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinMode {
    /// The shell's own input.
    AsTheShell,
    /// The fd [`ShellKind::input`] of the shell.
    Its,
}

/// A command for a shell, with its input, errors and status.
#[derive(Debug, Clone, Copy)]
pub struct ShellLine<'a> {
    /// The command.
    pub line: &'a [u8],
    /// Source of its standard input.
    pub reads: StdinMode,
    /// Target of its standard error.
    pub errors: Errors,
    /// `$?` as the command sees it.
    pub status: i32,
}

/// The script that runs a command through the file `runner`.
pub fn script(
    kind: ShellKind,
    command: ShellLine<'_>,
    word: &EndMarker,
    runner: &str,
) -> Result<Vec<u8>, LineError> {
    let ShellLine { line, reads, errors, status } = command;
    if let Some(at) = line.iter().position(|byte| *byte == 0) {
        return Err(LineError::Nul(at));
    }
    let mut script = Vec::with_capacity(line.len() + 128);
    let input = kind.input();
    let is_direct = reads == StdinMode::AsTheShell && errors == Errors::Separate && status == 0;
    if kind == ShellKind::Bash && is_direct && is_plain(line) {
        script.extend_from_slice(line);
    } else {
        script.extend_from_slice(b"__ringfence_line=");
        if status == 0 {
            quote(line, &mut script);
        } else {
            // On the left of `||` a failure neither ends a shell with `set -e` nor runs its ERR
            // trap. No reserved word: after some syntax errors bash takes `{` for a command.
            let mut after = format!("{STATUS} {status} || eval ").into_bytes();
            quote(line, &mut after);
            quote(&after, &mut script);
        }
        // If a command made that variable read-only, nothing runs, not even the line before.
        script.extend_from_slice(format!(" && . {runner}").as_bytes());
        if reads == StdinMode::Its {
            script.extend_from_slice(format!(" <&{input} {input}<&-").as_bytes());
        }
        if errors == Errors::WithOutput {
            script.extend_from_slice(b" 2>&1");
        }
    }
    script.push(b'\n');
    script.extend_from_slice(&report_line(kind, word));
    if reads == StdinMode::Its {
        script.extend_from_slice(format!("{} {input}<&-\n", kind.exec()).as_bytes());
    }
    Ok(script)
}

/// The line that reports the end of everything before it.
pub fn report_line(kind: ShellKind, word: &EndMarker) -> Vec<u8> {
    let report = kind.report();
    let word = word.text();
    match kind {
        ShellKind::Bash => format!("{REPORT} {word}\n"),
        ShellKind::Zsh => format!("\\builtin print -ru{report} -- \" $?\" {word}\n"),
        ShellKind::Plain => format!("\\command printf ' %s %s\\n' \"$?\" >&{report} {word}\n"),
    }
    .into_bytes()
}

/// The line that opens files under these fds, each with its redirection.
pub fn redirection_line(kind: ShellKind, redirections: &[(i32, &str, String)]) -> String {
    let each: String =
        redirections.iter().map(|(number, how, path)| format!(" {number}{how}{path}")).collect();
    format!("{}{each}\n", kind.exec())
}

/// True if `line` is one complete command in any context: a few words without quotes, operators or
/// expansions. It can be sent unchanged, which is quicker.
fn is_plain(line: &[u8]) -> bool {
    /// Words that begin an unfinished construct, or have another meaning in a file.
    const RESERVED: &[&[u8]] = &[
        b"break",
        b"case",
        b"continue",
        b"coproc",
        b"do",
        b"done",
        b"elif",
        b"else",
        b"esac",
        b"fi",
        b"for",
        b"function",
        b"if",
        b"in",
        b"return",
        b"select",
        b"then",
        b"time",
        b"until",
        b"while",
    ];
    let is_word = |word: &[u8]| {
        !word.is_empty()
            && word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_./:%+,=-".contains(byte))
    };
    let mut words = line.split(|byte| *byte == b' ');
    words.clone().all(is_word) && words.next().is_some_and(|first| !RESERVED.contains(&first))
}

/// Quotes a text as one shell word.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, quoted: &str) {
        let mut got = Vec::new();
        quote(line.as_bytes(), &mut got);
        assert_eq!(String::from_utf8(got).unwrap(), quoted);
    }

    #[test]
    fn every_line_is_quoted_as_one_word() {
        check("", "''");
        check("a b", "'a b'");
        check("it's", "'it'\\''s'");
        check("''", "''\\'''\\'''");
        check("a\nb\\", "'a\nb\\'");
    }

    #[test]
    fn nul_byte_is_refused() {
        assert_eq!(
            script(
                ShellKind::Bash,
                ShellLine {
                    line: b"ab\0c",
                    reads: StdinMode::AsTheShell,
                    errors: Errors::Separate,
                    status: 0
                },
                &EndMarker::new([0; 6]),
                RUNNER
            ),
            Err(LineError::Nul(2))
        );
    }

    #[test]
    fn only_a_complete_plain_command_is_sent_unchanged() {
        for plain in [
            "true",
            "cargo test --workspace -p a_b",
            "ls -l ./src/x.rs",
            "cd ..",
            "x=1",
            "export A=b:c",
            "exit 3",
        ] {
            assert!(is_plain(plain.as_bytes()), "{plain}");
        }
        for not in [
            "", " ", "a  b", "a ", " a", "a\n", "a\nb", "if", "return 9", "a;b", "a&", "$x", "'a'",
            "a\\", "<<E", "~", "!!", "#", "a*", "x=(1", "@ a", "\u{e9}",
        ] {
            assert!(!is_plain(not.as_bytes()), "{not}");
        }
    }

    #[test]
    fn markers_have_the_declared_length() {
        assert_eq!(EndMarker::new([255; 6]).text().len(), EndMarker::LENGTH);
        assert_ne!(EndMarker::new([1; 6]), EndMarker::new([2; 6]));
    }
}
