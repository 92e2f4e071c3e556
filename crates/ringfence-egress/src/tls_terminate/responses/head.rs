//! Response heads: the framing of the body, and the head to pass on.

use super::{ResponseKind, Unreadable};

/// A parsed response head.
pub(super) struct Head<'a> {
    lines: Vec<&'a [u8]>,
    pub(super) body: ResponseFraming,
}

/// Body that follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseFraming {
    /// The final response (after `100`, `103`).
    Later,
    None,
    Length(u64),
    Chunked,
    /// Ends with the connection.
    Endless,
    /// Another protocol.
    Changed,
}

impl<'a> Head<'a> {
    /// Parses the complete head of a response to a request of this `kind`.
    pub(super) fn read(text: &'a [u8], kind: ResponseKind) -> Result<Self, Unreadable> {
        let mut head = Self {
            lines: text.split_inclusive(|byte| *byte == b'\n').collect(),
            body: ResponseFraming::None,
        };
        head.body = match (head.status()?, kind) {
            (101, _) if head.values("upgrade").any(|value| is_http(&value)) => {
                return Err(Unreadable(
                    "it switches to HTTP/2, where ringfence cannot find secrets",
                ));
            }
            (101, _) => ResponseFraming::Changed,
            (100..200, _) => ResponseFraming::Later,
            (204 | 304, _) | (_, ResponseKind::Head) => ResponseFraming::None,
            _ => head.framing()?,
        };
        Ok(head)
    }

    fn status(&self) -> Result<u16, Unreadable> {
        let line = self
            .lines
            .first()
            .and_then(|line| std::str::from_utf8(line.get(..line.len().min(13))?).ok());
        let status = line.and_then(|line| {
            line.strip_prefix("HTTP/1.")?.split([' ', '\r', '\n']).nth(1)?.parse().ok()
        });
        status
            .filter(|status| (100..1000).contains(status))
            .ok_or(Unreadable("its answer is not HTTP/1"))
    }

    /// Values of a header, in lower case.
    fn values(&self, name: &str) -> impl Iterator<Item = String> {
        let fields = self.lines.iter().skip(1).filter_map(|line| {
            line.iter().position(|byte| *byte == b':').map(|at| line.split_at(at))
        });
        let found = fields
            .filter(move |(found, _)| found.trim_ascii().eq_ignore_ascii_case(name.as_bytes()));
        let text =
            found.map(|(_, value)| String::from_utf8_lossy(&value[1..]).to_ascii_lowercase());
        let words: Vec<String> = text
            .flat_map(|text| text.split(',').map(|word| word.trim().to_owned()).collect::<Vec<_>>())
            .collect();
        words.into_iter().filter(|word| !word.is_empty())
    }

    fn framing(&self) -> Result<ResponseFraming, Unreadable> {
        if self.values("content-encoding").any(|coding| coding != "identity") {
            return Err(Unreadable(
                "it compressed its answer despite `Accept-Encoding: identity`, so secrets in it cannot be found",
            ));
        }
        let codings: Vec<String> =
            self.values("transfer-encoding").filter(|coding| coding != "identity").collect();
        match codings.as_slice() {
            [] => {}
            [coding] if coding == "chunked" => return Ok(ResponseFraming::Chunked),
            _ => return Err(Unreadable("its transfer encoding is not supported")),
        }
        let mut lengths: Vec<String> = self.values("content-length").collect();
        lengths.dedup();
        match lengths.as_slice() {
            [] => Ok(ResponseFraming::Endless),
            [length] if length.bytes().all(|byte| byte.is_ascii_digit()) => match length.parse() {
                Ok(0) => Ok(ResponseFraming::None),
                Ok(length) => Ok(ResponseFraming::Length(length)),
                Err(_) => Err(Unreadable("its `Content-Length` is not a number")),
            },
            _ => Err(Unreadable("its `Content-Length` is not a number")),
        }
    }

    /// The head to pass on: without `Content-Length` if the body is chunked.
    pub(super) fn write(&self) -> Vec<u8> {
        let is_length = |line: &&[u8]| {
            line.iter()
                .position(|byte| *byte == b':')
                .is_some_and(|at| is_content_length(&line[..at]))
        };
        let drops = |line: &&[u8]| self.body == ResponseFraming::Chunked && is_length(line);
        self.lines.iter().copied().filter(|line| !drops(line)).collect::<Vec<_>>().concat()
    }
}

fn is_content_length(name: &[u8]) -> bool {
    name.trim_ascii().eq_ignore_ascii_case(b"content-length")
}

/// True for an HTTP version whose framing is not parsed here.
fn is_http(protocol: &str) -> bool {
    protocol.starts_with("h2") || protocol.starts_with("http/") || protocol.starts_with("spdy")
}
