//! Reads the first bytes of a connection to find the host they name.
//!
//! A program that may connect to one name must not reach another one behind the same address. So
//! the first bytes are checked before any is sent: the server name in a TLS ClientHello
//! ([`hello`]), the `Host` of a plain HTTP request ([`head`]) and of every further request on that
//! connection ([`requests`]).
//!
//! Readers consume and change nothing. A reader gets a *queue*: all bytes that the program has sent
//! and that are not released yet, from the first byte, with more at the end each time. It scans
//! each byte once, and its result does not depend on how the bytes were split.

use std::fmt;

use ringfence_policy::HostName;

pub mod checks;
pub mod head;
pub mod hello;
pub mod requests;

/// Maximum of bytes before the name is known. A browser's ClientHello with post-quantum keys has
/// two thousand bytes, and servers accept eight thousand bytes of HTTP head.
pub const LONGEST: usize = 64 * 1024;

/// State of a reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekState<T> {
    /// Undecided; more bytes are needed.
    NeedMore,
    /// The result.
    Found(T),
    /// The bytes must not be sent.
    Refused(PeekError),
}

/// Reason why bytes must not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeekError {
    /// The name is not within the first [`LONGEST`] bytes.
    TooLong,
    /// It does not begin like TLS.
    NotTls,
    /// An SSL 2 hello, which carries no name.
    Ssl2,
    /// A ClientHello that no library writes.
    BadHello,
    /// It carries, or could carry, a second name that only the server can read (ECH).
    HiddenName,
    /// It does not begin like an HTTP/1 request.
    NotHttp,
    /// HTTP/2 without TLS, where every request can name another host.
    Http2,
    /// A `CONNECT` request.
    Tunnel,
    /// A `TRACE` request: the answer repeats the request, with inserted secrets.
    Trace,
    /// A request line or header that servers could parse in two ways.
    BadHead,
    /// The end of the body is ambiguous or unknown.
    BadFraming,
    /// No host name.
    NoName,
    /// More than one host name.
    ManyNames,
    /// An invalid host name.
    BadName,
    /// Another host than the one that was dialed.
    OtherName(HostName),
    /// Another port than the one that was dialed.
    OtherPort(u16),
}

impl PeekError {
    /// Stable code.
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
            PeekError::TooLong => "no host name in its first 64 KiB",
            PeekError::NotTls => "it is not TLS",
            PeekError::Ssl2 => "it is SSL 2, which carries no host name",
            PeekError::BadHello => "its TLS ClientHello is malformed",
            PeekError::HiddenName => "its TLS ClientHello can hide another host name (ECH)",
            PeekError::NotHttp => "it is not HTTP/1",
            PeekError::Http2 => "it is HTTP/2 without TLS",
            PeekError::Tunnel => "it is a `CONNECT` request",
            PeekError::Trace => "it is a `TRACE` request, whose answer could contain a secret",
            PeekError::BadHead => "the head of a request is ambiguous",
            PeekError::BadFraming => "the end of a request is ambiguous",
            PeekError::NoName => "it names no host",
            PeekError::ManyNames => "it names more than one host",
            PeekError::BadName => "it names an invalid host",
            PeekError::OtherName(name) => return write!(out, "it names another host: {name}"),
            PeekError::OtherPort(port) => return write!(out, "it names another port: {port}"),
        };
        out.write_str(words)
    }
}

/// Fails if the named host is not the dialed one.
pub fn check_same_host(named: &HostName, dialed: &HostName) -> Result<(), PeekError> {
    match named == dialed {
        true => Ok(()),
        false => Err(PeekError::OtherName(named.clone())),
    }
}

#[cfg(test)]
mod testing;
