//! The lines of the script.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_api::Errors;

/// A file in the sandbox through which every command goes: a shell can be made to return
/// from a file that it reads, whatever it is in the middle of, but not from what it was told
/// directly.
pub const RUNNER: &str = "/run/shell";

/// What stands in [`RUNNER`].
pub const RUNNER_TEXT: &str = "eval \"$__ringfence_line\"\n";

/// What is known of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellKind {
    /// GNU bash.
    Bash,
    /// The Z shell, in which `command` finds nothing that is built in.
    Zsh,
    /// Any other that speaks as the standard says.
    Plain,
}

impl ShellKind {
    /// By the name of the program.
    pub fn of(program: &Path) -> Self {
        match program.file_name().map(OsStr::as_bytes) {
            Some(b"bash") => ShellKind::Bash,
            Some(b"zsh") => ShellKind::Zsh,
            _ => ShellKind::Plain,
        }
    }

    /// The number under which a shell is given its script. It reads it under another one, and
    /// closes this. Not every shell knows numbers of two digits.
    pub fn script(self) -> i32 {
        match self {
            ShellKind::Bash => 63,
            ShellKind::Zsh | ShellKind::Plain => 8,
        }
    }

    /// The number under which a shell has what the next command is to read.
    pub fn input(self) -> i32 {
        match self {
            ShellKind::Bash => 62,
            ShellKind::Zsh | ShellKind::Plain => 7,
        }
    }

    /// `exec`, whatever else somebody has called so.
    fn exec(self) -> &'static str {
        match self {
            ShellKind::Bash | ShellKind::Plain => "\\command exec",
            ShellKind::Zsh => "\\builtin exec",
        }
    }

    /// The number under which a shell tells that a command has ended.
    pub fn report(self) -> i32 {
        match self {
            ShellKind::Bash => 61,
            ShellKind::Zsh | ShellKind::Plain => 9,
        }
    }
}

/// A word that nobody has seen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndMarker(String);

impl EndMarker {
    /// How long each is. A shell reads its script byte by byte, so each byte takes its time.
    pub const LENGTH: usize = 6;

    /// Out of bytes that nobody can guess.
    pub fn new(random: [u8; Self::LENGTH]) -> Self {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
        Self(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 64)])).collect())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Why something is no command for a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No shell can be told of it.
    #[error("the command has a NUL byte at position {0}, and no shell takes one")]
    Nul(usize),
}

/// How bash tells of an end: an alias, for it is quick, and a function by the same name for a
/// shell whose aliases somebody has taken away.
const TELL: &str = "@";

/// A function that sets `$?`: telling of an end sets it to 0, and the next command reads what the
/// one before it left.
const STATUS: &str = "__ringfence_status";

/// What a shell is told first.
pub fn prelude(kind: ShellKind, program: &[u8]) -> Vec<u8> {
    let (given, report) = (kind.script(), kind.report());
    let own = match kind {
        ShellKind::Bash => format!(
            "shopt -s expand_aliases; {TELL}() {{ builtin echo \" $?\" \"$1\" >&{report}; }}; alias {TELL}='\\builtin echo \" $?\" >&{report}'; "
        ),
        ShellKind::Zsh | ShellKind::Plain => String::new(),
    };
    // Some commands are not in a file, so there is nothing to return from: they need no help.
    let mut told = Vec::new();
    if kind == ShellKind::Bash {
        // Otherwise `$0` is the name of the pipe that it reads.
        told.extend_from_slice(b"BASH_ARGV0=");
        quote(program, &mut told);
        told.extend_from_slice(b"; ");
    }
    told.extend_from_slice(
        format!("{own}{STATUS}() {{ return \"$1\"; }}; exec {given}<&-; trap '{{ return 130; }} 2>/dev/null' INT\n").as_bytes(),
    );
    told
}

/// What a command reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinMode {
    /// What the shell does.
    AsTheShell,
    /// What the shell has under [`Kind::input`].
    Its,
}

/// A command for a shell, and what holds while it runs.
#[derive(Debug, Clone, Copy)]
pub struct ShellLine<'a> {
    /// The command.
    pub line: &'a [u8],
    /// Source of its standard input.
    pub reads: StdinMode,
    /// Where its standard error goes.
    pub errors: Errors,
    /// `$?` as the command finds it.
    pub status: i32,
}

/// Script by which a shell runs a command through the file `runner`.
pub fn script(
    kind: ShellKind,
    told: ShellLine<'_>,
    word: &EndMarker,
    runner: &str,
) -> Result<Vec<u8>, LineError> {
    let ShellLine { line, reads, errors, status } = told;
    if let Some(at) = line.iter().position(|byte| *byte == 0) {
        return Err(LineError::Nul(at));
    }
    let mut script = Vec::with_capacity(line.len() + 128);
    let input = kind.input();
    let is_direct = reads == StdinMode::AsTheShell && errors == Errors::Apart && status == 0;
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
        // If a command made that variable read-only, nothing runs, and not the line before.
        script.extend_from_slice(format!(" && . {runner}").as_bytes());
        if reads == StdinMode::Its {
            script.extend_from_slice(format!(" <&{input} {input}<&-").as_bytes());
        }
        if errors == Errors::WithOutput {
            script.extend_from_slice(b" 2>&1");
        }
    }
    script.push(b'\n');
    script.extend_from_slice(&telling(kind, word));
    if reads == StdinMode::Its {
        script.extend_from_slice(format!("{} {input}<&-\n", kind.exec()).as_bytes());
    }
    Ok(script)
}

/// What a shell is told to say that all before has ended.
pub fn telling(kind: ShellKind, word: &EndMarker) -> Vec<u8> {
    let report = kind.report();
    let word = word.text();
    match kind {
        ShellKind::Bash => format!("{TELL} {word}\n"),
        ShellKind::Zsh => format!("\\builtin print -ru{report} -- \" $?\" {word}\n"),
        ShellKind::Plain => format!("\\command printf ' %s %s\\n' \"$?\" >&{report} {word}\n"),
    }
    .into_bytes()
}

/// What a shell is told to open files under these numbers, each in its way.
pub fn refitting(kind: ShellKind, places: &[(i32, &str, String)]) -> String {
    let each: String =
        places.iter().map(|(number, how, path)| format!(" {number}{how}{path}")).collect();
    format!("{}{each}\n", kind.exec())
}

/// Whether `line` is one complete command, however a shell looks at it: a few words without
/// any quotes, operators or expansions. Such a one can be told as it is, which is quicker.
fn is_plain(line: &[u8]) -> bool {
    /// What begins something that goes on, and what means something else in a file.
    const MORE: &[&[u8]] = &[
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
    words.clone().all(is_word) && words.next().is_some_and(|first| !MORE.contains(&first))
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
    fn every_line_is_one_word() {
        check("", "''");
        check("a b", "'a b'");
        check("it's", "'it'\\''s'");
        check("''", "''\\'''\\'''");
        check("a\nb\\", "'a\nb\\'");
    }

    #[test]
    fn what_no_shell_takes_is_refused() {
        assert_eq!(
            script(
                ShellKind::Bash,
                ShellLine {
                    line: b"ab\0c",
                    reads: StdinMode::AsTheShell,
                    errors: Errors::Apart,
                    status: 0
                },
                &EndMarker::new([0; 6]),
                RUNNER
            ),
            Err(LineError::Nul(2))
        );
    }

    #[test]
    fn only_what_is_complete_however_one_looks_at_it_is_told_as_it_is() {
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
    fn words_are_as_long_as_they_are_said_to_be() {
        assert_eq!(EndMarker::new([255; 6]).text().len(), EndMarker::LENGTH);
        assert_ne!(EndMarker::new([1; 6]), EndMarker::new([2; 6]));
    }
}
