//! The head of one HTTP/1 request (RFC 9112): its host and its end.
//!
//! The server parses the same bytes with another parser, perhaps with a proxy and a third parser
//! before it. So every known ambiguity is refused, also where the standard allows a server to be
//! tolerant: bare line feeds, folded headers, blanks before a colon, a second `Host` or
//! `Content-Length`.

use super::{LONGEST, PeekError, PeekState};
use ringfence_policy::HostName;

/// A parsed request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHead {
    /// Length in bytes, including the empty line at its end.
    pub length: usize,
    /// Requested host.
    pub host: HttpHost,
    /// Framing of the body.
    pub framing: HttpFraming,
    /// Requested change of the connection.
    pub upgrade: UpgradeWish,
    /// Set to `Closed` if no request may follow.
    pub afterwards: AfterHead,
}

/// A host as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHost {
    /// The name.
    pub name: HostName,
    /// The port, if one is named.
    pub port: Option<u16>,
}

/// Framing of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFraming {
    /// This number of bytes, perhaps none.
    Length(u64),
    /// Chunked encoding.
    Chunked,
}

/// Requested change of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeWish {
    /// Further requests.
    Stay,
    /// An upgrade to another protocol; not HTTP/2, which is not followed.
    Upgrade,
}

/// Connection state after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterHead {
    /// Another request may follow.
    Open,
    /// No request may follow: it has a body where some servers expect none, or answer before they
    /// read it, and would then take the body for the next request.
    Closed,
}

/// Methods whose body every server reads.
const WITH_BODY: [&[u8]; 3] = [b"POST", b"PUT", b"PATCH"];

/// The head with one header in place of all of that name.
pub(crate) fn with_field(head: &[u8], header: &str, value: &str) -> Vec<u8> {
    let mut lines = without_field(head, header);
    let line = format!("{header}: {value}\r\n");
    let first = lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    lines.splice(first..first, line.into_bytes());
    lines
}

/// The head without headers of that name.
pub(crate) fn without_field(head: &[u8], header: &str) -> Vec<u8> {
    let is_it = |line: &[u8]| {
        line.iter()
            .position(|byte| *byte == b':')
            .is_some_and(|colon| line[..colon].eq_ignore_ascii_case(header.as_bytes()))
    };
    let lines = head.split_inclusive(|byte| *byte == b'\n').enumerate();
    // The first line is the request line.
    lines
        .filter(|(number, line)| *number == 0 || !is_it(line))
        .flat_map(|(_, line)| line)
        .copied()
        .collect()
}

/// Reads the head of one request.
#[derive(Debug, Default)]
pub struct HttpHeadReader {
    /// Bytes of the queue already scanned.
    scanned: usize,
    /// Start of the current line.
    line: usize,
    request: Option<HttpRequestLine>,
    fields: HttpFields,
}

/// The parsed request line.
#[derive(Debug)]
struct HttpRequestLine {
    version: HttpVersion,
    /// Set for methods that normally have a body.
    has_body: bool,
    /// The host in the target, if it has one.
    target: Option<HttpHost>,
}

#[derive(Debug, PartialEq, Eq)]
enum HttpVersion {
    Http10,
    Http11,
}

/// The relevant headers.
#[derive(Debug, Default)]
struct HttpFields {
    host: Option<HttpHost>,
    length: Option<u64>,
    chunked: bool,
    expects: bool,
    upgrade: bool,
    http2: bool,
    connection_upgrade: bool,
}

impl HttpHeadReader {
    /// The head, once all of it is in the `queue`.
    pub fn read(&mut self, queue: &[u8]) -> PeekState<HttpHead> {
        while let Some(byte) = queue.get(self.scanned) {
            if self.scanned == LONGEST {
                return PeekState::Refused(PeekError::TooLong);
            }
            match self.step(queue, *byte) {
                Ok(None) => self.scanned += 1,
                Ok(Some(head)) => return PeekState::Found(head),
                Err(objection) => return PeekState::Refused(objection),
            }
        }
        PeekState::NeedMore
    }

    /// Scans one byte; returns the head if it is complete.
    fn step(&mut self, queue: &[u8], byte: u8) -> Result<Option<HttpHead>, PeekError> {
        let after_return = self.scanned > self.line && queue[self.scanned - 1] == b'\r';
        match byte {
            b'\n' if after_return => {
                let line = &queue[self.line..self.scanned - 1];
                self.line = self.scanned + 1;
                self.take(line)
            }
            b'\r' | b'\t' | b' '..=b'~' if !after_return => Ok(None),
            // Outside the standard, but used in paths and headers, and unambiguous.
            0x80.. if !after_return && self.scanned > 0 => Ok(None),
            _ if self.request.is_some() => Err(PeekError::BadHead),
            _ => Err(PeekError::NotHttp),
        }
    }

    /// Parses a complete line.
    fn take(&mut self, line: &[u8]) -> Result<Option<HttpHead>, PeekError> {
        match &self.request {
            None => self.request = Some(request(line)?),
            Some(request) if line.is_empty() => {
                return self.fields.finish(request, self.line).map(Some);
            }
            Some(_) => self.fields.take(line)?,
        }
        Ok(None)
    }
}

fn request(line: &[u8]) -> Result<HttpRequestLine, PeekError> {
    let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = parts.try_into().map_err(|_| PeekError::NotHttp)?;
    let version = match version {
        b"HTTP/1.1" => HttpVersion::Http11,
        b"HTTP/1.0" => HttpVersion::Http10,
        [b'H', b'T', b'T', b'P', b'/', b'2', ..] => return Err(PeekError::Http2),
        _ => return Err(PeekError::NotHttp),
    };
    if method.is_empty()
        || !method.iter().all(|byte| is_token(*byte))
        || !target.iter().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii())
    {
        return Err(PeekError::NotHttp);
    }
    let target = match target {
        _ if method == b"CONNECT" => return Err(PeekError::Tunnel),
        [b'/', ..] => None,
        b"*" if method == b"OPTIONS" => None,
        _ => Some(absolute(target)?),
    };
    Ok(HttpRequestLine { version, has_body: WITH_BODY.contains(&method), target })
}

/// The host in `http://host:port/path`.
fn absolute(target: &[u8]) -> Result<HttpHost, PeekError> {
    let scheme = b"http://";
    let (start, rest) = target.split_at_checked(scheme.len()).ok_or(PeekError::BadHead)?;
    if !start.eq_ignore_ascii_case(scheme) {
        return Err(PeekError::BadHead);
    }
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    host(&rest[..end])
}

/// Parses `name` or `name:port`.
fn host(text: &[u8]) -> Result<HttpHost, PeekError> {
    let (name, port) = match text.iter().position(|byte| *byte == b':') {
        Some(at) => (
            &text[..at],
            Some(
                number(&text[at + 1..], 5)
                    .and_then(|port| u16::try_from(port).ok())
                    .ok_or(PeekError::BadName)?,
            ),
        ),
        None => (text, None),
    };
    Ok(HttpHost { name: HostName::from_bytes(name).map_err(|_| PeekError::BadName)?, port })
}

/// Parses a number of at most `digits` digits, and digits only.
fn number(text: &[u8], digits: usize) -> Option<u64> {
    let plain = (1..=digits).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    plain.then(|| text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

impl HttpFields {
    fn take(&mut self, line: &[u8]) -> Result<(), PeekError> {
        // A line that begins with a blank continues the previous one, and has no name.
        let colon = line.iter().position(|byte| *byte == b':').ok_or(PeekError::BadHead)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(PeekError::BadHead);
        }
        match name.to_ascii_lowercase().as_slice() {
            b"host" if self.host.is_some() => return Err(PeekError::ManyNames),
            b"host" => self.host = Some(host(value)?),
            b"content-length" if self.length.is_some() => return Err(PeekError::BadFraming),
            // Some parsers read a leading 0 as octal.
            b"content-length" if value.len() > 1 && value.starts_with(b"0") => {
                return Err(PeekError::BadFraming);
            }
            b"content-length" => {
                self.length = Some(number(value, 18).ok_or(PeekError::BadFraming)?)
            }
            // Programs behind a server (CGI, WSGI) confuse `_` and `-`.
            b"content_length" | b"transfer_encoding" => return Err(PeekError::BadFraming),
            b"expect" if !value.eq_ignore_ascii_case(b"100-continue") => {
                return Err(PeekError::BadFraming);
            }
            b"expect" => self.expects = true,
            b"transfer-encoding" if self.chunked || !value.eq_ignore_ascii_case(b"chunked") => {
                return Err(PeekError::BadFraming);
            }
            b"transfer-encoding" => self.chunked = true,
            b"upgrade" => {
                self.upgrade = true;
                self.http2 |= words(value).any(|word| word.to_ascii_lowercase().starts_with(b"h2"));
            }
            // A proxy on the way would remove the headers named here.
            b"connection"
                if words(value)
                    .any(|word| PROTECTED.iter().any(|name| word.eq_ignore_ascii_case(name))) =>
            {
                return Err(PeekError::BadFraming);
            }
            b"connection" => {
                self.connection_upgrade |=
                    words(value).any(|word| word.eq_ignore_ascii_case(b"upgrade"))
            }
            _ => {}
        }
        Ok(())
    }

    /// Combines all fields into the head.
    fn finish(&self, request: &HttpRequestLine, length: usize) -> Result<HttpHead, PeekError> {
        let host = self.host.clone().ok_or(PeekError::NoName)?;
        if let Some(target) = &request.target {
            super::check_same_host(&target.name, &host.name)?;
            if target.port.unwrap_or(80) != host.port.unwrap_or(80) {
                return Err(PeekError::OtherPort(target.port.unwrap_or(80)));
            }
        }
        let framing = match (self.chunked, self.length) {
            (true, None) if request.version == HttpVersion::Http11 => HttpFraming::Chunked,
            (false, length) => HttpFraming::Length(length.unwrap_or(0)),
            _ => return Err(PeekError::BadFraming),
        };
        let is_requested = self.upgrade
            && self.connection_upgrade
            && !self.http2
            && request.version == HttpVersion::Http11;
        let upgrade = match is_requested {
            true => UpgradeWish::Upgrade,
            false => UpgradeWish::Stay,
        };
        let has_body = framing != HttpFraming::Length(0);
        let afterwards = match has_body && (!request.has_body || self.expects) {
            true => AfterHead::Closed,
            false => AfterHead::Open,
        };
        Ok(HttpHead { length, host, framing, upgrade, afterwards })
    }
}

/// Headers that route and frame a request.
const PROTECTED: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];

/// Elements of a comma-separated list.
fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// True for the characters of header names and methods.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
