//! The name of a host in its one canonical form.

use std::fmt;

/// The name of a host: ASCII in lower case, without a dot at the end, and no address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The canonical form of `text`, if it can name a host.
    pub fn new(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            let plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
            plain && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
        };
        let number = |last: &str| last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
        let last = name.rsplit('.').next().unwrap_or_default();
        (name.len() <= 253 && name.split('.').all(label) && !number(last)).then_some(Self(name))
    }

    /// As [`Name::new`], from bytes that came over a wire.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        std::str::from_utf8(bytes).ok().and_then(Self::new)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means the machine that asks: `localhost`, and what is below it (RFC 6761).
    pub fn is_localhost(&self) -> bool {
        self.0 == "localhost" || self.0.ends_with(".localhost")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
