//! Values that can be shown to a sandbox: addresses without a password or token in them.

/// True if `text` is an address of the web without user, password, query or a part that looks like a
/// token. What is not understood is not public.
pub fn is_public_url(text: &str) -> bool {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:/+[]@%,=!".contains(c));
    let Some((scheme, rest)) = text.split_once("://").filter(|_| is_plain && !text.contains('%')) else { return false };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_web = ["http", "https", "sparse+http", "sparse+https"].contains(&scheme);
    is_web && is_host(authority) && !path.contains("://") && path.split('/').all(|part| !looks_random(part))
}

/// True if every word of `text` is a public address. Words stand between white space or `separators`.
pub fn are_public_urls(text: &str, separators: &[char]) -> bool {
    let mut words = text.split(|c: char| c.is_whitespace() || separators.contains(&c)).filter(|word| !word.is_empty()).peekable();
    words.peek().is_some() && words.all(is_public_url)
}

/// True for `host`, `host:port` and `[v6]:port`: letters of names and numbers, no user before it.
pub fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let is_name =
        |name: &str| !name.is_empty() && name.len() <= 253 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._*".contains(c));
    let is_v6 = |name: &str| {
        name.starts_with('[') && name.ends_with(']') && name[1..name.len() - 1].chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
    };
    is_port && (is_name(host) || is_v6(host)) && !host.split('.').any(looks_random)
}

/// True for a part of a path that is likely a token: 16 letters and digits mixed without a break, or
/// 32 hexadecimal digits.
pub(crate) fn looks_random(part: &str) -> bool {
    let is_mixed =
        |run: &str| run.len() >= 16 && run.contains(|c: char| c.is_ascii_digit()) && run.contains(|c: char| c.is_ascii_alphabetic());
    let joined: String = part.chars().filter(|c| !"-_".contains(*c)).collect();
    let is_hex = joined.len() >= 32 && joined.chars().all(|c| c.is_ascii_hexdigit());
    is_hex || part.split(|c: char| !c.is_ascii_alphanumeric()).any(is_mixed) || part.contains('@') && !part.starts_with('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mirrors_are_public() {
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
    fn addresses_with_anything_secret_are_not() {
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
    fn one_secret_address_spoils_a_list() {
        assert!(are_public_urls("https://a.org,https://b.org", &[',']));
        assert!(!are_public_urls("https://a.org https://me:x@b.org", &[]));
        assert!(!are_public_urls(" ", &[]));
    }
}
