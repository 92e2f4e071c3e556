//! Responses of a host, with secrets removed: parsed, scrubbed and written anew.
//!
//! Heads and trailers are scrubbed as a whole. The framing of a body is removed first, since a
//! program can pad its request so that the host splits the secret across two chunks; the output has
//! new chunks. A response that could hide a secret is blocked: a compressed one, or one without a
//! known end.

mod head;

use std::collections::VecDeque;
use std::time::Duration;

use super::scrub::SecretScrubber;
use head::{Head, ResponseFraming};

/// Longest head.
const LONGEST: usize = 64 * 1024;
/// Time to wait for the rest of a possible secret within a response: longer than the network delays
/// a host.
const REST: Duration = Duration::from_secs(1);
/// The same limit after an upgrade, where messages are short and latency matters.
const SHORT_REST: Duration = Duration::from_millis(50);

/// Follows the responses of a host.
#[derive(Debug)]
pub(super) struct ResponseFollower {
    state: ResponseState,
    /// Expected responses, oldest first.
    expected: VecDeque<ResponseKind>,
    scrub: SecretScrubber,
}

/// Kind of an expected response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// Response to `HEAD`: it has a length but no body.
    Head,
    Other,
}

/// Reason why a response is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) &'static str);

/// Output, in pieces. Held bytes always are a piece of their own, so that piece lengths, which a
/// program can see, do not reveal when the rest arrived.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(last) => last.extend_from_slice(bytes),
            None => self.0.push(bytes.to_vec()),
        }
    }

    /// Starts a new piece.
    fn part(&mut self) {
        self.0.push(Vec::new());
    }

    /// The non-empty pieces.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice).filter(|piece| !piece.is_empty())
    }
}

#[derive(Debug)]
enum ResponseState {
    Head(Vec<u8>),
    Body(u64),
    /// The line before a chunk.
    Chunk(Vec<u8>),
    ChunkBody(u64),
    /// The line end behind a chunk.
    ChunkEnd(Vec<u8>),
    /// All lines behind the last chunk.
    Trailer(Vec<u8>),
    /// The body ends with the connection.
    Endless,
    /// The connection was upgraded.
    Changed,
}

impl ResponseFollower {
    pub(super) fn new(scrub: SecretScrubber) -> Self {
        Self { state: ResponseState::Head(Vec::new()), expected: VecDeque::new(), scrub }
    }

    /// Expects one more response.
    pub(super) fn expect(&mut self, kind: ResponseKind) {
        self.expected.push_back(kind);
    }

    /// True if every response is complete and none has begun.
    pub(super) fn is_quiet(&self) -> bool {
        self.expected.is_empty()
            && matches!(&self.state, ResponseState::Head(begun) if begun.is_empty())
    }

    /// True if nothing of the current response was passed on.
    pub(super) fn is_before_output(&self) -> bool {
        matches!(self.state, ResponseState::Head(_))
    }

    /// Time to wait with held bytes, if there are any.
    pub(super) fn hold_limit(&self) -> Option<Duration> {
        let rest = if matches!(self.state, ResponseState::Changed) { SHORT_REST } else { REST };
        self.scrub.holds().then_some(rest)
    }

    /// Consumes bytes of the host; appends what can be passed on to `out`, also if the rest is
    /// blocked.
    pub(super) fn feed(&mut self, mut bytes: &[u8], out: &mut Pieces) -> Result<(), Unreadable> {
        while !bytes.is_empty() {
            let count = match &mut self.state {
                ResponseState::Endless | ResponseState::Changed => bytes.len(),
                ResponseState::Body(left) | ResponseState::ChunkBody(left) => {
                    let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= count as u64;
                    count
                }
                ResponseState::Head(text)
                | ResponseState::Chunk(text)
                | ResponseState::ChunkEnd(text)
                | ResponseState::Trailer(text) => {
                    let count = bytes
                        .iter()
                        .position(|byte| *byte == b'\n')
                        .map_or(bytes.len(), |at| at + 1);
                    text.extend_from_slice(&bytes[..count]);
                    count
                }
            };
            let (piece, rest) = bytes.split_at(count);
            bytes = rest;
            if matches!(
                self.state,
                ResponseState::Endless
                    | ResponseState::Changed
                    | ResponseState::Body(_)
                    | ResponseState::ChunkBody(_)
            ) {
                let clean = self.scrub.scrub(piece);
                self.write(&clean, out);
            }
            self.advance(out)?;
        }
        Ok(())
    }

    /// Passes on the held bytes, since no more came in time.
    pub(super) fn release(&mut self, out: &mut Pieces) {
        let rest = self.scrub.release();
        if !rest.is_empty() {
            out.part();
        }
        self.write(&rest, out);
    }

    /// Writes body bytes, chunked if they came in chunks.
    fn write(&self, body: &[u8], out: &mut Pieces) {
        match self.state {
            ResponseState::Chunk(_) | ResponseState::ChunkBody(_) | ResponseState::ChunkEnd(_)
                if !body.is_empty() =>
            {
                out.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
                out.extend_from_slice(body);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(body),
        }
    }

    /// Moves to the next state, if this one is complete.
    fn advance(&mut self, out: &mut Pieces) -> Result<(), Unreadable> {
        match &self.state {
            ResponseState::Head(text)
            | ResponseState::Chunk(text)
            | ResponseState::ChunkEnd(text)
            | ResponseState::Trailer(text)
                if text.len() > LONGEST =>
            {
                Err(Unreadable("its header or a chunk line is longer than 64 KiB"))
            }
            ResponseState::Head(text) if is_blank(text) => {
                self.state = ResponseState::Head(Vec::new());
                Ok(())
            }
            ResponseState::Head(text) if ends_blank(text) => self.begin(&text.clone(), out),
            ResponseState::Body(0) => {
                self.release(out);
                self.end();
                Ok(())
            }
            ResponseState::ChunkBody(0) => {
                self.state = ResponseState::ChunkEnd(Vec::new());
                Ok(())
            }
            ResponseState::ChunkEnd(text) if text.ends_with(b"\n") => match is_blank(text) {
                true => {
                    self.state = ResponseState::Chunk(Vec::new());
                    Ok(())
                }
                false => Err(Unreadable("a chunk is longer than its declared length")),
            },
            ResponseState::Chunk(text) if text.ends_with(b"\n") => match chunk(text) {
                Some(0) => {
                    self.release(out);
                    self.state = ResponseState::Trailer(Vec::new());
                    Ok(())
                }
                Some(length) => {
                    self.state = ResponseState::ChunkBody(length);
                    Ok(())
                }
                None => Err(Unreadable("a chunk has no length")),
            },
            ResponseState::Trailer(text) if is_blank(text) || ends_blank(text) => {
                let mut trailer = text.clone();
                self.scrub.scrub_whole(&mut trailer);
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(&trailer);
                self.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) {
        self.expected.pop_front();
        self.state = ResponseState::Head(Vec::new());
    }

    /// Passes on a head, and moves to the state of its body.
    fn begin(&mut self, text: &[u8], out: &mut Pieces) -> Result<(), Unreadable> {
        let head = Head::read(text, self.expected.front().copied().unwrap_or(ResponseKind::Other))?;
        let mut written = head.write();
        self.scrub.scrub_whole(&mut written);
        out.extend_from_slice(&written);
        match head.body {
            ResponseFraming::Later => self.state = ResponseState::Head(Vec::new()),
            ResponseFraming::None => self.end(),
            ResponseFraming::Length(length) => self.state = ResponseState::Body(length),
            ResponseFraming::Chunked => self.state = ResponseState::Chunk(Vec::new()),
            ResponseFraming::Endless => self.state = ResponseState::Endless,
            ResponseFraming::Changed => self.state = ResponseState::Changed,
        }
        Ok(())
    }
}

/// True for one empty line.
fn is_blank(text: &[u8]) -> bool {
    matches!(text, b"\r\n" | b"\n")
}

/// True if the last line is empty.
fn ends_blank(text: &[u8]) -> bool {
    text.ends_with(b"\n\r\n") || text.ends_with(b"\n\n")
}

/// The length in a chunk line; chunk extensions are not passed on.
fn chunk(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let is_whole = matches!(line.get(digits), Some(b'\r' | b'\n' | b';' | b' ' | b'\t'));
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests;
