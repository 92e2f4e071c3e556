//! The head of an answer: how its body ends, and how it is passed on.

use super::{ResponseKind, Unreadable};

/// What the head of an answer says.
pub(super) struct Head<'a> {
    lines: Vec<&'a [u8]>,
    pub(super) body: Body,
}

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// The answer itself (after `100`, `103`).
    Later,
    None,
    Length(u64),
    Chunked,
    /// It ends with the connection.
    Endless,
    /// Another protocol.
    Changed,
}

impl<'a> Head<'a> {
    /// Reads the whole head of an answer to a request of this `kind`.
    pub(super) fn read(text: &'a [u8], kind: ResponseKind) -> Result<Self, Unreadable> {
        let mut head =
            Self { lines: text.split_inclusive(|byte| *byte == b'\n').collect(), body: Body::None };
        head.body = match (head.status()?, kind) {
            (101, _) if head.values("upgrade").any(|value| is_http(&value)) => {
                return Err(Unreadable(
                    "it goes on in HTTP/2, in which a secret could not be found",
                ));
            }
            (101, _) => Body::Changed,
            (100..200, _) => Body::Later,
            (204 | 304, _) | (_, ResponseKind::Head) => Body::None,
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

    /// The values of a header, in small letters, one by one.
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

    fn framing(&self) -> Result<Body, Unreadable> {
        if self.values("content-encoding").any(|coding| coding != "identity") {
            return Err(Unreadable(
                "it compressed its answer, though it was asked not to, and a secret could not be found in it",
            ));
        }
        let codings: Vec<String> =
            self.values("transfer-encoding").filter(|coding| coding != "identity").collect();
        match codings.as_slice() {
            [] => {}
            [coding] if coding == "chunked" => return Ok(Body::Chunked),
            _ => return Err(Unreadable("its answer is encoded in a way that is not understood")),
        }
        let mut lengths: Vec<String> = self.values("content-length").collect();
        lengths.dedup();
        match lengths.as_slice() {
            [] => Ok(Body::Endless),
            [length] if length.bytes().all(|byte| byte.is_ascii_digit()) => match length.parse() {
                Ok(0) => Ok(Body::None),
                Ok(length) => Ok(Body::Length(length)),
                Err(_) => Err(Unreadable("its answer has a length that is no number")),
            },
            _ => Err(Unreadable("its answer has a length that is no number")),
        }
    }

    /// The head as it is passed on: beside chunks, a length means nothing.
    pub(super) fn write(&self) -> Vec<u8> {
        let is_length = |line: &&[u8]| {
            line.iter()
                .position(|byte| *byte == b':')
                .is_some_and(|at| is_content_length(&line[..at]))
        };
        let drops = |line: &&[u8]| self.body == Body::Chunked && is_length(line);
        self.lines.iter().copied().filter(|line| !drops(line)).collect::<Vec<_>>().concat()
    }
}

fn is_content_length(name: &[u8]) -> bool {
    name.trim_ascii().eq_ignore_ascii_case(b"content-length")
}

/// Whether a protocol is HTTP again, of a version whose framing is not taken off here.
fn is_http(protocol: &str) -> bool {
    protocol.starts_with("h2") || protocol.starts_with("http/") || protocol.starts_with("spdy")
}
