//! Addresses in names below `in-addr.arpa` and `ip6.arpa`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringfence_policy::HostName;

/// Meaning of such a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReverseName {
    Address(IpAddr),
    /// A node of the tree that is no address.
    Nothing,
}

/// `None` if `name` is not below one of the two.
pub(super) fn parse(name: &HostName) -> Option<ReverseName> {
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
    // The address parser rejects leading zeros, so each address has one spelling.
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
        assert_eq!(parse(&HostName::new(name).unwrap()), expect, "{name}");
    }

    #[test]
    fn reverse_name_gives_its_address() {
        let address = |text: &str| Some(ReverseName::Address(text.parse().unwrap()));
        check("16.0.18.198.in-addr.arpa", address("198.18.0.16"));
        check("1.0.0.127.IN-ADDR.arpa", address("127.0.0.1"));
        let nibbles = "0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.3.6.e.6.6.6.7.6.e.6.9.6.2.7.d.f";
        check(&format!("{nibbles}.ip6.arpa"), address("fd72:696e:6766:6e63::10"));
    }

    #[test]
    fn other_reverse_names_give_no_address() {
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
