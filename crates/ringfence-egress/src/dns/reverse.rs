//! Which address is meant by a name below `in-addr.arpa` and `ip6.arpa`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringfence_policy::HostName;

/// What such a name means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReverseName {
    Address(IpAddr),
    /// A part of the tree, or nothing at all.
    Nothing,
}

/// Nothing if `name` is not below one of the two.
pub(super) fn meant(name: &HostName) -> Option<ReverseName> {
    let labels: Vec<&str> = name.as_str().rsplit('.').collect();
    let address = match labels.as_slice() {
        ["arpa", "in-addr", octets @ ..] => v4(octets).map(IpAddr::V4),
        ["arpa", "ip6", nibbles @ ..] => v6(nibbles).map(IpAddr::V6),
        _ => return None,
    };
    Some(address.map_or(ReverseName::Nothing, ReverseName::Address))
}

fn v4(octets: &[&str]) -> Option<Ipv4Addr> {
    let octets: [&str; 4] = octets.try_into().ok()?;
    // The parser of addresses refuses zeros in front, of which only one spelling is right.
    octets.join(".").parse().ok()
}

fn v6(nibbles: &[&str]) -> Option<Ipv6Addr> {
    if nibbles.len() != 32 || nibbles.iter().any(|nibble| nibble.len() != 1) {
        return None;
    }
    u128::from_str_radix(&nibbles.concat(), 16).ok().map(Ipv6Addr::from_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expect: Option<ReverseName>) {
        assert_eq!(meant(&HostName::new(name).unwrap()), expect, "{name}");
    }

    #[test]
    fn addresses_are_read_backwards() {
        let address = |text: &str| Some(ReverseName::Address(text.parse().unwrap()));
        check("16.0.18.198.in-addr.arpa", address("198.18.0.16"));
        check("1.0.0.127.IN-ADDR.arpa", address("127.0.0.1"));
        let nibbles = "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.6.e.6.6.6.7.6.e.6.9.6.2.7.d.f";
        check(&format!("{nibbles}.ip6.arpa"), address("fd72:696e:6766:6e63::10"));
    }

    #[test]
    fn anything_else_there_means_nothing() {
        for name in [
            "in-addr.arpa",
            "0.18.198.in-addr.arpa",
            "1.16.0.18.198.in-addr.arpa",
            "016.0.18.198.in-addr.arpa",
        ] {
            check(name, Some(ReverseName::Nothing));
        }
        for name in ["ip6.arpa", "1.ip6.arpa", "_x._udp.0.0.127.in-addr.arpa"] {
            check(name, Some(ReverseName::Nothing));
        }
        check(&format!("{}.ip6.arpa", ["10"; 32].join(".")), Some(ReverseName::Nothing));
        check(&format!("{}.ip6.arpa", ["g"; 32].join(".")), Some(ReverseName::Nothing));
        check("arpa", None);
        check("in-addr.arpa.example", None);
    }
}
