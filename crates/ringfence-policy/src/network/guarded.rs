//! Addresses of the machine itself, of its local network, and of reserved ranges.
//!
//! A name is allowed because it is a host on the internet. Its DNS server can return any address,
//! so an address in a guarded range is reachable only if a rule allows the address itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::range::IpRange;

/// Kind of the guarded range that contains `address`, if any.
pub fn guarded_kind(address: IpAddr) -> Option<&'static str> {
    guarded_range(address).map(|guard| guard.what)
}

/// A guarded range around an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GuardedRange {
    pub(crate) what: &'static str,
    pub(crate) range: IpRange,
}

/// The narrowest guarded range that contains `address`.
pub(crate) fn guarded_range(address: IpAddr) -> Option<GuardedRange> {
    match address.to_canonical() {
        IpAddr::V4(address) => guard_v4(address),
        IpAddr::V6(address) => guard_v6(address),
    }
}

/// All addresses that a packet to `address` may reach, including itself: some IPv6 addresses embed
/// an IPv4 address, and routers extract it.
pub(crate) fn reachable_addresses(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let address = address.to_canonical();
    let wrapped = match address {
        IpAddr::V4(_) => [None, None],
        IpAddr::V6(address) => {
            embedded_v4(address).map(|wrapped| wrapped.map(|(address, _)| IpAddr::V4(address)))
        }
    };
    [Some(address)].into_iter().chain(wrapped).flatten()
}

/// Narrow ranges before the ranges that contain them.
const V4: &[(&str, Ipv4Addr, u8)] = &[
    ("cloud metadata service", Ipv4Addr::new(169, 254, 169, 254), 32),
    ("cloud metadata service", Ipv4Addr::new(169, 254, 169, 253), 32),
    ("cloud metadata service", Ipv4Addr::new(169, 254, 170, 2), 32),
    ("cloud metadata service", Ipv4Addr::new(169, 254, 170, 23), 32),
    ("cloud metadata service", Ipv4Addr::new(168, 63, 129, 16), 32),
    ("cloud metadata service", Ipv4Addr::new(100, 100, 100, 200), 32),
    ("cloud metadata service", Ipv4Addr::new(192, 0, 0, 192), 32),
    ("loopback", Ipv4Addr::new(127, 0, 0, 0), 8),
    ("private", Ipv4Addr::new(10, 0, 0, 0), 8),
    ("private", Ipv4Addr::new(172, 16, 0, 0), 12),
    ("private", Ipv4Addr::new(192, 168, 0, 0), 16),
    ("carrier-grade NAT", Ipv4Addr::new(100, 64, 0, 0), 10),
    ("link-local", Ipv4Addr::new(169, 254, 0, 0), 16),
    ("protocol assignments", Ipv4Addr::new(192, 0, 0, 0), 24),
    ("for 6to4 relays", Ipv4Addr::new(192, 88, 99, 0), 24),
    ("documentation", Ipv4Addr::new(192, 0, 2, 0), 24),
    ("documentation", Ipv4Addr::new(198, 51, 100, 0), 24),
    ("documentation", Ipv4Addr::new(203, 0, 113, 0), 24),
    ("benchmarking", Ipv4Addr::new(198, 18, 0, 0), 15),
    ("multicast", Ipv4Addr::new(224, 0, 0, 0), 4),
    ("broadcast", Ipv4Addr::BROADCAST, 32),
    ("reserved", Ipv4Addr::new(240, 0, 0, 0), 4),
    // The whole range: Linux uses the first address for itself, and the others are unassigned.
    ("unspecified", Ipv4Addr::UNSPECIFIED, 8),
];

/// Narrow ranges before the ranges that contain them.
const V6: &[(&str, Ipv6Addr, u8)] = &[
    ("unspecified", Ipv6Addr::UNSPECIFIED, 128),
    ("loopback", Ipv6Addr::LOCALHOST, 128),
    ("cloud metadata service", Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128),
    ("cloud metadata service", Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23), 128),
    ("cloud metadata service", Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    ("cloud metadata service", Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42), 128),
    ("private", Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    ("link-local", Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    ("private", Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10),
    ("multicast", Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
    ("documentation", Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    ("documentation", Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    ("benchmarking", Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48),
    ("protocol assignments", Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28),
    ("discarded", Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64),
    // Only the local network knows the translator and the resulting addresses.
    ("local-use NAT64", Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48),
    ("segment routing", Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16),
];

fn guard_v4(address: Ipv4Addr) -> Option<GuardedRange> {
    let found = |(what, first, bits): &(&'static str, Ipv4Addr, u8)| {
        let range = IpRange::new(IpAddr::V4(*first), *bits)?;
        range.contains(IpAddr::V4(address)).then_some(GuardedRange { what, range })
    };
    V4.iter().find_map(found)
}

fn guard_v6(address: Ipv6Addr) -> Option<GuardedRange> {
    let found = |(what, first, bits): &(&'static str, Ipv6Addr, u8)| {
        let range = IpRange::new(IpAddr::V6(*first), *bits)?;
        range.contains(IpAddr::V6(address)).then_some(GuardedRange { what, range })
    };
    V6.iter().find_map(found).or_else(|| {
        embedded_v4(address)
            .into_iter()
            .flatten()
            .find_map(|wrapped| guard_embedded(address, wrapped))
    })
}

/// The guarded range of an embedded IPv4 address.
fn guard_embedded(
    address: Ipv6Addr,
    (inner, offset): (Ipv4Addr, Option<u8>),
) -> Option<GuardedRange> {
    let GuardedRange { what, range } = guard_v4(inner)?;
    let around = offset.and_then(|offset| IpRange::new(IpAddr::V6(address), offset + range.bits()));
    Some(GuardedRange {
        what,
        range: around.unwrap_or_else(|| IpRange::single(IpAddr::V6(address))),
    })
}

/// The IPv4 addresses in an IPv6 address, each with the number of bits before it if it is embedded
/// unchanged.
fn embedded_v4(address: Ipv6Addr) -> [Option<(Ipv4Addr, Option<u8>)>; 2] {
    let parts = address.segments();
    let at = |i: usize| Ipv4Addr::from(u32::from(parts[i]) << 16 | u32::from(parts[i + 1]));
    match parts {
        // Compatible (RFC 4291), translated (RFC 2765), and NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            [Some((at(6), Some(96))), None]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some((at(1), Some(16))), None],
        // Teredo (RFC 4380): the server, and the client with all bits inverted.
        [0x2001, 0, ..] => {
            [Some((at(2), Some(32))), Some((Ipv4Addr::from(!u32::from(at(6))), None))]
        }
        // ISATAP (RFC 5214).
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => [Some((at(6), Some(96))), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, expect: Option<&str>) {
        let address = address.parse().unwrap();
        assert_eq!(guarded_kind(address), expect, "{address}");
        assert!(
            guarded_range(address).is_none_or(|guard| guard.range.contains(address)),
            "{address}"
        );
    }

    #[test]
    fn local_and_private_addresses_are_guarded() {
        check("127.0.0.1", Some("loopback"));
        check("127.255.255.254", Some("loopback"));
        check("::1", Some("loopback"));
        check("::ffff:127.0.0.1", Some("loopback"));
        check("10.0.0.1", Some("private"));
        check("172.31.255.255", Some("private"));
        check("172.32.0.0", None);
        check("192.168.1.1", Some("private"));
        check("fd12::1", Some("private"));
        check("100.64.0.1", Some("carrier-grade NAT"));
        check("100.128.0.1", None);
        check("169.254.1.1", Some("link-local"));
        check("fe80::1", Some("link-local"));
        check("169.254.169.254", Some("cloud metadata service"));
        check("fd00:ec2::254", Some("cloud metadata service"));
        check("0.0.0.0", Some("unspecified"));
        check("0.1.2.3", Some("unspecified"));
        check("::", Some("unspecified"));
    }

    #[test]
    fn reserved_addresses_are_guarded() {
        check("224.0.0.1", Some("multicast"));
        check("ff02::1", Some("multicast"));
        check("255.255.255.255", Some("broadcast"));
        check("240.0.0.1", Some("reserved"));
        check("198.19.0.1", Some("benchmarking"));
        check("198.20.0.1", None);
        check("192.0.2.1", Some("documentation"));
        check("2001:db8::1", Some("documentation"));
    }

    #[test]
    fn public_addresses_are_not_guarded() {
        check("1.1.1.1", None);
        check("93.184.216.34", None);
        check("2606:4700:4700::1111", None);
        check("2a00:1450:4001::1", None);
    }

    #[test]
    fn embedded_ipv4_address_decides_guard_of_ipv6() {
        check("64:ff9b::10.0.0.1", Some("private"));
        check("64:ff9b::8.8.8.8", None);
        check("64:ff9b:1::8.8.8.8", Some("local-use NAT64"));
        check("::10.0.0.1", Some("private"));
        check("::ffff:0:127.0.0.1", Some("loopback"));
        check("2002:7f00:1::1", Some("loopback"));
        check("2002:808:808::1", None);
        check("2001:0:a00:1::", Some("private"));
        check("2001:0:808:808:0:0:80ff:fffe", Some("loopback"));
        check("2001:0:808:808:0:0:f7f7:f7f7", None);
        check("2a00::5efe:169.254.169.254", Some("cloud metadata service"));
        let private = guarded_range("64:ff9b::10.1.0.1".parse().unwrap()).unwrap();
        assert_eq!(private.range.to_string(), "64:ff9b::a00:0/104");
    }

    #[test]
    fn narrow_guarded_ranges_come_first() {
        let ranges = |list: Vec<IpAddr>| {
            list.into_iter()
                .map(|address| guarded_range(address).unwrap().range.first())
                .collect::<Vec<_>>()
        };
        let v4: Vec<IpAddr> = V4.iter().map(|(_, first, _)| IpAddr::V4(*first)).collect();
        let v6: Vec<IpAddr> = V6.iter().map(|(_, first, _)| IpAddr::V6(*first)).collect();
        assert_eq!(ranges(v4.clone()), v4);
        assert_eq!(ranges(v6.clone()), v6);
    }
}
