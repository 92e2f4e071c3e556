//! What is said first on a connection, and to whom.
//!
//! Whoever may dial a name may not therefore talk to another one that lives behind the same
//! address. So the first bytes are looked at before any of them goes out: the name in a TLS
//! ClientHello ([`hello`]), the `Host` of a plain HTTP request ([`head`]), and of every further
//! request on that connection ([`requests`]).
//!
//! Nothing is consumed and nothing is changed. A reader is shown a *queue*: all the bytes that the
//! program has sent and that have not been let go yet, each time from its first byte and each time
//! with more at its end. What it has looked at it does not look at again, and how the bytes were
//! cut into pieces makes no difference to what it says.

use std::fmt;

use ringfence_policy::HostName;

pub mod checks;
pub mod head;
pub mod hello;
pub mod requests;

/// How many bytes may be said before the name is known. Browsers need two thousand for a hello with
/// keys that withstand quantum computers, and servers take eight thousand of a head.
pub const LONGEST: usize = 64 * 1024;

/// What has been seen so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekState<T> {
    /// It cannot be told yet.
    NeedMore,
    /// This is what was said.
    Found(T),
    /// It must not go out.
    Refused(PeekError),
}

/// Why something that was said must not go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekError {
    /// The name is not among the first [`LONGEST`] bytes.
    TooLong,
    /// It does not begin as TLS does.
    NotTls,
    /// A hello of SSL 2, which has no names.
    Ssl2,
    /// A ClientHello that no library writes.
    BadHello,
    /// It carries, or could carry, a second name that only the server can read (ECH).
    HiddenName,
    /// It does not begin as a request of HTTP/1 does.
    NotHttp,
    /// HTTP/2 without TLS, on which every request can name another host.
    Http2,
    /// A request to be connected to something else.
    Tunnel,
    /// A request to be told what was said, with what was put into it on the way.
    Trace,
    /// A request line or header that servers could read in two ways.
    BadHead,
    /// Where the body ends can be read in two ways, or not at all.
    BadFraming,
    /// No host is named.
    NoName,
    /// More than one is.
    ManyNames,
    /// What is named is no host.
    BadName,
    /// Another host than the one that was dialed.
    OtherName(HostName),
    /// Another port than the one that was dialed.
    OtherPort(u16),
}

impl PeekError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            PeekError::TooLong => "too-long",
            PeekError::NotTls => "not-tls",
            PeekError::Ssl2 => "ssl2",
            PeekError::BadHello => "bad-hello",
            PeekError::HiddenName => "hidden-name",
            PeekError::NotHttp => "not-http",
            PeekError::Http2 => "http2",
            PeekError::Tunnel => "tunnel",
            PeekError::Trace => "trace",
            PeekError::BadHead => "bad-head",
            PeekError::BadFraming => "bad-framing",
            PeekError::NoName => "no-name",
            PeekError::ManyNames => "many-names",
            PeekError::BadName => "bad-name",
            PeekError::OtherName(_) => "other-name",
            PeekError::OtherPort(_) => "other-port",
        }
    }
}

impl fmt::Display for PeekError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            PeekError::TooLong => "it goes on for too long before it names a host",
            PeekError::NotTls => "it is not TLS",
            PeekError::Ssl2 => "it is SSL 2, which names no host",
            PeekError::BadHello => "its TLS hello is malformed",
            PeekError::HiddenName => "its TLS hello can hide the name of another host (ECH)",
            PeekError::NotHttp => "it is not HTTP/1",
            PeekError::Http2 => "it is HTTP/2 without TLS",
            PeekError::Tunnel => "it asks to be connected to something else",
            PeekError::Trace => "it asks to be told what it said, and a secret could be in it",
            PeekError::BadHead => "the head of a request can be read in two ways",
            PeekError::BadFraming => "where a request ends can be read in two ways",
            PeekError::NoName => "it names no host",
            PeekError::ManyNames => "it names more than one host",
            PeekError::BadName => "what it names is not the name of a host",
            PeekError::OtherName(name) => return write!(out, "it is meant for {name}"),
            PeekError::OtherPort(port) => return write!(out, "it is meant for port {port}"),
        };
        out.write_str(words)
    }
}

/// Whether the host that is named is the one that was dialed.
pub fn agree(said: &HostName, dialed: &HostName) -> Result<(), PeekError> {
    match said == dialed {
        true => Ok(()),
        false => Err(PeekError::OtherName(said.clone())),
    }
}

#[cfg(test)]
mod testing;
