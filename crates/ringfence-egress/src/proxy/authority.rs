//! Parses the `host:port` a client requests.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest host: the limit of SOCKS; a name has at most 253.
const HOST: usize = 255;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyAuthority {
    /// As in [`super::ProxyRequest`].
    pub(super) host: String,
    pub(super) port: u16,
}

impl ProxyAuthority {
    /// From a name or address as bytes. `None` if it has a byte that no host has, which another
    /// parser could take for its end.
    pub(super) fn new(host: &[u8], port: u16) -> Option<ProxyAuthority> {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
        let named = !host.is_empty() && host.len() <= HOST && host.iter().all(plain);
        (named && port != 0)
            .then(|| ProxyAuthority { host: String::from_utf8_lossy(host).into_owned(), port })
    }

    pub(super) fn from_v4(address: Ipv4Addr, port: u16) -> Option<ProxyAuthority> {
        (port != 0).then(|| ProxyAuthority { host: address.to_string(), port })
    }

    pub(super) fn from_v6(address: Ipv6Addr, port: u16) -> Option<ProxyAuthority> {
        (port != 0).then(|| ProxyAuthority { host: address.to_string(), port })
    }

    /// Parses `host:port`, or `host` with a default port.
    pub(super) fn parse(text: &str, default_port: Option<u16>) -> Option<ProxyAuthority> {
        if let Some(rest) = text.strip_prefix('[') {
            // No zone: an address with `%` is rejected.
            let (address, rest) = rest.split_once(']')?;
            let port =
                if rest.is_empty() { default_port? } else { number(rest.strip_prefix(':')?)? };
            return ProxyAuthority::from_v6(address.parse().ok()?, port);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, number(port)?),
            None => (text, default_port?),
        };
        ProxyAuthority::new(host.as_bytes(), port)
    }

    /// The value of a `Host` header.
    pub(super) fn authority(&self, default_port: u16) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == default_port { host } else { format!("{host}:{}", self.port) }
    }

    /// True if both have the same port and the same host text.
    pub(super) fn is_same(&self, other: &ProxyAuthority) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

/// Parses digits only: `parse` would accept a sign.
fn number(text: &str) -> Option<u16> {
    let digits =
        !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<(&str, u16)>) {
        let found = ProxyAuthority::parse(text, Some(80));
        assert_eq!(
            found.as_ref().map(|place| (place.host.as_str(), place.port)),
            expect,
            "{text:?}"
        );
    }

    #[test]
    fn authorities_are_parsed() {
        check("a.example:443", Some(("a.example", 443)));
        check("A.example", Some(("A.example", 80)));
        check("10.0.0.1:8080", Some(("10.0.0.1", 8080)));
        check("[::1]:8080", Some(("::1", 8080)));
        check("[2001:DB8::1]", Some(("2001:db8::1", 80)));
        check("0x7f000001:80", Some(("0x7f000001", 80)));
    }

    #[test]
    fn ambiguous_authority_is_rejected() {
        let long = "a".repeat(256);
        for text in [
            "",
            ":80",
            "a:",
            "a:0",
            "a:65536",
            "a:+80",
            "a:80:80",
            "a b",
            "a\0b",
            "a\r\nHost: b",
            "a\tb",
            "u@a",
            "a/b",
            "a?b",
            "a#b",
            "a\\b",
            "a%2eb",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[fe80::1%eth0]:80",
            "::1",
            "[a.example]:80",
            "ä.example",
            "a,b",
            &long,
        ] {
            check(text, None);
        }
        assert_eq!(ProxyAuthority::parse("a.example", None), None);
    }
}
