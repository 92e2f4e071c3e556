//! The server's URL, and request paths.

use super::RemoteError;

/// A parsed server URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceUrl {
    pub(super) is_secure: bool,
    /// The host, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path prefix, without a trailing slash.
    pub(super) base: String,
}

impl ServiceUrl {
    pub(super) fn parse(text: &str) -> Result<Self, RemoteError> {
        let wrong = |what: &'static str| RemoteError::Url { url: text.to_owned(), what };
        let (is_secure, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err(wrong("it must begin with http:// or https://")),
        };
        let (authority, base) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let is_plain = |c: char| c.is_ascii_graphic() && !"?#".contains(c);
        if !base.chars().all(is_plain) {
            return Err(wrong("it must not have a query or a fragment"));
        }
        if authority.contains('@') {
            return Err(wrong("it must not contain credentials"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or_else(|| wrong("a bracket is not closed"))?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty()
            || !host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:%".contains(c))
        {
            return Err(wrong("the host is missing or invalid"));
        }
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().map_err(|_| wrong("the port is invalid"))?,
            None if port.is_empty() => 80 + 363 * u16::from(is_secure),
            None => return Err(wrong("the port is invalid")),
        };
        Ok(Self {
            is_secure,
            host: host.to_owned(),
            port,
            base: base.trim_end_matches('/').to_owned(),
        })
    }

    /// Returns the value of the `Host` header: without a default port.
    pub(super) fn authority(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.is_secure, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Joins a request path. Escapes each part, so that a caller's value stays one segment.
pub(super) fn request_path(parts: &[&str]) -> String {
    parts.iter().map(|part| format!("/{}", escaped(part))).collect()
}

/// Formats the query string.
pub(super) fn query_string(choices: &[(&str, Option<String>)]) -> String {
    let pairs = choices
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", escaped(value.as_ref()?))));
    let all = pairs.collect::<Vec<_>>().join("&");
    if all.is_empty() { all } else { format!("?{all}") }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    // A segment of dots only would be normalized away.
    if !escaped.is_empty() && escaped.bytes().all(|byte| byte == b'.') {
        escaped.replace('.', "%2E")
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, authority: &str, base: &str) {
        let address = ServiceUrl::parse(text).unwrap();
        assert_eq!(
            (address.authority().as_str(), address.base.as_str()),
            (authority, base),
            "{text}"
        );
    }

    #[test]
    fn url_is_parsed() {
        check("http://127.0.0.1:7420", "127.0.0.1:7420", "");
        check("https://skills.example.org/", "skills.example.org", "");
        check("https://skills.example.org:443/at/here/", "skills.example.org", "/at/here");
        check("http://[::1]:80", "[::1]", "");
        for text in [
            "localhost:7420",
            "ftp://x",
            "http://",
            "http://a b",
            "http://u:p@x",
            "http://x:99999",
            "http://x?y",
            "http://[::1",
        ] {
            assert!(ServiceUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn caller_value_stays_one_segment() {
        assert_eq!(request_path(&["v1", "a/b", "..", "é?"]), "/v1/a%2Fb/%2E%2E/%C3%A9%3F");
        assert_eq!(query_string(&[("a", Some("b&c".into())), ("d", None)]), "?a=b%26c");
        assert_eq!(query_string(&[("d", None)]), "");
    }
}
