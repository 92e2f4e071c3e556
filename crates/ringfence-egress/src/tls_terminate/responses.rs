//! The answers of a host, without the values: read, scrubbed, and written anew.
//!
//! Heads and trailers are scrubbed as a whole. Of a body the framing is taken off first, since a
//! program inside can pad its request so that the host cuts the value in two there; what is passed
//! on has chunks of our own. An answer that could hide a value from us is not passed on: one that
//! is compressed, or whose end cannot be told.

mod head;

use std::collections::VecDeque;
use std::time::Duration;

use super::scrub::SecretScrubber;
use head::{Body, Head};

/// More is no head.
const LONGEST: usize = 64 * 1024;
/// How long the rest of what may be a value is waited for in the middle of an answer: longer than
/// a host takes that waits for the network.
const REST: Duration = Duration::from_secs(1);
/// The same on a connection that has become something else, in which messages are short and
/// waited for.
const SHORT_REST: Duration = Duration::from_millis(50);

/// Follows what a host says.
#[derive(Debug)]
pub(super) struct ResponseFollower {
    state: ResponseState,
    /// Those that were asked for and did not come yet, and whether they have no body.
    asked: VecDeque<ResponseKind>,
    scrub: SecretScrubber,
}

/// What kind of answer is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseKind {
    /// To `HEAD`: it says how long its body would be.
    Head,
    Other,
}

/// Why an answer is not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable(pub(super) &'static str);

/// What is passed on, piece by piece. What was held is a piece of its own, whenever the rest came:
/// a program inside sees how long pieces are.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<Vec<u8>>);

impl Pieces {
    fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self.0.last_mut() {
            Some(last) => last.extend_from_slice(bytes),
            None => self.0.push(bytes.to_vec()),
        }
    }

    /// Begins another piece.
    fn part(&mut self) {
        self.0.push(Vec::new());
    }

    /// Those that have something in them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Vec::as_slice).filter(|piece| !piece.is_empty())
    }
}

#[derive(Debug)]
enum ResponseState {
    Head(Vec<u8>),
    Body(u64),
    /// The line in front of a chunk.
    Chunk(Vec<u8>),
    ChunkBody(u64),
    /// The end of the line behind a chunk.
    ChunkEnd(Vec<u8>),
    /// All lines behind the last chunk.
    Trailer(Vec<u8>),
    /// It ends with the connection.
    Endless,
    /// The connection has become something else.
    Changed,
}

impl ResponseFollower {
    pub(super) fn new(scrub: SecretScrubber) -> Self {
        Self { state: ResponseState::Head(Vec::new()), asked: VecDeque::new(), scrub }
    }

    /// One is asked for.
    pub(super) fn expect(&mut self, kind: ResponseKind) {
        self.asked.push_back(kind);
    }

    /// Whether the host has answered everything, and says nothing now.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_empty()
            && matches!(&self.state, ResponseState::Head(begun) if begun.is_empty())
    }

    /// Whether nothing of the answer that comes now was passed on.
    pub(super) fn is_unbegun(&self) -> bool {
        matches!(self.state, ResponseState::Head(_))
    }

    /// How long what is held may be waited for, if something is.
    pub(super) fn patience(&self) -> Option<Duration> {
        let rest = if matches!(self.state, ResponseState::Changed) { SHORT_REST } else { REST };
        self.scrub.holds().then_some(rest)
    }

    /// Takes in what the host says; what can be passed on by now is added to `out`, also where
    /// the rest cannot be.
    pub(super) fn hear(&mut self, mut bytes: &[u8], out: &mut Pieces) -> Result<(), Unreadable> {
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
                let clean = self.scrub.pass(piece);
                self.write(&clean, out);
            }
            self.go_on(out)?;
        }
        Ok(())
    }

    /// Passes on what was held, since nothing comes in time or at all.
    pub(super) fn release(&mut self, out: &mut Pieces) {
        let rest = self.scrub.release();
        if !rest.is_empty() {
            out.part();
        }
        self.write(&rest, out);
    }

    /// Something of a body, in chunks where it came in chunks.
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

    /// The next state, if this one is over.
    fn go_on(&mut self, out: &mut Pieces) -> Result<(), Unreadable> {
        match &self.state {
            ResponseState::Head(text)
            | ResponseState::Chunk(text)
            | ResponseState::ChunkEnd(text)
            | ResponseState::Trailer(text)
                if text.len() > LONGEST =>
            {
                Err(Unreadable("its header, or a line of it, is longer than 64 KiB"))
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
                false => Err(Unreadable("a chunk of its answer is longer than was said")),
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
                None => Err(Unreadable("a chunk of its answer has no length")),
            },
            ResponseState::Trailer(text) if is_blank(text) || ends_blank(text) => {
                let mut trailer = text.clone();
                self.scrub.whole(&mut trailer);
                out.extend_from_slice(b"0\r\n");
                out.extend_from_slice(&trailer);
                self.end();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) {
        self.asked.pop_front();
        self.state = ResponseState::Head(Vec::new());
    }

    /// Passes on a head, and goes on to what follows it.
    fn begin(&mut self, text: &[u8], out: &mut Pieces) -> Result<(), Unreadable> {
        let head = Head::read(text, self.asked.front().copied().unwrap_or(ResponseKind::Other))?;
        let mut written = head.write();
        self.scrub.whole(&mut written);
        out.extend_from_slice(&written);
        match head.body {
            Body::Later => self.state = ResponseState::Head(Vec::new()),
            Body::None => self.end(),
            Body::Length(length) => self.state = ResponseState::Body(length),
            Body::Chunked => self.state = ResponseState::Chunk(Vec::new()),
            Body::Endless => self.state = ResponseState::Endless,
            Body::Changed => self.state = ResponseState::Changed,
        }
        Ok(())
    }
}

/// One empty line.
fn is_blank(text: &[u8]) -> bool {
    matches!(text, b"\r\n" | b"\n")
}

/// Lines of which the last is empty.
fn ends_blank(text: &[u8]) -> bool {
    text.ends_with(b"\n\r\n") || text.ends_with(b"\n\n")
}

/// The length in the line before a chunk; what stands behind it is not passed on.
fn chunk(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let is_whole = matches!(line.get(digits), Some(b'\r' | b'\n' | b';' | b' ' | b'\t'));
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok().filter(|_| is_whole)
}

#[cfg(test)]
mod tests;
