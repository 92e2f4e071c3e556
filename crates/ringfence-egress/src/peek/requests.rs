//! Follows all requests of a program on one plain HTTP connection.
//!
//! A connection carries many requests, and each can name another host. So the program's side is
//! followed from request to request: only bytes of a request to the dialed host are released, and
//! the end of a request is never guessed.
//!
//! The server's side is not followed, except for one status: an upgrade (`101`, as for WebSocket).
//! After it nothing can be followed, and nothing needs to be, since the server agreed. It is
//! accepted for the first request only, because the server's first response can only answer that
//! one. If the server upgrades a later request, the following bytes are no request and are refused.

use super::head::{self, AfterHead, HttpFraming, HttpHead, UpgradeWish};
use super::{PeekError, PeekState};
use ringfence_policy::HostName;

/// Digits that are too many for a chunk length: servers keep it in 32 bits, some without an
/// overflow check (the JDK's among them), and would read another length.
const CHUNK_DIGITS: usize = 9;
/// Longest chunk; a server with a signed 32-bit length would read a negative one above it.
pub(crate) const LONGEST_CHUNK: u64 = i32::MAX as u64;
/// Maximum of response bytes searched for the status.
const ANSWER: usize = 16 * 1024;

/// Follows the requests of a program.
#[derive(Debug)]
pub struct RequestFollower {
    dialed: HostName,
    port: u16,
    state: RequestState,
    turn: UpgradeProgress,
    afterwards: AfterHead,
}

#[derive(Debug)]
enum RequestState {
    Head(head::HttpHeadReader),
    /// Remaining bytes of a body.
    Body(u64),
    /// A chunk length comes next.
    Chunk,
    /// Remaining bytes of a chunk.
    ChunkBody(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// The line end behind the last chunk.
    LastEnd,
    /// The request is complete; the server has not answered the upgrade yet.
    Answer,
    /// The connection is upgraded.
    Opaque,
    /// The last request is complete.
    Over,
    Refused(PeekError),
}

/// Progress of the one request that can upgrade the connection.
#[derive(Debug)]
enum UpgradeProgress {
    /// Not seen yet.
    Ahead,
    /// Requested; holds the start of the server's response.
    Asked(Vec<u8>),
    /// The server agreed.
    Agreed,
    /// No upgrade is possible any more.
    Past,
}

/// A piece of a queue, with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPiece {
    /// A complete request head.
    Head(usize),
    /// Part of a body, or upgraded bytes.
    Other(usize),
}

impl RequestPiece {
    /// Number of bytes.
    pub fn length(self) -> usize {
        match self {
            RequestPiece::Head(length) | RequestPiece::Other(length) => length,
        }
    }
}

/// Result for a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPieces {
    /// Number of bytes from the front that can be sent; the next queue begins behind them.
    pub clear: usize,
    /// Next step.
    pub next: RequestNext,
}

/// Next step after a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestNext {
    /// Read more from the program.
    More,
    /// Read the response first, then show the rest of the queue again.
    Answer,
    /// Send everything from now on.
    Opaque,
    /// Send nothing more from the program; wait for the response.
    Over,
    /// Send nothing more.
    Refused(PeekError),
}

impl RequestFollower {
    /// A follower for a connection to `dialed`.
    pub fn new(dialed: HostName, port: u16) -> Self {
        Self {
            dialed,
            port,
            state: RequestState::Head(head::HttpHeadReader::default()),
            turn: UpgradeProgress::Ahead,
            afterwards: AfterHead::Open,
        }
    }

    /// Checks the `queue`, see [`super`]. Remove the clear bytes before the next call.
    pub fn check(&mut self, queue: &[u8]) -> CheckedPieces {
        let mut clear = 0;
        while let Some(piece) = self.next_piece(&queue[clear..]) {
            clear += piece.length();
        }
        CheckedPieces { clear, next: self.next_step() }
    }

    /// Next step if the queue has no complete piece.
    pub fn next_step(&self) -> RequestNext {
        match &self.state {
            RequestState::Answer => RequestNext::Answer,
            RequestState::Opaque => RequestNext::Opaque,
            RequestState::Over => RequestNext::Over,
            RequestState::Refused(objection) => RequestNext::Refused(objection.clone()),
            _ => RequestNext::More,
        }
    }

    /// The next complete piece of the `queue` that can be sent, perhaps empty. Remove its bytes
    /// before the next call.
    pub fn next_piece(&mut self, queue: &[u8]) -> Option<RequestPiece> {
        let is_head = matches!(self.state, RequestState::Head(_));
        let length = self.step(queue)?;
        Some(if is_head { RequestPiece::Head(length) } else { RequestPiece::Other(length) })
    }

    /// Moves to the next state if `rest` is enough; returns the number of clear bytes.
    fn step(&mut self, rest: &[u8]) -> Option<usize> {
        let found = match &mut self.state {
            RequestState::Head(reader) => match reader.read(rest) {
                PeekState::Found(head) => match self.begin(&head) {
                    Ok(state) => PeekState::Found((head.length, state)),
                    Err(objection) => PeekState::Refused(objection),
                },
                PeekState::Refused(objection) => PeekState::Refused(objection),
                PeekState::NeedMore => PeekState::NeedMore,
            },
            RequestState::Body(0) => PeekState::Found((0, self.over())),
            RequestState::ChunkBody(0) => PeekState::Found((0, RequestState::ChunkEnd)),
            RequestState::Body(left) | RequestState::ChunkBody(left) => {
                let count = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                return (count > 0).then_some(count);
            }
            RequestState::Chunk => chunk(rest),
            RequestState::ChunkEnd => line_end(rest, RequestState::Chunk),
            RequestState::LastEnd => line_end(rest, self.over()),
            RequestState::Answer => match self.turn {
                UpgradeProgress::Asked(_) => PeekState::NeedMore,
                UpgradeProgress::Agreed => PeekState::Found((0, RequestState::Opaque)),
                UpgradeProgress::Ahead | UpgradeProgress::Past => {
                    PeekState::Found((0, RequestState::Head(head::HttpHeadReader::default())))
                }
            },
            RequestState::Opaque => return (!rest.is_empty()).then_some(rest.len()),
            RequestState::Over | RequestState::Refused(_) => PeekState::NeedMore,
        };
        let (count, state) = match found {
            PeekState::NeedMore => return None,
            PeekState::Found(found) => found,
            PeekState::Refused(objection) => (0, RequestState::Refused(objection)),
        };
        self.state = state;
        Some(count)
    }

    /// True if the last parsed head must be the last request and needs `Connection: close`: some
    /// servers would take its body for the next request.
    pub fn is_last(&self) -> bool {
        self.afterwards == AfterHead::Closed
    }

    /// Number of next bytes that belong to a body: the relay can send these unseen if it reports
    /// their count.
    pub fn body_left(&self) -> u64 {
        match self.state {
            RequestState::Body(left) | RequestState::ChunkBody(left) => left,
            RequestState::Opaque => u64::MAX,
            _ => 0,
        }
    }

    /// Notes that `count` body bytes were sent unseen, at most the remaining ones.
    pub fn skip_body(&mut self, count: u64) {
        if let RequestState::Body(left) | RequestState::ChunkBody(left) = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }

    /// True if response bytes must be shown before they are passed on.
    pub fn wants_answer(&self) -> bool {
        matches!(self.turn, UpgradeProgress::Ahead | UpgradeProgress::Asked(_))
    }

    /// Consumes response bytes, each once and from the first, as long as [`Self::wants_answer`].
    pub fn feed_response(&mut self, bytes: &[u8]) {
        let UpgradeProgress::Asked(response) = &mut self.turn else {
            // Bytes before the request are no answer to it.
            if matches!(self.turn, UpgradeProgress::Ahead) && !bytes.is_empty() {
                self.turn = UpgradeProgress::Past;
            }
            return;
        };
        response.extend(&bytes[..bytes.len().min(ANSWER - response.len())]);
        match agrees(response) {
            Some(true) => self.turn = UpgradeProgress::Agreed,
            Some(false) => self.turn = UpgradeProgress::Past,
            None if response.len() == ANSWER => self.turn = UpgradeProgress::Past,
            None => {}
        }
    }

    /// State after a request head.
    fn begin(&mut self, head: &HttpHead) -> Result<RequestState, PeekError> {
        super::check_same_host(&head.host.name, &self.dialed)?;
        match head.host.port {
            Some(port) if port != self.port => return Err(PeekError::OtherPort(port)),
            Some(_) | None => {}
        }
        self.turn = match (&self.turn, head.upgrade) {
            (UpgradeProgress::Ahead, UpgradeWish::Upgrade)
                if head.afterwards == AfterHead::Open =>
            {
                UpgradeProgress::Asked(Vec::new())
            }
            _ => UpgradeProgress::Past,
        };
        self.afterwards = head.afterwards;
        Ok(match head.framing {
            HttpFraming::Length(length) => RequestState::Body(length),
            HttpFraming::Chunked => RequestState::Chunk,
        })
    }

    /// State after a request. An upgrade request can be answered while its body is still being
    /// sent.
    fn over(&self) -> RequestState {
        match (self.afterwards, &self.turn) {
            (AfterHead::Closed, _) => RequestState::Over,
            (AfterHead::Open, UpgradeProgress::Asked(_) | UpgradeProgress::Agreed) => {
                RequestState::Answer
            }
            (AfterHead::Open, UpgradeProgress::Ahead | UpgradeProgress::Past) => {
                RequestState::Head(head::HttpHeadReader::default())
            }
        }
    }
}

/// Parses a chunk line. Extensions and trailers are refused: clients do not send them, and servers
/// disagree about their end.
fn chunk(rest: &[u8]) -> PeekState<(usize, RequestState)> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match (&rest[digits..], digits) {
        (_, CHUNK_DIGITS..) | ([_, ..], 0) => PeekState::Refused(PeekError::BadFraming),
        ([] | [b'\r'], _) => PeekState::NeedMore,
        ([b'\r', b'\n', ..], _) => {
            let digit = |digit: &u8| u64::from(char::from(*digit).to_digit(16).unwrap_or_default());
            match rest[..digits].iter().map(digit).fold(0, |number, digit| number * 16 + digit) {
                0 => PeekState::Found((digits + 2, RequestState::LastEnd)),
                length @ ..=LONGEST_CHUNK => {
                    PeekState::Found((digits + 2, RequestState::ChunkBody(length)))
                }
                _ => PeekState::Refused(PeekError::BadFraming),
            }
        }
        _ => PeekState::Refused(PeekError::BadFraming),
    }
}

/// Parses a line end, followed by `state`.
fn line_end(rest: &[u8], state: RequestState) -> PeekState<(usize, RequestState)> {
    match rest {
        [b'\r', b'\n', ..] => PeekState::Found((2, state)),
        [] | [b'\r'] => PeekState::NeedMore,
        _ => PeekState::Refused(PeekError::BadFraming),
    }
}

/// True if the response agrees to an upgrade; `None` if undecided. Informational responses (`100`,
/// `103`) can precede it.
fn agrees(mut response: &[u8]) -> Option<bool> {
    loop {
        let [start @ .., b'1', second, third] = response.first_chunk::<12>()? else {
            return Some(false);
        };
        if !start.starts_with(b"HTTP/1.") || start[8] != b' ' {
            return Some(false);
        }
        if (second, third) == (&b'0', &b'1') {
            return Some(true);
        }
        let end = response.windows(4).position(|window| window == b"\r\n\r\n")?;
        response = &response[end + 4..];
    }
}

#[cfg(test)]
mod tests;
