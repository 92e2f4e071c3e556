//! The head of one HTTP/1 request (RFC 9112): whom it is for, and where it ends.
//!
//! The server at the other end reads the same bytes with another parser, and there may be a proxy
//! with a third one in front of it. So whatever is known to be read in two ways is refused, also
//! where the standard lets a server be kind: lines that end without a carriage return, headers
//! that go on in the next line, blanks before a colon, a second `Host` or `Content-Length`.

use super::{LONGEST, PeekError, PeekState};
use ringfence_policy::HostName;

/// What the head of a request says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHead {
    /// How many bytes it has, with the empty line at its end.
    pub length: usize,
    /// Whom it is for.
    pub host: HttpHost,
    /// What follows it.
    pub framing: HttpFraming,
    /// What it wants to become of the connection.
    pub wish: UpgradeWish,
    /// Whether another request may follow it.
    pub afterwards: Afterwards,
}

/// A host as a request names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpHost {
    /// The name.
    pub name: HostName,
    /// The port, if one is named.
    pub port: Option<u16>,
}

/// How the end of a request's body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFraming {
    /// It has so many bytes, perhaps none.
    Length(u64),
    /// It comes in pieces that say how long they are.
    Chunked,
}

/// What is to become of the connection after the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeWish {
    /// Further requests.
    Stay,
    /// Another protocol, if the server agrees; not HTTP/2, which is followed nowhere.
    Upgrade,
}

/// Whether another request may follow on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// Another one may.
    Open,
    /// None may: it has a body where some servers expect none, or answer before they read it, and
    /// then take that body for the next request.
    Closed,
}

/// Methods whose body every server reads.
const WITH_BODY: [&[u8]; 3] = [b"POST", b"PUT", b"PATCH"];

/// A head with one header in place of all of that name.
pub(crate) fn with_field(head: &[u8], header: &str, value: &str) -> Vec<u8> {
    let mut lines = without_field(head, header);
    let line = format!("{header}: {value}\r\n");
    let first = lines.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    lines.splice(first..first, line.into_bytes());
    lines
}

/// A head without any header of that name.
pub(crate) fn without_field(head: &[u8], header: &str) -> Vec<u8> {
    let is_it = |line: &[u8]| {
        line.iter()
            .position(|byte| *byte == b':')
            .is_some_and(|colon| line[..colon].eq_ignore_ascii_case(header.as_bytes()))
    };
    let lines = head.split_inclusive(|byte| *byte == b'\n').enumerate();
    // The first line is the request's own.
    lines
        .filter(|(number, line)| *number == 0 || !is_it(line))
        .flat_map(|(_, line)| line)
        .copied()
        .collect()
}

/// Reads the head of one request.
#[derive(Debug, Default)]
pub struct HttpHeadReader {
    /// How much of the queue has been looked at.
    scanned: usize,
    /// Where the line begins that is being looked at.
    line: usize,
    request: Option<HttpRequestLine>,
    fields: HttpFields,
}

/// What the first line says.
#[derive(Debug)]
struct HttpRequestLine {
    version: HttpVersion,
    /// It is sent with a body, as a rule.
    has_body: bool,
    /// The host in the target, where it stands there.
    target: Option<HttpHost>,
}

#[derive(Debug, PartialEq, Eq)]
enum HttpVersion {
    Http10,
    Http11,
}

/// What the headers say that count here.
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

    /// Looks at one byte; the head if it is the last of it.
    fn step(&mut self, queue: &[u8], byte: u8) -> Result<Option<HttpHead>, PeekError> {
        let after_return = self.scanned > self.line && queue[self.scanned - 1] == b'\r';
        match byte {
            b'\n' if after_return => {
                let line = &queue[self.line..self.scanned - 1];
                self.line = self.scanned + 1;
                self.take(line)
            }
            b'\r' | b'\t' | b' '..=b'~' if !after_return => Ok(None),
            // Not in a standard, but paths and headers have them, and nobody reads them in two
            // ways.
            0x80.. if !after_return && self.scanned > 0 => Ok(None),
            _ if self.request.is_some() => Err(PeekError::BadHead),
            _ => Err(PeekError::NotHttp),
        }
    }

    /// Looks at a whole line.
    fn take(&mut self, line: &[u8]) -> Result<Option<HttpHead>, PeekError> {
        match &self.request {
            None => self.request = Some(request(line)?),
            Some(request) if line.is_empty() => {
                return self.fields.settle(request, self.line).map(Some);
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

/// `name` or `name:port`.
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

/// A number of at most so many digits, and nothing but digits.
fn number(text: &[u8], digits: usize) -> Option<u64> {
    let plain = (1..=digits).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    plain.then(|| text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

impl HttpFields {
    fn take(&mut self, line: &[u8]) -> Result<(), PeekError> {
        // A line that begins with a blank goes on with the one before, and has no name.
        let colon = line.iter().position(|byte| *byte == b':').ok_or(PeekError::BadHead)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(PeekError::BadHead);
        }
        match name.to_ascii_lowercase().as_slice() {
            b"host" if self.host.is_some() => return Err(PeekError::ManyNames),
            b"host" => self.host = Some(host(value)?),
            b"content-length" if self.length.is_some() => return Err(PeekError::BadFraming),
            // A number that begins with 0 is octal to some.
            b"content-length" if value.len() > 1 && value.starts_with(b"0") => {
                return Err(PeekError::BadFraming);
            }
            b"content-length" => {
                self.length = Some(number(value, 18).ok_or(PeekError::BadFraming)?)
            }
            // Programs behind a server (CGI, WSGI) take one for the other.
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
            // A proxy on the way takes off what is named here.
            b"connection"
                if words(value)
                    .any(|word| FIRM.iter().any(|name| word.eq_ignore_ascii_case(name))) =>
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

    /// What all of it comes to.
    fn settle(&self, request: &HttpRequestLine, length: usize) -> Result<HttpHead, PeekError> {
        let host = self.host.clone().ok_or(PeekError::NoName)?;
        if let Some(target) = &request.target {
            super::agree(&target.name, &host.name)?;
            if target.port.unwrap_or(80) != host.port.unwrap_or(80) {
                return Err(PeekError::OtherPort(target.port.unwrap_or(80)));
            }
        }
        let framing = match (self.chunked, self.length) {
            (true, None) if request.version == HttpVersion::Http11 => HttpFraming::Chunked,
            (false, length) => HttpFraming::Length(length.unwrap_or(0)),
            _ => return Err(PeekError::BadFraming),
        };
        let wishes = self.upgrade
            && self.connection_upgrade
            && !self.http2
            && request.version == HttpVersion::Http11;
        let wish = match wishes {
            true => UpgradeWish::Upgrade,
            false => UpgradeWish::Stay,
        };
        let has_body = framing != HttpFraming::Length(0);
        let afterwards = match has_body && (!request.has_body || self.expects) {
            true => Afterwards::Closed,
            false => Afterwards::Open,
        };
        Ok(HttpHead { length, host, framing, wish, afterwards })
    }
}

/// Headers that say whom a request is for and where it ends.
const FIRM: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];

/// The words of a list with commas.
fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// What names of headers and methods are made of.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
