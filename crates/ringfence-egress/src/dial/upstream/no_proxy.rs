//! `NO_PROXY`: destinations reached without the proxy.

use std::net::IpAddr;

use crate::dial::DialHost;

/// Entries of `NO_PROXY`, parsed like curl; like Go, a name may begin with `*.` and end with a
/// port.
#[derive(Debug, Clone, Default)]
pub(super) struct NoProxyList {
    entries: Vec<NoProxyEntry>,
}

#[derive(Debug, Clone)]
enum NoProxyEntry {
    Everything,
    /// A block of addresses.
    Block(IpAddr, u8),
    /// A name and all below it, or with `*.` only those below; at one port, or at any.
    Name {
        name: String,
        apex: NoProxyApex,
        port: Option<u16>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoProxyApex {
    Included,
    Left,
}

impl NoProxyList {
    pub(super) fn parse(text: &str) -> NoProxyList {
        let words = text.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        NoProxyList { entries: words.filter_map(NoProxyEntry::parse).collect() }
    }

    /// True if no destination uses a proxy.
    pub(super) fn covers_everything(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, NoProxyEntry::Everything))
    }

    /// True if `host` is reached without the proxy.
    pub(super) fn covers(&self, host: &DialHost, port: u16) -> bool {
        let is_local = match host {
            DialHost::Address(address) => address.to_canonical().is_loopback(),
            DialHost::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        };
        is_local || self.entries.iter().any(|entry| entry.covers(host, port))
    }
}

impl NoProxyEntry {
    /// An unparsable entry covers nothing: the proxy then decides.
    fn parse(word: &str) -> Option<NoProxyEntry> {
        if word == "*" {
            return Some(NoProxyEntry::Everything);
        }
        if let Some((address, bits)) = word.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let bits = bits.parse().ok().filter(|bits| *bits <= width(address))?;
            return Some(NoProxyEntry::Block(address, bits));
        }
        if let Ok(address) = word.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Some(NoProxyEntry::Block(address, width(address)));
        }
        let (name, port) = match word.rsplit_once(':') {
            Some((name, port)) => (name, Some(port.parse().ok()?)),
            None => (word, None),
        };
        let below = name.strip_prefix("*.");
        let apex = if below.is_some() { NoProxyApex::Left } else { NoProxyApex::Included };
        let name = below
            .unwrap_or(name)
            .trim_start_matches('.')
            .trim_end_matches('.')
            .to_ascii_lowercase();
        (!name.is_empty()).then_some(NoProxyEntry::Name { name, apex, port })
    }

    fn covers(&self, host: &DialHost, at: u16) -> bool {
        match (self, host) {
            (NoProxyEntry::Everything, _) => true,
            (NoProxyEntry::Block(block, bits), DialHost::Address(address)) => {
                in_block(address.to_canonical(), *block, *bits)
            }
            (NoProxyEntry::Name { name, apex, port }, host) => {
                let shown = host.to_string();
                let within = shown.strip_suffix(name.as_str()).is_some_and(|rest| {
                    rest.ends_with('.') || (rest.is_empty() && *apex == NoProxyApex::Included)
                });
                within && port.is_none_or(|port| port == at)
            }
            (NoProxyEntry::Block(..), DialHost::Name(_)) => false,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn in_block(address: IpAddr, block: IpAddr, bits: u8) -> bool {
    match (address, block) {
        (IpAddr::V4(address), IpAddr::V4(block)) => {
            u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0)
                & (address.to_bits() ^ block.to_bits())
                == 0
        }
        (IpAddr::V6(address), IpAddr::V6(block)) => {
            u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
                & (address.to_bits() ^ block.to_bits())
                == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, covered: &[&str], others: &[&str]) {
        let exceptions = NoProxyList::parse(text);
        let host = |text: &str| {
            text.parse().map(DialHost::Address).unwrap_or_else(|_| DialHost::Name(text.into()))
        };
        for one in covered {
            assert!(exceptions.covers(&host(one), 443), "{one} by {text}");
        }
        for one in others {
            assert!(!exceptions.covers(&host(one), 443), "{one} by {text}");
        }
    }

    #[test]
    fn names_blocks_and_ports_are_matched() {
        check(
            "example.com",
            &["example.com", "a.example.com"],
            &["badexample.com", "example.com.evil.org", "10.0.0.1"],
        );
        check(".corp, *.lan", &["a.corp", "corp", "b.lan"], &["lan", "acorp"]);
        check(
            "10.0.0.0/8,fd00::/8 192.168.1.1",
            &["10.9.9.9", "fd12::1", "192.168.1.1", "::ffff:10.1.1.1"],
            &["11.0.0.1", "192.168.1.2", "fe80::1"],
        );
        check("0.0.0.0/0", &["1.2.3.4"], &["::2", "a.example"]);
        check("a.example:443,b.example:80", &["a.example"], &["b.example"]);
        check("*", &["a.example", "1.2.3.4"], &[]);
        check("10.0.0.0/40, /8, :", &[], &["10.0.0.1", "a.example"]);
    }

    #[test]
    fn localhost_never_uses_a_proxy() {
        check(
            "",
            &["127.0.0.1", "::1", "localhost", "a.localhost", "::ffff:127.0.0.1"],
            &["a.example"],
        );
    }
}
