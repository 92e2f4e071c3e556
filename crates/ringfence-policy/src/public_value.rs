//! Values that a sandbox may see: URLs without a password or token.

use std::ffi::OsStr;

use crate::cargo_config::{CargoConfigView, filter_cargo_config};
use crate::presets::SECRET_WORDS;

/// True if `text` is a web URL without user, password, query or a part that looks like a token. A
/// text that is not understood is not public.
pub fn is_public_url(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:/+[]@%,=!".contains(c));
    let Some((scheme, rest)) = text.split_once("://").filter(|_| is_plain && !text.contains('%'))
    else {
        return false;
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_web = ["http", "https", "sparse+http", "sparse+https"].contains(&scheme);
    is_web
        && is_host(authority)
        && !path.contains("://")
        && path.split('/').all(|part| !looks_random(part))
}

/// True if every word of `text` is a public URL. Words are separated by whitespace or `separators`.
pub fn are_public_urls(text: &str, separators: &[char]) -> bool {
    let mut words = text
        .split(|c: char| c.is_whitespace() || separators.contains(&c))
        .filter(|word| !word.is_empty())
        .peekable();
    words.peek().is_some() && words.all(is_public_url)
}

/// The URL without possible secrets: removes user and password, and a path or query that may
/// contain a token. `None` if the host cannot be shown either.
///
/// If a registry were left out, the tool would use its default, the public one.
pub fn redact_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host)| host);
    let whole = format!("{scheme}://{host}{}", &rest[end..]);
    let origin = format!("{scheme}://{host}/");
    [whole, origin].into_iter().find(|url| is_public_url(url))
}

/// Like [`redact_url`] for every word of `text`; words accepted by `is_plain` stay unchanged.
/// `None` if one cannot be shown.
pub fn redact_urls(
    text: &str,
    separators: &[char],
    is_plain: impl Fn(&str) -> bool,
) -> Option<String> {
    let is_separator = |c: char| c.is_whitespace() || separators.contains(&c);
    let mut shown = String::new();
    for piece in text.split_inclusive(is_separator) {
        let word = piece.trim_end_matches(is_separator);
        // `team=https://…`
        let (name, url) = word
            .find("://")
            .and_then(|at| word[..at].rfind('='))
            .map_or(("", word), |at| word.split_at(at + 1));
        let is_name = name.len() <= 65
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.=".contains(c));
        match word {
            "" => {}
            plain if is_plain(plain) => shown.push_str(plain),
            _ if is_name => shown.push_str(&format!("{name}{}", redact_url(url)?)),
            _ => return None,
        }
        shown.push_str(&piece[word.len()..]);
    }
    (!shown.trim().is_empty()).then_some(shown)
}

/// True for `host`, `host:port` and `[v6]:port`: letters, digits and separators, without a user.
pub fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_name = |name: &str| {
        !name.is_empty()
            && name.len() <= 253
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._*".contains(c))
    };
    let is_v6 = |name: &str| {
        name.starts_with('[')
            && name.ends_with(']')
            && name[1..name.len() - 1].chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
    };
    is_port && (is_name(host) || is_v6(host)) && !host.split('.').any(looks_random)
}

/// True if a line of a tool's settings has a word for credentials, or a URL with a password.
pub fn mentions_secret(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| line.contains(word)) || has_password(&line)
}

/// True if the settings in a file of this name may have a secret, also in a comment.
///
/// `content` is `None` if the file is too large to be read.
pub fn holds_secret(file_name: &OsStr, content: Option<&[u8]>) -> bool {
    let Some(content) = content else { return true };
    if is_cargo_config(file_name) {
        let text = str::from_utf8(content);
        return !text.is_ok_and(|text| filter_cargo_config(text) == CargoConfigView::Original);
    }
    let text = String::from_utf8_lossy(content);
    text.lines().any(mentions_secret) || (file_name == "npmrc" && text.contains("_auth"))
}

/// True for the names of Cargo's configuration in its home directory.
pub fn is_cargo_config(file_name: &OsStr) -> bool {
    file_name == "config" || file_name == "config.toml"
}

/// True for an editor's copy of a file: `x~`, `x.bak`, `.x.swp`, `#x#`.
pub fn is_backup_name(name: &OsStr, original: &OsStr) -> bool {
    let (name, original) = (name.as_encoded_bytes(), original.as_encoded_bytes());
    let is_marked = |mark: &[u8]| {
        name.strip_prefix(mark)
            .and_then(|rest| rest.strip_prefix(original))
            .is_some_and(|end| matches!(end.first(), Some(b'~' | b'.' | b'#')))
    };
    [&b""[..], b".", b".#", b"#"].iter().any(|mark| is_marked(mark)) || is_lock(name, original)
}

/// True for the link that Emacs makes while a file is edited: `.#x`.
fn is_lock(name: &[u8], original: &[u8]) -> bool {
    name.strip_prefix(b".#") == Some(original)
}

/// True if a line has a URL with a password, or with a token as the user name.
fn has_password(line: &str) -> bool {
    line.match_indices("://").any(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let host = rest.split(['/', '?', '#', '"', '\'', ' ', '\t']).next().unwrap_or_default();
        let is_web = line[..at].ends_with("http") || line[..at].ends_with("https");
        host.rsplit_once('@')
            .is_some_and(|(user, _)| user.contains(':') || (is_web && user != "git"))
    })
}

/// True for a path part that is probably a token: 16 mixed letters and digits in a row, or 32
/// hexadecimal digits.
pub fn looks_random(part: &str) -> bool {
    let is_mixed = |run: &str| {
        run.len() >= 16
            && run.contains(|c: char| c.is_ascii_digit())
            && run.contains(|c: char| c.is_ascii_alphabetic())
    };
    let joined: String = part.chars().filter(|c| !"-_".contains(*c)).collect();
    let is_hex = joined.len() >= 32 && joined.chars().all(|c| c.is_ascii_hexdigit());
    is_hex
        || part.split(|c: char| !c.is_ascii_alphanumeric()).any(is_mixed)
        || part.contains('@') && !part.starts_with('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_urls_are_public() {
        for text in [
            "https://registry.npmjs.org/",
            "http://mirror.example:8081/repository/npm-group/",
            "https://artifactory.example.org/artifactory/api/pypi/pypi-virtual-2024/simple",
            "https://[fd00::1]:8443/simple",
            "sparse+https://index.example.org/",
            "https://proxy.golang.org",
            "https://npm.example.org/@scope/",
        ] {
            assert!(is_public_url(text), "{text}");
        }
    }

    #[test]
    fn urls_are_shown_without_secrets() {
        for (text, shown) in [
            ("https://pypi.example.org/simple", Some("https://pypi.example.org/simple")),
            ("https://me:secret@pypi.example.org/simple", Some("https://pypi.example.org/simple")),
            (
                "https://me:p@ss@pypi.example.org:8443/simple",
                Some("https://pypi.example.org:8443/simple"),
            ),
            ("https://token@pypi.example.org", Some("https://pypi.example.org")),
            ("https://dl.example.io/a8Gd93kfP0q2mZx7/simple", Some("https://dl.example.io/")),
            ("https://dl.example.io/simple?token=abc", Some("https://dl.example.io/")),
            ("https://dl.example.io?me@x", Some("https://dl.example.io/")),
            ("https://a8gd93kfp0q2mzx7.example.io/simple", None),
            ("https://me:secret@/", None),
            ("secret", None),
        ] {
            assert_eq!(redact_url(text).as_deref(), shown, "{text}");
        }
        let go = |text: &str| redact_urls(text, &[',', '|'], |word| word == "direct");
        assert_eq!(go("https://me:x@a.org,direct").as_deref(), Some("https://a.org,direct"));
        assert_eq!(go("secret,direct"), None);
        assert_eq!(
            redact_urls("team=https://me:x@a.org/s  https://b.org", &[], |_| false).as_deref(),
            Some("team=https://a.org/s  https://b.org")
        );
    }

    #[test]
    fn urls_with_secrets_are_not_public() {
        for text in [
            "https://me:secret@registry.example.org/",
            "https://token@registry.example.org/",
            "https://me%3Asecret%40registry.example.org/",
            "https://registry.example.org/?token=abc",
            "https://registry.example.org/#abc",
            "https://dl.example.io/a8Gd93kfP0q2mZx7/org/repo/",
            "https://dl.example.io/6f1ed002ab5595859014ebf0951522d9/simple",
            "https://dl.example.io/6f1ed002-ab55-9585-9014-ebf0951522d9/simple",
            "https://a8gd93kfp0q2mzx7.example.io/simple",
            "https://host/https://me:secret@other/",
            "https://host/me:secret@other",
            "ftp://host/",
            "//host/",
            "registry.example.org",
            "https://",
            "https://host:99999/",
            "https://host\\@evil/",
            "https://host/a b",
            "${REGISTRY}",
            "",
        ] {
            assert!(!is_public_url(text), "{text}");
        }
    }

    #[test]
    fn list_with_one_secret_url_is_not_public() {
        assert!(are_public_urls("https://a.org,https://b.org", &[',']));
        assert!(!are_public_urls("https://a.org https://me:x@b.org", &[]));
        assert!(!are_public_urls(" ", &[]));
    }

    #[test]
    fn urls_with_passwords_are_found() {
        for line in [
            "index = \"sparse+https://me:pw@crates.example.org/\"",
            "https://token@host/x",
            "proxy = http://a:b@proxy:3128",
        ] {
            assert!(has_password(line), "{line}");
        }
        for line in [
            "ssh://git@github.com/x",
            "https://git@github.com/x",
            "https://host/a@b",
            "https://host:8080/x",
            "a://b c@d",
        ] {
            assert!(!has_password(line), "{line}");
        }
    }

    #[test]
    fn comments_and_large_files_count_as_secret() {
        let check = |name: &str, content: &str, expect: bool| {
            let found = holds_secret(OsStr::new(name), Some(content.as_bytes()));
            assert_eq!(found, expect, "{name}: {content}");
        };
        check("npmrc", "# //npm.example.org/:_authToken=x\n", true);
        check("init.gradle", "// password = 'x'\n", true);
        check("init.gradle", "// plain\n", false);
        check("config.toml", "# plain\n", true);
        check("config.toml", "[net]\nretry = 3\n", false);
        assert!(holds_secret(OsStr::new("config.toml"), Some(b"[net]\n# \xff\n")));
        assert!(holds_secret(OsStr::new("pip.conf"), None));
    }

    #[test]
    fn backups_of_editors_are_known() {
        let check = |name: &str, expect: bool| {
            let found = is_backup_name(OsStr::new(name), OsStr::new("config.toml"));
            assert_eq!(found, expect, "{name}");
        };
        for backup in [
            "config.toml~",
            "config.toml.bak",
            "config.toml.orig",
            ".config.toml.swp",
            "#config.toml#",
            ".#config.toml",
        ] {
            check(backup, true);
        }
        for other in ["config.toml", "config", "config.tomlx", "registry", "xconfig.toml~"] {
            check(other, false);
        }
    }
}
