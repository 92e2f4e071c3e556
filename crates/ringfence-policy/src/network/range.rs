//! Address ranges in CIDR notation.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses with a common prefix; a single address is a range, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpRange {
    first: IpAddr,
    bits: u8,
}

impl IpRange {
    /// The range of addresses that share the first `bits` bits of `address`; `None` if it has fewer
    /// bits.
    ///
    /// A range in `::ffff:0:0/96` becomes an IPv4 range.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        if bits > width(address) {
            return None;
        }
        let (address, bits) = match (address.to_canonical(), bits.checked_sub(96)) {
            (canonical @ IpAddr::V4(_), Some(left)) if address.is_ipv6() => (canonical, left),
            _ => (address, bits),
        };
        Some(Self { first: masked(address, bits), bits })
    }

    /// The range of one address.
    pub fn single(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self { first: address, bits: width(address) }
    }

    /// The first address.
    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// Length of the common prefix in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// True if the range contains `address`.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && masked(address, self.bits) == self.first
    }

    /// True if the range contains all of `other`.
    pub fn covers(&self, other: &IpRange) -> bool {
        other.bits >= self.bits && self.contains(other.first)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(bits.into())).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    }
}

/// A single address has no prefix length.
impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.bits == width(self.first) {
            self.first.fmt(f)
        } else {
            write!(f, "{}/{}", self.first, self.bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, bits: u8, expect: &str) {
        let range = IpRange::new(address.parse().unwrap(), bits);
        assert_eq!(range.map_or("none".to_owned(), |range| range.to_string()), expect);
    }

    #[test]
    fn range_clears_bits_after_prefix() {
        check("10.1.2.3", 8, "10.0.0.0/8");
        check("10.1.2.3", 32, "10.1.2.3");
        check("10.1.2.3", 0, "0.0.0.0/0");
        check("10.1.2.3", 33, "none");
        check("2001:db8::1", 32, "2001:db8::/32");
        check("2001:db8::1", 0, "::/0");
        check("::1", 129, "none");
        check("::ffff:10.0.0.0", 104, "10.0.0.0/8");
        check("::ffff:10.0.0.0", 90, "::ffc0:0:0/90");
    }

    #[test]
    fn range_contains_addresses_of_its_family_only() {
        let ten = IpRange::new("10.0.0.0".parse().unwrap(), 8).unwrap();
        assert!(ten.contains("10.255.0.1".parse().unwrap()));
        assert!(ten.contains("::ffff:10.0.0.1".parse().unwrap()));
        assert!(!ten.contains("11.0.0.0".parse().unwrap()));
        let all = IpRange::new("::".parse().unwrap(), 0).unwrap();
        assert!(!all.contains("10.0.0.1".parse().unwrap()) && !all.covers(&ten));
        let one = IpRange::single("10.0.0.1".parse().unwrap());
        assert!(ten.covers(&one) && ten.covers(&ten) && !one.covers(&ten));
    }
}
