//! Lines for which a shell would do nothing but start one program.

use std::ffi::OsString;

/// What bash does itself, and words that mean something to it.
const OF_BASH: &[&str] = &[
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
/// The same, but that the programs of these names do no more and no less.
const ALIKE: &[&str] = &["false", "true"];

/// The words of a line, if it is a command for bash that names one program of `PATH` and its
/// arguments, each letter of which stands for itself.
pub(crate) fn words(command: &[OsString]) -> Option<Vec<OsString>> {
    let [shell, flag, line] = command else { return None };
    if shell != "/bin/bash" || flag != "-c" {
        return None;
    }
    let line = line.to_str()?;
    let stands_for_itself =
        |letter: char| letter.is_ascii_alphanumeric() || " _-./,:=+@%".contains(letter);
    if !line.chars().all(stands_for_itself) {
        return None;
    }
    let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
    let program = *words.first()?;
    let is_name = program.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !program.contains(['/', '=', '%', ':']);
    let is_alike = ALIKE.contains(&program) && words.len() == 1;
    let is_of_bash = OF_BASH.contains(&program) || (ALIKE.contains(&program) && !is_alike);
    (is_name && !is_of_bash).then(|| words.into_iter().map(OsString::from).collect())
}

#[cfg(test)]
mod tests {
    use super::words;

    fn check(line: &str, expect: Option<&[&str]>) {
        let found = words(&["/bin/bash".into(), "-c".into(), line.into()]);
        let expect =
            expect.map(|words| words.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>());
        assert_eq!(found, expect, "{line}");
    }

    #[test]
    fn a_plain_line_is_its_words() {
        check("true", Some(&["true"]));
        check("python3 run.py --out=a,b x@y:1", Some(&["python3", "run.py", "--out=a,b", "x@y:1"]));
        check("  ls   -la  ", Some(&["ls", "-la"]));
    }

    #[test]
    fn whatever_means_something_to_bash_is_left_to_it() {
        for line in [
            "", "  ", "true x", "echo a", "cd x", "x=1", "x=1 ls", "ls *", "ls ~", "ls $x",
            "ls 'a b'", "ls \"a\"", "a|b", "a&", "a;b", "a\nb", "a\tb", "a>b", "(a)", "{ a", "! a",
            "[ a ]", "ls a\\ b", "ls {a,b}", "ls #x", "%1", "./x", "/bin/ls", "time ls", "ls é",
            "a^b", "",
        ] {
            check(line, None);
        }
        assert_eq!(words(&["/bin/sh".into(), "-c".into(), "ls".into()]), None);
        assert_eq!(words(&["ls".into()]), None);
    }

    #[test]
    fn no_builtin_and_no_keyword_of_bash_is_missing() {
        let told = std::process::Command::new("bash")
            .args(["-c", "compgen -b; compgen -k"])
            .output()
            .expect("bash is here");
        for word in String::from_utf8(told.stdout)
            .expect("words")
            .lines()
            .filter(|word| !["true", "false"].contains(word))
        {
            check(&format!("{word} x"), None);
            check(word, None);
        }
    }
}
