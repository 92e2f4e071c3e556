//! Command lines for which a shell would only start one program.

use std::ffi::OsString;

/// Builtins and keywords of bash.
const BASH_WORDS: &[&str] = &[
    ".",
    ":",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];
/// Builtins with the same effect as the programs of these names.
const SAME_AS_PROGRAM: &[&str] = &["false", "true"];

/// The argv of a bash line that consists of one program of `PATH` and literal arguments.
pub(crate) fn direct_argv(command: &[OsString]) -> Option<Vec<OsString>> {
    let [shell, flag, line] = command else { return None };
    if shell != "/bin/bash" || flag != "-c" {
        return None;
    }
    let line = line.to_str()?;
    let is_literal =
        |letter: char| letter.is_ascii_alphanumeric() || " _-./,:=+@%".contains(letter);
    if !line.chars().all(is_literal) {
        return None;
    }
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let program = *words.first()?;
    let is_name = program.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !program.contains(['/', '=', '%', ':']);
    let is_same = SAME_AS_PROGRAM.contains(&program) && words.len() == 1;
    let is_bash_word =
        BASH_WORDS.contains(&program) || (SAME_AS_PROGRAM.contains(&program) && !is_same);
    (is_name && !is_bash_word).then(|| words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::direct_argv;

    fn check(line: &str, expect: Option<&[&str]>) {
        let found = direct_argv(&["/bin/bash".into(), "-c".into(), line.into()]);
        let expect =
            expect.map(|words| words.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>());
        assert_eq!(found, expect, "{line}");
    }

    #[test]
    fn plain_line_is_split_into_words() {
        check("true", Some(&["true"]));
        check("python3 run.py --out=a,b x@y:1", Some(&["python3", "run.py", "--out=a,b", "x@y:1"]));
        check("  ls   -la  ", Some(&["ls", "-la"]));
    }

    #[test]
    fn line_with_shell_syntax_keeps_the_shell() {
        for line in [
            "", "  ", "true x", "echo a", "cd x", "x=1", "x=1 ls", "ls *", "ls ~", "ls $x",
            "ls 'a b'", "ls \"a\"", "a|b", "a&", "a;b", "a\nb", "a\tb", "a>b", "(a)", "{ a", "! a",
            "[ a ]", "ls a\\ b", "ls {a,b}", "ls #x", "%1", "./x", "/bin/ls", "time ls", "ls é",
            "a^b", "",
        ] {
            check(line, None);
        }
        assert_eq!(direct_argv(&["/bin/sh".into(), "-c".into(), "ls".into()]), None);
        assert_eq!(direct_argv(&["ls".into()]), None);
    }

    #[test]
    fn every_bash_builtin_and_keyword_keeps_the_shell() {
        let output = std::process::Command::new("bash")
            .args(["-c", "compgen -b; compgen -k"])
            .output()
            .expect("bash is installed");
        for word in String::from_utf8(output.stdout)
            .expect("words")
            .lines()
            .filter(|word| !["true", "false"].contains(word))
        {
            check(&format!("{word} x"), None);
            check(word, None);
        }
    }
}
