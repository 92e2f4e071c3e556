//! Values of git settings that cannot hold a password or token.
//!
//! An allow list decides. A filter may be `openssl enc -k PASSWORD`, and no list of options that
//! take a password is complete.

/// Prefixes of the tokens of well-known services.
const TOKENS: &[&str] =
    &["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "akia", "xox", "sk-", "npm_", "pypi-"];

/// Words that git and git-lfs define as values.
const SETTING_WORDS: &[&str] = &[
    "true", "false", "yes", "no", "on", "off", "auto", "always", "never", "all", "none", "normal",
    "short", "long", "column", "row", "plain", "dense", "nodense", "copies", "renames", "log",
];

/// Arguments of filters: the operation, the name of the file, and standard input.
const FILTER_WORDS: &[&str] = &[
    "--",
    "-",
    ".",
    "%f",
    "clean",
    "smudge",
    "process",
    "filter-process",
    "filter",
    "encrypt",
    "decrypt",
    "format",
    "fmt",
    "strip",
    "nbstripout",
    "jupytext",
    "nbconvert",
];

/// File extensions of scripts that an interpreter gets.
const SCRIPTS: &[&str] = &[".py", ".sh", ".pl", ".rb", ".js", ".jq"];

/// Settings with free text about the user.
const FREE: &[&str] = &["user.", "author.", "committer."];

/// The value of `section.key` without its comment; `None` if it may hold a secret.
pub(super) fn shown_value<'a>(section: &str, key: &str, value: &'a str) -> Option<&'a str> {
    let value = without_comment(value)?;
    let name = format!("{section}.{key}");
    let is_fine = match key {
        "clean" | "smudge" | "process" if section.starts_with("filter ") => is_plain_command(value),
        "required" if section.starts_with("filter ") => is_known(value),
        _ if FREE.iter().any(|prefix| name.starts_with(prefix)) => true,
        _ if ["status", "column", "color", "advice", "lfs"].contains(&section) => is_known(value),
        _ => {
            value.len() <= 64
                && value.chars().all(|c| c.is_ascii_alphanumeric() || "_.,:%/+- \"".contains(c))
        }
    };
    (is_fine && !may_hold_secret(key, value)).then_some(value)
}

/// The value up to a `#` or `;` outside quotes; `None` for a quote that does not end.
fn without_comment(value: &str) -> Option<&str> {
    let mut is_quoted = false;
    let mut is_escaped = false;
    for (at, c) in value.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '#' | ';' if !is_quoted => return Some(value[..at].trim()),
            _ => {}
        }
    }
    (!is_quoted && !is_escaped).then(|| value.trim())
}

/// True for words that git and git-lfs define, and for numbers.
fn is_known(value: &str) -> bool {
    let value = value.trim_matches('"').to_ascii_lowercase();
    value
        .split([' ', ','])
        .all(|word| word.is_empty() || SETTING_WORDS.contains(&word) || is_number(word))
}

/// True for a number of at most nine digits, with a unit or without.
fn is_number(word: &str) -> bool {
    let digits = word.strip_suffix(['k', 'm', 'g', '%']).unwrap_or(word);
    (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// True for a program with arguments that can hold no secret: [`FILTER_WORDS`], scripts, options
/// without a value and small numbers.
fn is_plain_command(value: &str) -> bool {
    // git removes the quotes around a value, and the shell those around a word.
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value)
        .replace("\\\"", "\"");
    let mut words = inner
        .split_whitespace()
        .map(|word| word.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(word));
    words.next().is_some_and(is_program) && words.all(is_plain_argument)
}

/// True for the name or path of a program.
fn is_program(word: &str) -> bool {
    let path = word.strip_prefix("~/").unwrap_or(word);
    !path.is_empty()
        && !path.starts_with('-')
        && path.chars().all(|c| c.is_ascii_alphanumeric() || "_./%-".contains(c))
}

fn is_plain_argument(word: &str) -> bool {
    let is_script = SCRIPTS.iter().any(|ending| word.ends_with(ending)) && is_program(word);
    let is_small = word.len() <= 2 && is_number(word);
    FILTER_WORDS.contains(&word) || is_script || is_small || is_plain_option(word)
}

/// True for `-m` or `--keep-output`, false for `-pPASSWORD` and `--key=PASSWORD`.
fn is_plain_option(word: &str) -> bool {
    let is_short = word
        .strip_prefix('-')
        .is_some_and(|name| name.len() == 1 && name.bytes().all(|byte| byte.is_ascii_alphabetic()));
    let is_long = word.strip_prefix("--").is_some_and(|name| {
        name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
    });
    is_short || is_long
}

/// True if a value looks like a password or token: by its key, a word before `=`, a URL with a
/// password, the prefix of a token, or a long word of letters and digits.
fn may_hold_secret(key: &str, value: &str) -> bool {
    const WORDS: [&str; 6] = ["password", "passwd", "token", "secret", "apikey", "authorization"];
    const LONG: usize = 32;
    let lower = value.to_ascii_lowercase();
    let has_word = |text: &str| WORDS.iter().any(|word| text.contains(word));
    let is_long = |word: &str| {
        let is_key =
            word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+' | '='));
        word.len() >= LONG
            && is_key
            && word.contains(|c: char| c.is_ascii_digit())
            && word.contains(|c: char| c.is_ascii_alphabetic())
    };
    let mut words = lower.split(|c: char| {
        c.is_whitespace() || matches!(c, '"' | '\'' | '/' | ':' | '@' | ',' | ';')
    });
    let has_login = lower.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    has_word(key)
        || has_word(&lower)
        || has_login
        || words.any(|word| is_long(word) || TOKENS.iter().any(|token| word.starts_with(token)))
}

#[cfg(test)]
mod tests {
    use super::shown_value;

    #[test]
    fn commands_of_well_known_filters_pass() {
        for value in [
            "git-lfs clean -- %f",
            "git-lfs smudge -- %f",
            "git-lfs smudge --skip -- %f",
            "git-lfs filter-process",
            "git-lfs filter-process --skip",
            "git-crypt clean",
            r#"\"git-crypt\" smudge"#,
            r#""\"git-crypt\" clean""#,
            "nbstripout",
            "nbstripout --keep-output -t",
            r#"\"/usr/bin/python3.12\" -m nbstripout"#,
            "/home/me/.venv/bin/python -m nbstripout",
            "jq --indent 1 .",
            "cat",
            "~/bin/strip clean %f",
            "python3 tools/strip.py clean",
        ] {
            assert_eq!(shown_value("filter \"x\"", "clean", value), Some(value));
        }
    }

    #[test]
    fn arguments_that_may_be_a_secret_do_not_pass() {
        for value in [
            "openssl enc -aes-256-cbc -k hunter2 -a",
            "gpg --batch --passphrase hunter3 -d",
            "vault --api-key=hunter4 -u admin:hunter5",
            "PASS=hunter2 crypt",
            "env PASS=hunter2 crypt",
            "crypt --pwd hunter2",
            "crypt --pass hunter2",
            "crypt --bearer hunter2",
            "crypt -phunter2",
            "crypt --hunter2",
            "crypt hunter2",
            "crypt 123456",
            "crypt 'clean' hunter2",
            "crypt $(echo hunter2)",
            "curl https://host/?key=hunter2&sig=x",
            "x --token=abc",
            "x https://me:pw@host/",
            "x ghp_abcdef",
            "x 0123456789abcdef0123456789abcdef",
            "",
        ] {
            assert_eq!(shown_value("filter \"x\"", "clean", value), None, "{value}");
            assert_eq!(
                shown_value("filter \"x\"", "process", &format!("\"{value}\"")),
                None,
                "{value}"
            );
        }
    }

    #[test]
    fn comments_are_cut() {
        assert_eq!(shown_value("filter \"x\"", "required", " true ; pw hunter6"), Some("true"));
        assert_eq!(
            shown_value("filter \"x\"", "clean", " git-crypt clean # hunter6"),
            Some("git-crypt clean")
        );
        assert_eq!(shown_value("user", "name", " A B # hunter6"), Some("A B"));
        assert_eq!(shown_value("user", "name", " \"A; B\" ; hunter6"), Some("\"A; B\""));
        assert_eq!(shown_value("user", "name", " \"A; hunter6"), None);
    }

    #[test]
    fn settings_take_the_words_that_git_defines() {
        for (section, key, value) in [
            ("lfs", "concurrenttransfers", "8"),
            ("status", "showuntrackedfiles", "all"),
            ("column", "ui", "auto column"),
            ("color", "ui", "auto"),
            ("advice", "detachedhead", "false"),
            ("log", "date", "format:%Y-%m-%d"),
            ("branch", "sort", "-committerdate"),
            ("core", "whitespace", "trailing-space,-space-before-tab"),
            ("core", "quotepath", "off"),
            ("init", "defaultbranch", "main"),
        ] {
            assert_eq!(shown_value(section, key, value), Some(value));
        }
        for (section, key, value) in [
            ("lfs", "url", "https://host/lfs?sig=hunter2"),
            ("lfs", "url", "https://host/lfs"),
            ("status", "x", "hunter2"),
            ("advice", "x", "hunter2"),
            ("lfs", "password", "1234"),
            ("init", "defaultbranch", "x?sig=y"),
        ] {
            assert_eq!(shown_value(section, key, value), None, "{value}");
        }
    }
}
