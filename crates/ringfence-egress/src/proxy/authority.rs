//! Where a client wants to go, as text.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The longest host that is listened to: SOCKS can say no longer one, and a name has 253 at most.
const HOST: usize = 255;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyAuthority {
    /// As in [`super::Wish`].
    pub(super) host: String,
    pub(super) port: u16,
}

impl ProxyAuthority {
    /// A place of a name or an address as bytes. `None` where there is anything in it that no
    /// host has, and that somebody on the way might take for the end of it.
    pub(super) fn new(host: &[u8], port: u16) -> Option<ProxyAuthority> {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
        let named = !host.is_empty() && host.len() <= HOST && host.iter().all(plain);
        (named && port != 0)
            .then(|| ProxyAuthority { host: String::from_utf8_lossy(host).into_owned(), port })
    }

    pub(super) fn of_v4(address: Ipv4Addr, port: u16) -> Option<ProxyAuthority> {
        (port != 0).then(|| ProxyAuthority { host: address.to_string(), port })
    }

    pub(super) fn of_v6(address: Ipv6Addr, port: u16) -> Option<ProxyAuthority> {
        (port != 0).then(|| ProxyAuthority { host: address.to_string(), port })
    }

    /// `host:port`, or `host` with a port that is understood.
    pub(super) fn parse(text: &str, understood: Option<u16>) -> Option<ProxyAuthority> {
        if let Some(rest) = text.strip_prefix('[') {
            // No zone: `%` is nothing that an address can be read with.
            let (address, rest) = rest.split_once(']')?;
            let port = if rest.is_empty() { understood? } else { number(rest.strip_prefix(':')?)? };
            return ProxyAuthority::of_v6(address.parse().ok()?, port);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, number(port)?),
            None => (text, understood?),
        };
        ProxyAuthority::new(host.as_bytes(), port)
    }

    /// As it stands in a `Host` header.
    pub(super) fn authority(&self, understood: u16) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == understood { host } else { format!("{host}:{}", self.port) }
    }

    /// Whether both mean the same text.
    pub(super) fn is(&self, other: &ProxyAuthority) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

/// Digits and nothing else: `parse` would take a sign.
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
    fn places_are_read() {
        check("a.example:443", Some(("a.example", 443)));
        check("A.example", Some(("A.example", 80)));
        check("10.0.0.1:8080", Some(("10.0.0.1", 8080)));
        check("[::1]:8080", Some(("::1", 8080)));
        check("[2001:DB8::1]", Some(("2001:db8::1", 80)));
        check("0x7f000001:80", Some(("0x7f000001", 80)));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read() {
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
