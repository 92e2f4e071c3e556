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

use ringfence_policy::Name;

pub mod checks;
pub mod head;
pub mod hello;
pub mod requests;

/// How many bytes may be said before the name is known. Browsers need two thousand for a hello with
/// keys that withstand quantum computers, and servers take eight thousand of a head.
pub const LONGEST: usize = 64 * 1024;

/// What has been seen so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peek<T> {
    /// It cannot be told yet.
    NeedMore,
    /// This is what was said.
    Found(T),
    /// It must not go out.
    Refused(Objection),
}

/// Why something that was said must not go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
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
    OtherName(Name),
    /// Another port than the one that was dialed.
    OtherPort(u16),
}

impl Objection {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            Objection::TooLong => "too-long",
            Objection::NotTls => "not-tls",
            Objection::Ssl2 => "ssl2",
            Objection::BadHello => "bad-hello",
            Objection::HiddenName => "hidden-name",
            Objection::NotHttp => "not-http",
            Objection::Http2 => "http2",
            Objection::Tunnel => "tunnel",
            Objection::Trace => "trace",
            Objection::BadHead => "bad-head",
            Objection::BadFraming => "bad-framing",
            Objection::NoName => "no-name",
            Objection::ManyNames => "many-names",
            Objection::BadName => "bad-name",
            Objection::OtherName(_) => "other-name",
            Objection::OtherPort(_) => "other-port",
        }
    }
}

impl fmt::Display for Objection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Objection::TooLong => "it goes on for too long before it names a host",
            Objection::NotTls => "it is not TLS",
            Objection::Ssl2 => "it is SSL 2, which names no host",
            Objection::BadHello => "its TLS hello is malformed",
            Objection::HiddenName => "its TLS hello can hide the name of another host (ECH)",
            Objection::NotHttp => "it is not HTTP/1",
            Objection::Http2 => "it is HTTP/2 without TLS",
            Objection::Tunnel => "it asks to be connected to something else",
            Objection::Trace => "it asks to be told what it said, and a secret could be in it",
            Objection::BadHead => "the head of a request can be read in two ways",
            Objection::BadFraming => "where a request ends can be read in two ways",
            Objection::NoName => "it names no host",
            Objection::ManyNames => "it names more than one host",
            Objection::BadName => "what it names is not the name of a host",
            Objection::OtherName(name) => return write!(out, "it is meant for {name}"),
            Objection::OtherPort(port) => return write!(out, "it is meant for port {port}"),
        };
        out.write_str(words)
    }
}

/// Whether the host that is named is the one that was dialed.
pub fn agree(said: &Name, dialed: &Name) -> Result<(), Objection> {
    match said == dialed {
        true => Ok(()),
        false => Err(Objection::OtherName(said.clone())),
    }
}

#[cfg(test)]
mod testing;
