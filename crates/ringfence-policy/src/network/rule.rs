//! Entries of `allow` and `deny`, parsed.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::guarded::reachable_addresses;
use super::name::{HostName, HostNameError};
use super::range::IpRange;

/// A host pattern with an optional port: `example.org`, `*.example.org`, `example.org:443`,
/// `192.0.2.1`, `10.0.0.0/8:5432`, `[2001:db8::1]:443`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostRule {
    /// The hosts that the rule matches.
    pub subject: HostPattern,
    /// The port that the rule matches; `None` matches all ports.
    pub port: Option<u16>,
}

/// Hosts that a rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Exactly this name.
    Name(HostName),
    /// All subdomains of this name, without the name itself.
    Below(HostName),
    /// A range of addresses.
    Range(IpRange),
}

/// Reason for which an entry is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum HostRuleError {
    #[error("it is empty")]
    Empty,
    #[error("it is a URL")]
    Url { host: String },
    #[error("it has a path, but a rule applies to a whole host")]
    Path { host: String, position: usize },
    #[error("it matches every host")]
    Everything,
    #[error("`*` is only allowed as the first label")]
    Wildcard { position: usize },
    #[error("`{text}` is no port")]
    Port { text: String, position: usize },
    #[error("`{text}` is no prefix length")]
    Length { text: String, position: usize, longest: u8 },
    #[error("the address has bits set after the prefix")]
    NotFirst { range: IpRange },
    #[error("`{text}` is no address")]
    Address { text: String, position: usize },
    #[error("an IPv6 address with a port needs brackets")]
    Brackets { position: usize },
    #[error("{problem}")]
    Name { problem: HostNameError, position: usize },
}

impl HostRuleError {
    /// Byte offset of the error in the text, if it has one position.
    pub fn position(&self) -> Option<usize> {
        match self {
            HostRuleError::Wildcard { position }
            | HostRuleError::Path { position, .. }
            | HostRuleError::Port { position, .. }
            | HostRuleError::Length { position, .. }
            | HostRuleError::Address { position, .. }
            | HostRuleError::Brackets { position } => Some(*position),
            HostRuleError::Name { problem, position } => {
                problem.position().map(|within| position + within)
            }
            HostRuleError::Empty
            | HostRuleError::Url { .. }
            | HostRuleError::Everything
            | HostRuleError::NotFirst { .. } => None,
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> String {
        match self {
            HostRuleError::Empty => {
                "write `host`, `*.host`, `host:port`, an address or a CIDR range, or remove it"
                    .into()
            }
            HostRuleError::Url { host } | HostRuleError::Path { host, .. } => {
                format!("write the host alone: `{host}`")
            }
            HostRuleError::Everything => {
                "to allow all hosts use `mode = \"full\"`, to allow none `mode = \"none\"`".into()
            }
            HostRuleError::Wildcard { .. } => {
                "write `*.example.org` for all subdomains, and `example.org` for the domain itself"
                    .into()
            }
            HostRuleError::Port { .. } => {
                "write a port from 1 to 65535, or no port for all ports".into()
            }
            HostRuleError::Length { longest, .. } => {
                format!("write a prefix length from 0 to {longest}")
            }
            HostRuleError::NotFirst { range } => {
                format!("write `{range}`, or the address without a prefix length")
            }
            HostRuleError::Address { .. } => {
                "write an address such as `192.0.2.1` or `2001:db8::1`".into()
            }
            HostRuleError::Brackets { .. } => "write it as `[2001:db8::1]:443`".into(),
            HostRuleError::Name { problem, .. } => problem.hint(),
        }
    }
}

impl HostRule {
    /// Parses an entry.
    pub fn parse(text: &str) -> Result<Self, HostRuleError> {
        if text.trim().is_empty() {
            return Err(HostRuleError::Empty);
        }
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            return Err(HostRuleError::Url { host: host.to_owned() });
        }
        if text == "*" || text.starts_with("*:") {
            return Err(HostRuleError::Everything);
        }
        if let Some(slash) = text.find('/') {
            return parse_range_rule(text, slash);
        }
        if text.starts_with('[') || text.matches(':').count() > 1 {
            return parse_v6_rule(text);
        }
        let (host, port) = match text.split_once(':') {
            Some((host, _)) => (host, Some(parse_port(text, host.len() + 1)?)),
            None => (text, None),
        };
        Ok(Self { subject: parse_name_or_v4(host)?, port })
    }

    /// True if the rule matches `port`.
    pub fn has_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }

    /// True if the rule matches this name, on any port.
    pub fn matches_name(&self, name: &HostName) -> bool {
        match &self.subject {
            HostPattern::Name(own) => own == name,
            HostPattern::Below(own) => name.is_below(own),
            HostPattern::Range(_) => false,
        }
    }

    /// True if the rule matches this address literally, on any port.
    pub fn matches_address(&self, address: IpAddr) -> bool {
        matches!(&self.subject, HostPattern::Range(range) if range.contains(address))
    }

    /// Like [`HostRule::matches_address`], and also checks IPv4 addresses embedded in the address.
    pub fn matches_embedded_address(&self, address: IpAddr) -> bool {
        reachable_addresses(address).any(|meaning| self.matches_address(meaning))
    }

    /// True if the rule matches everything that `other` matches.
    pub fn covers(&self, other: &HostRule) -> bool {
        let hosts = match (&self.subject, &other.subject) {
            (HostPattern::Name(own), HostPattern::Name(name)) => own == name,
            (HostPattern::Below(own), HostPattern::Name(name)) => name.is_below(own),
            (HostPattern::Below(own), HostPattern::Below(name)) => {
                own == name || name.is_below(own)
            }
            (HostPattern::Range(own), HostPattern::Range(range)) => own.covers(range),
            _ => false,
        };
        hosts && (self.port.is_none() || self.port == other.port)
    }

    /// The intersection of both rules, if not empty. Names and ranges are nested or disjoint, so
    /// the result is one rule.
    pub fn intersect(&self, other: &HostRule) -> Option<HostRule> {
        let port = match (self.port, other.port) {
            (Some(own), Some(port)) if own != port => return None,
            (own, port) => own.or(port),
        };
        let wide = |rule: &HostRule| HostRule { subject: rule.subject.clone(), port: None };
        let (one, another) = (wide(self), wide(other));
        let inner =
            if one.covers(&another) { Some(another) } else { another.covers(&one).then_some(one) };
        inner.map(|inner| HostRule { port, ..inner })
    }
}

/// Parses a name, a `*.name` pattern, or an IPv4 address.
fn parse_name_or_v4(host: &str) -> Result<HostPattern, HostRuleError> {
    let (inner, position) = match host.strip_prefix("*.") {
        Some(rest) => (rest, 2),
        None => (host, 0),
    };
    if let Some(at) = inner.find('*') {
        return Err(HostRuleError::Wildcard { position: position + at });
    }
    if let (0, Ok(address)) = (position, inner.parse::<Ipv4Addr>()) {
        return Ok(HostPattern::Range(IpRange::single(address.into())));
    }
    let name = HostName::new(inner).map_err(|problem| HostRuleError::Name { problem, position })?;
    Ok(if position == 0 { HostPattern::Name(name) } else { HostPattern::Below(name) })
}

/// Parses `ADDRESS/BITS` or `ADDRESS/BITS:PORT`; the address ends at `slash`.
fn parse_range_rule(text: &str, slash: usize) -> Result<HostRule, HostRuleError> {
    let (host, behind) = (&text[..slash], &text[slash + 1..]);
    let no_address = || match parse_name_or_v4(host) {
        Ok(HostPattern::Name(_) | HostPattern::Below(_)) => {
            HostRuleError::Path { host: host.to_owned(), position: slash }
        }
        _ => HostRuleError::Address { text: host.to_owned(), position: 0 },
    };
    let address: IpAddr = host.parse().map_err(|_| no_address())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let (length, port) = match behind.split_once(':') {
        Some((length, _)) => (length, Some(parse_port(text, slash + 1 + length.len() + 1)?)),
        None => (behind, None),
    };
    let bits = parse_decimal(length).and_then(|bits| u8::try_from(bits).ok());
    let range = bits.and_then(|bits| IpRange::new(address, bits));
    let range = range.ok_or_else(|| HostRuleError::Length {
        text: length.to_owned(),
        position: slash + 1,
        longest,
    })?;
    if range.first() != address.to_canonical() && range.first() != address {
        return Err(HostRuleError::NotFirst { range });
    }
    Ok(HostRule { subject: HostPattern::Range(range), port })
}

/// Parses `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:443`.
fn parse_v6_rule(text: &str) -> Result<HostRule, HostRuleError> {
    let (host, position) = match text.strip_prefix('[') {
        Some(rest) => (rest.split(']').next().unwrap_or_default(), 1),
        None => (text, 0),
    };
    if let Some(at) = host.find('%') {
        let problem = HostNameError::Zone { position: at };
        return Err(HostRuleError::Name { problem, position });
    }
    let address = match host.parse::<Ipv6Addr>() {
        Ok(address) => address,
        // `example.org:80:90`, and `2001:db8:0:0:0:0:0:1:443`.
        Err(_) if position == 0 && !host.contains(['.', '-']) => {
            return Err(HostRuleError::Brackets { position: 0 });
        }
        Err(_) => return Err(HostRuleError::Address { text: host.to_owned(), position }),
    };
    let end = host.len() + 2 * position;
    let port = match text.get(end..) {
        _ if position == 0 => None,
        Some("") => None,
        Some(rest) if rest.starts_with(':') => Some(parse_port(text, end + 1)?),
        _ => return Err(HostRuleError::Address { text: text.to_owned(), position: 0 }),
    };
    Ok(HostRule { subject: HostPattern::Range(IpRange::single(address.into())), port })
}

/// Parses the port from `position` to the end.
fn parse_port(text: &str, position: usize) -> Result<u16, HostRuleError> {
    let digits = text.get(position..).unwrap_or_default();
    let port =
        parse_decimal(digits).and_then(|port| u16::try_from(port).ok()).filter(|&port| port != 0);
    port.ok_or_else(|| HostRuleError::Port { text: digits.to_owned(), position })
}

/// Parses a decimal number without sign or leading zeros, which all programs read the same way.
fn parse_decimal(text: &str) -> Option<u32> {
    let plain = text.len() <= 5
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok())?
}

/// The canonical form, which parses back to the same rule.
impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, self.port) {
            (HostPattern::Name(name), None) => name.fmt(f),
            (HostPattern::Name(name), Some(port)) => write!(f, "{name}:{port}"),
            (HostPattern::Below(name), None) => write!(f, "*.{name}"),
            (HostPattern::Below(name), Some(port)) => write!(f, "*.{name}:{port}"),
            (HostPattern::Range(range), None) => range.fmt(f),
            (HostPattern::Range(range), Some(port)) if range.bits() == 128 => {
                write!(f, "[{range}]:{port}")
            }
            (HostPattern::Range(range), Some(port)) => write!(f, "{range}:{port}"),
        }
    }
}

impl std::str::FromStr for HostRule {
    type Err = HostRuleError;

    fn from_str(text: &str) -> Result<Self, HostRuleError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for HostRule {
    type Error = HostRuleError;

    fn try_from(text: String) -> Result<Self, HostRuleError> {
        Self::parse(&text)
    }
}

impl From<HostRule> for String {
    fn from(rule: HostRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests;
