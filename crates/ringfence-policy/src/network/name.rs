//! Canonical host names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use super::spelling;

/// A host name: lower-case ASCII without a trailing dot. Never an IP address in any spelling.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

/// A host name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostTarget {
    /// A name to look up.
    Name(HostName),
    /// Canonical: an IPv4-mapped IPv6 address is an IPv4 address.
    Address(IpAddr),
}

/// Reason for which a text is no host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum HostNameError {
    #[error("it is empty")]
    Empty,
    #[error("it is longer than {} characters", HostName::LONGEST)]
    TooLong,
    #[error("a label is longer than {} characters", HostName::LONGEST_LABEL)]
    LabelTooLong { position: usize },
    #[error("a label between two dots is empty")]
    EmptyLabel { position: usize },
    #[error("a label begins or ends with `-`")]
    Hyphen { position: usize },
    #[error("{character:?} is not allowed in a host name")]
    Character { character: char, position: usize },
    #[error("it is not ASCII")]
    NotAscii { position: usize },
    #[error("it has a zone (`%`), which names an interface of one machine")]
    Zone { position: usize },
    #[error("it is the address {address}, not a name")]
    IsAddress { address: IpAddr },
    #[error("it ends in a number like an address, but is no valid address")]
    NoAddress,
}

impl HostNameError {
    /// Byte offset of the error in the text, if it has one position.
    pub fn position(&self) -> Option<usize> {
        match self {
            HostNameError::LabelTooLong { position }
            | HostNameError::EmptyLabel { position }
            | HostNameError::Hyphen { position }
            | HostNameError::Character { position, .. }
            | HostNameError::NotAscii { position }
            | HostNameError::Zone { position } => Some(*position),
            HostNameError::Empty
            | HostNameError::TooLong
            | HostNameError::IsAddress { .. }
            | HostNameError::NoAddress => None,
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> String {
        match self {
            HostNameError::Empty | HostNameError::EmptyLabel { .. } => {
                "write a name such as `example.org`".into()
            }
            HostNameError::TooLong | HostNameError::LabelTooLong { .. } => {
                "DNS does not allow such a name: check its spelling".into()
            }
            HostNameError::Hyphen { .. } | HostNameError::Character { .. } => {
                "write a name of letters, digits, `-` and `_`, separated by dots".into()
            }
            HostNameError::NotAscii { .. } => "write the name in its DNS form, with `xn--`".into(),
            HostNameError::Zone { .. } => "write the address without `%` and the zone name".into(),
            HostNameError::IsAddress { address } => format!("write `{address}`"),
            HostNameError::NoAddress => {
                "write four numbers from 0 to 255, such as `192.0.2.1`".into()
            }
        }
    }
}

impl HostName {
    /// Maximum length of a name, in characters.
    pub const LONGEST: usize = 253;
    /// Maximum length of a label, in characters.
    pub const LONGEST_LABEL: usize = 63;

    /// Parses `text` into its canonical form.
    ///
    /// `Example.ORG.` becomes `example.org`. Text that is not ASCII is rejected and not converted,
    /// because the reader of a policy cannot tell similar letters apart. Labels with `xn--` are
    /// ordinary labels. A text that `inet_aton` parses as an address is no name.
    pub fn new(text: &str) -> Result<Self, HostNameError> {
        if let Some(position) = text.find(|c: char| !c.is_ascii()) {
            return Err(HostNameError::NotAscii { position });
        }
        if let Some(position) = text.find('%') {
            return Err(HostNameError::Zone { position });
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if name.is_empty() {
            return Err(HostNameError::Empty);
        }
        if name.len() > Self::LONGEST {
            return Err(HostNameError::TooLong);
        }
        let mut position = 0;
        for label in name.split('.') {
            check_label(label, position)?;
            position += label.len() + 1;
        }
        let name = name.to_ascii_lowercase();
        if !spelling::ends_in_a_number(&name) {
            return Ok(Self(name));
        }
        match spelling::inet_aton(&name) {
            Some(address) => Err(HostNameError::IsAddress { address: IpAddr::V4(address) }),
            None => Err(HostNameError::NoAddress),
        }
    }

    /// Like [`HostName::new`], from bytes of a network protocol.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, HostNameError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::new(text),
            Err(error) => Err(HostNameError::NotAscii { position: error.valid_up_to() }),
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if this name is a strict subdomain of `other`.
    pub fn is_below(&self, other: &HostName) -> bool {
        self.0.strip_suffix(other.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }

    /// True for the local machine: `localhost` and names below it (RFC 6761).
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

fn check_label(label: &str, position: usize) -> Result<(), HostNameError> {
    if label.is_empty() {
        return Err(HostNameError::EmptyLabel { position });
    }
    if let Some((at, character)) =
        label.char_indices().find(|(_, c)| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_'))
    {
        return Err(HostNameError::Character { character, position: position + at });
    }
    if label.len() > HostName::LONGEST_LABEL {
        return Err(HostNameError::LabelTooLong { position });
    }
    // A program would parse an argument that begins with a hyphen as an option.
    if label.starts_with('-') || label.ends_with('-') {
        return Err(HostNameError::Hyphen { position });
    }
    Ok(())
}

impl HostTarget {
    /// Parses `text` as a program that connects would: a name, or an address in any form that
    /// `inet_aton` or `inet_pton` accepts, IPv6 also in brackets.
    pub fn new(text: &str) -> Result<Self, HostNameError> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = inner.unwrap_or(text).parse::<Ipv6Addr>() {
            return Ok(HostTarget::Address(IpAddr::V6(address).to_canonical()));
        }
        match HostName::new(text) {
            Ok(name) => Ok(HostTarget::Name(name)),
            Err(HostNameError::IsAddress { address }) => Ok(HostTarget::Address(address)),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The form that rules use.
impl fmt::Display for HostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostTarget::Name(name) => name.fmt(f),
            HostTarget::Address(address) => address.fmt(f),
        }
    }
}

impl std::str::FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        Self::new(text)
    }
}

impl TryFrom<String> for HostName {
    type Error = HostNameError;

    fn try_from(text: String) -> Result<Self, HostNameError> {
        Self::new(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let parsed = match HostTarget::new(text) {
            Ok(HostTarget::Name(name)) => format!("name {name}"),
            Ok(HostTarget::Address(address)) => format!("address {address}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(parsed, expect, "{text:?}");
    }

    #[test]
    fn every_spelling_of_a_name_is_one_name() {
        check("example.org", "name example.org");
        check("EXAMPLE.Org.", "name example.org");
        check("xn--bcher-kva.example", "name xn--bcher-kva.example");
        check("_dmarc.r3---sn.a-b", "name _dmarc.r3---sn.a-b");
        check("1.2.3.4.example", "name 1.2.3.4.example");
        check("0xfg", "name 0xfg");
    }

    #[test]
    fn every_spelling_of_an_address_is_one_address() {
        for text in [
            "127.0.0.1",
            "127.1",
            "127.0.1",
            "0x7f000001",
            "0X7F.1",
            "2130706433",
            "017700000001",
            "0177.0.0.01",
            "127.0.0.1.",
        ] {
            check(text, "address 127.0.0.1");
        }
        for text in ["::ffff:127.0.0.1", "[::ffff:7f00:1]", "::FFFF:7F00:1"] {
            check(text, "address 127.0.0.1");
        }
        check("[::1]", "address ::1");
        check("0", "address 0.0.0.0");
    }

    #[test]
    fn invalid_host_names_are_refused() {
        check("", "it is empty");
        check(".", "it is empty");
        check("a..b", "a label between two dots is empty");
        check(".a", "a label between two dots is empty");
        check("a..", "a label between two dots is empty");
        check("a\0.org", "'\\0' is not allowed in a host name");
        check("a\r\n", "'\\r' is not allowed in a host name");
        check("a b", "' ' is not allowed in a host name");
        check("[a]", "'[' is not allowed in a host name");
        check("-oProxyCommand=x", "'=' is not allowed in a host name");
        check("-a.org", "a label begins or ends with `-`");
        check("xn--example-.org", "a label begins or ends with `-`");
        check("fe80::1%eth0", "it has a zone (`%`), which names an interface of one machine");
        check("b\u{fc}cher.example", "it is not ASCII");
        check("ex\u{430}mple.org", "it is not ASCII");
        check("127\u{3002}0.0.1", "it is not ASCII");
        for text in
            ["1.2.3.4.5", "256.1.1.1", "4294967296", "08.1.1.1", "a.1", "a.0x1", "0x", "1.0xg.0x"]
        {
            check(text, "it ends in a number like an address, but is no valid address");
        }
        check(&"a".repeat(64), "a label is longer than 63 characters");
        assert!(
            HostName::new(&"a.".repeat(127))
                .is_ok_and(|name| name.as_str().len() == HostName::LONGEST)
        );
        check(&"ab.".repeat(85), "it is longer than 253 characters");
    }
}
