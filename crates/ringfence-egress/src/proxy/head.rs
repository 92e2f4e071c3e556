//! Parses HTTP/1 request heads strictly, and writes them anew.
//!
//! The output is built from the parsed parts, never copied: an ambiguous head is rejected, and a
//! head that is sent has one meaning.

use super::authority::ProxyAuthority;

/// Longest head accepted.
pub(super) const LONGEST: usize = 32 * 1024;
const MOST_FIELDS: usize = 128;

/// A parsed request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProxyHead {
    pub(super) wanted: ProxyTarget,
    pub(super) body: BodyFraming,
}

/// Target of a proxy request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyTarget {
    /// `CONNECT host:port`.
    Tunnel(ProxyAuthority),
    /// A request in absolute form, and the head to send to the host.
    Request { place: ProxyAuthority, head: Vec<u8> },
}

/// Body that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// Body of this length.
    Length(u64),
    /// Chunks, each with its length before it.
    Chunks,
}

/// Reason for a rejected head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadHead(pub(super) &'static str);

/// End of the head in `text`, if it is complete.
pub(super) fn find_end(text: &[u8]) -> Option<usize> {
    text.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Parses a complete head, including its empty line.
pub(super) fn parse(text: &[u8]) -> Result<ProxyHead, BadHead> {
    let text = text.strip_suffix(b"\r\n\r\n").ok_or(BadHead("the head has no end"))?;
    let text = std::str::from_utf8(text).map_err(|_| BadHead("the head is not text"))?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    // Other parsers could take another control character for a line end.
    if text.replace("\r\n", "").chars().any(|c| c.is_control() && c != '\t') {
        return Err(BadHead("there are control characters in the head"));
    }
    let line = RequestLine::parse(first)?;
    let fields: Vec<Field<'_>> = lines.map(Field::parse).collect::<Result<_, _>>()?;
    if fields.len() > MOST_FIELDS {
        return Err(BadHead("the head has too many fields"));
    }
    let body = body(&fields, &line)?;
    let place = line.place()?;
    check_host(&fields, &line, &place)?;
    if line.method == "CONNECT" {
        if body != BodyFraming::Length(0) {
            return Err(BadHead("a tunnel has no body"));
        }
        return Ok(ProxyHead { wanted: ProxyTarget::Tunnel(place), body });
    }
    let head = write(&line, &fields, &place)?;
    Ok(ProxyHead { wanted: ProxyTarget::Request { place, head }, body })
}

struct RequestLine<'a> {
    method: &'a str,
    target: &'a str,
    version: &'a str,
}

impl<'a> RequestLine<'a> {
    fn parse(line: &'a str) -> Result<RequestLine<'a>, BadHead> {
        let mut words = line.split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(BadHead("the first line is not `METHOD TARGET VERSION`"));
        };
        if !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BadHead("the request line has invalid characters"));
        }
        if version != "HTTP/1.1" && version != "HTTP/1.0" {
            return Err(BadHead("only HTTP/1.1 and HTTP/1.0 are supported"));
        }
        Ok(RequestLine { method, target, version })
    }

    fn place(&self) -> Result<ProxyAuthority, BadHead> {
        if self.method == "CONNECT" {
            return ProxyAuthority::parse(self.target, None)
                .ok_or(BadHead("`CONNECT` needs `host:port`"));
        }
        let (authority, _) = self.absolute()?;
        ProxyAuthority::parse(authority, Some(80)).ok_or(BadHead("the request has an invalid host"))
    }

    /// Authority, and path with query.
    fn absolute(&self) -> Result<(&'a str, String), BadHead> {
        let (scheme, rest) = self
            .target
            .split_once("://")
            .ok_or(BadHead("this is a proxy: send `http://host/path`"))?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(BadHead("only `http://` works without `CONNECT`"));
        }
        if rest.contains('#') {
            return Err(BadHead("the request target has a fragment"));
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let path = match (path, self.method) {
            ("", "OPTIONS") => "*".to_owned(),
            (path, _) if path.starts_with('/') => path.to_owned(),
            (path, _) => format!("/{path}"),
        };
        Ok((authority, path))
    }
}

struct Field<'a> {
    name: &'a str,
    value: &'a str,
}

impl<'a> Field<'a> {
    fn parse(line: &'a str) -> Result<Field<'a>, BadHead> {
        // A line that begins with a blank would continue the previous one.
        let (name, value) =
            line.split_once(':').ok_or(BadHead("a line of the head is no field"))?;
        if !is_token(name) {
            return Err(BadHead("a field has an invalid name"));
        }
        Ok(Field { name, value: value.trim_matches([' ', '\t']) })
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// The single value of a field, if present.
fn single_value<'a>(
    fields: &[Field<'a>],
    name: &str,
    twice: &'static str,
) -> Result<Option<&'a str>, BadHead> {
    let mut found = fields.iter().filter(|field| field.is(name));
    let first = found.next();
    if found.next().is_some() { Err(BadHead(twice)) } else { Ok(first.map(|field| field.value)) }
}

fn body(fields: &[Field<'_>], line: &RequestLine<'_>) -> Result<BodyFraming, BadHead> {
    let length = single_value(fields, "content-length", "there are two lengths")?;
    let encoding = single_value(fields, "transfer-encoding", "there are two encodings")?;
    match (length, encoding) {
        (None, None) => Ok(BodyFraming::Length(0)),
        (Some(length), None) => {
            let is_octal = length.len() > 1 && length.starts_with('0');
            let digits = (1..=18).contains(&length.len())
                && !is_octal
                && length.bytes().all(|byte| byte.is_ascii_digit());
            digits
                .then(|| length.parse().ok())
                .flatten()
                .map(BodyFraming::Length)
                .ok_or(BadHead("the length is not a number"))
        }
        (None, Some(encoding))
            if encoding.eq_ignore_ascii_case("chunked") && line.version == "HTTP/1.1" =>
        {
            Ok(BodyFraming::Chunks)
        }
        (None, Some(_)) => Err(BadHead("the only supported encoding is `chunked`")),
        (Some(_), Some(_)) => Err(BadHead("the head has a length and an encoding")),
    }
}

/// A `Host` that differs from the target could select another host on some servers.
fn check_host(
    fields: &[Field<'_>],
    line: &RequestLine<'_>,
    place: &ProxyAuthority,
) -> Result<(), BadHead> {
    match single_value(fields, "host", "there are two hosts")? {
        // Clients leave out the default port, and in a tunnel some leave out any port.
        Some(host) => {
            let default_port = if line.method == "CONNECT" { place.port } else { 80 };
            let named = ProxyAuthority::parse(host, Some(default_port))
                .ok_or(BadHead("`Host` names no host"))?;
            if named.is_same(place) {
                Ok(())
            } else {
                Err(BadHead("`Host` is not the host of the request"))
            }
        }
        None if line.version == "HTTP/1.0" => Ok(()),
        None => Err(BadHead("there is no `Host`")),
    }
}

/// Hop-by-hop fields between a client and its proxy.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];
/// Fields that frame or route the request: `Connection` must not remove them.
const PROTECTED: &[&str] = &["content-length", "host", "transfer-encoding"];

/// The head to send to the host.
fn write(
    line: &RequestLine<'_>,
    fields: &[Field<'_>],
    place: &ProxyAuthority,
) -> Result<Vec<u8>, BadHead> {
    let named: Vec<&str> = fields
        .iter()
        .filter(|field| field.is("connection") || field.is("proxy-connection"))
        .flat_map(|field| field.value.split(','))
        .map(|name| name.trim_matches([' ', '\t']))
        .collect();
    let among = |names: &[&str], name: &str| names.iter().any(|one| one.eq_ignore_ascii_case(name));
    if named.iter().any(|name| among(PROTECTED, name)) {
        return Err(BadHead("`Connection` names a field that cannot be removed"));
    }
    let (_, path) = line.absolute()?;
    // One request per connection: bytes after it would bypass the check.
    let mut head = format!(
        "{} {path} {}\r\nHost: {}\r\nConnection: close\r\n",
        line.method,
        line.version,
        place.authority(80)
    );
    for field in
        fields.iter().filter(|field| !among(HOP_BY_HOP, field.name) && !among(&named, field.name))
    {
        head.push_str(&format!("{}: {}\r\n", field.name, field.value));
    }
    head.push_str("\r\n");
    Ok(head.into_bytes())
}

#[cfg(test)]
mod tests;
