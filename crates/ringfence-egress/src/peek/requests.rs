//! All requests that a program makes on one connection of plain HTTP.
//!
//! A connection is kept for many requests, and each can name another host. So the program's side
//! is followed from request to request: only what belongs to a request for the host that was dialed
//! is let go, and where a request ends is never guessed.
//!
//! The server's side is not followed. There is one word of it that counts: that the connection
//! becomes something else (`101`, as for WebSocket), after which nothing can be followed any more
//! and nothing needs to be, since the server has agreed to it. That is believed of the first
//! request only, because what the server says first can only be meant for that one. Should it agree
//! to a later one, what follows is no request and is refused.

use super::head::{self, Afterwards, HttpFraming, HttpHead, UpgradeWish};
use super::{PeekError, PeekState};
use ringfence_policy::HostName;

/// More digits than a chunk's length may have: servers keep it in 32 bits, some without looking
/// (the JDK's among them), and read another length than was sent.
const CHUNK_DIGITS: usize = 9;
/// The longest chunk; a server that keeps its length as a signed number would read less than none.
pub(crate) const LONGEST_CHUNK: u64 = i32::MAX as u64;
/// How much of what the server says is looked at for its word.
const ANSWER: usize = 16 * 1024;

/// Follows what the program says.
#[derive(Debug)]
pub struct RequestFollower {
    dialed: HostName,
    port: u16,
    state: RequestState,
    turn: UpgradeProgress,
    afterwards: Afterwards,
}

#[derive(Debug)]
enum RequestState {
    Head(head::HttpHeadReader),
    /// So many bytes of a body are left.
    Body(u64),
    /// The length of a chunk comes next.
    Chunk,
    /// So many bytes of a chunk are left.
    ChunkBody(u64),
    /// The end of a line behind a chunk.
    ChunkEnd,
    /// The end of a line behind the last chunk.
    LastEnd,
    /// The request is over, and the server has yet to say what becomes of the connection.
    Answer,
    /// It has become something else.
    Opaque,
    /// The last request is over.
    Over,
    Refused(PeekError),
}

/// How far the one request is that can change the connection.
#[derive(Debug)]
enum UpgradeProgress {
    /// It has not been seen.
    Ahead,
    /// It wants to, and this is the beginning of what the server has said to it.
    Asked(Vec<u8>),
    /// The server agrees.
    Agreed,
    /// There is nothing to wait for.
    Past,
}

/// A piece of a queue, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPiece {
    /// The head of a request, all of it.
    Head(usize),
    /// Something of its body, or what has become of the connection.
    Other(usize),
}

impl RequestPiece {
    /// How many bytes.
    pub fn length(self) -> usize {
        match self {
            RequestPiece::Head(length) | RequestPiece::Other(length) => length,
        }
    }
}

/// What has been found in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPieces {
    /// So many bytes from its front can go out; the next queue begins behind them.
    pub clear: usize,
    /// What is to be done then.
    pub next: RequestNext,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestNext {
    /// Hear more of the program.
    More,
    /// Hear the server first ([`Requests::answer`]), then show the rest of the queue again.
    Answer,
    /// Everything can go out from now on.
    Opaque,
    /// Nothing goes out from now on, and what the server answers is awaited.
    Over,
    /// Nothing can go out from now on.
    Refused(PeekError),
}

impl RequestFollower {
    /// For a connection to `dialed`.
    pub fn new(dialed: HostName, port: u16) -> Self {
        Self {
            dialed,
            port,
            state: RequestState::Head(head::HttpHeadReader::default()),
            turn: UpgradeProgress::Ahead,
            afterwards: Afterwards::Open,
        }
    }

    /// Looks at the `queue`, see [`super`]. What is clear must be taken off before the next time.
    pub fn check(&mut self, queue: &[u8]) -> CheckedPieces {
        let mut clear = 0;
        while let Some(piece) = self.piece(&queue[clear..]) {
            clear += piece.length();
        }
        CheckedPieces { clear, next: self.next() }
    }

    /// What is to be done where the queue has no whole piece.
    pub fn next(&self) -> RequestNext {
        match &self.state {
            RequestState::Answer => RequestNext::Answer,
            RequestState::Opaque => RequestNext::Opaque,
            RequestState::Over => RequestNext::Over,
            RequestState::Refused(objection) => RequestNext::Refused(objection.clone()),
            _ => RequestNext::More,
        }
    }

    /// The next piece of the `queue` that can go out, if there is a whole one: its bytes must be
    /// taken off before the next time. It may be one without any.
    pub fn piece(&mut self, queue: &[u8]) -> Option<RequestPiece> {
        let is_head = matches!(self.state, RequestState::Head(_));
        let length = self.step(queue)?;
        Some(if is_head { RequestPiece::Head(length) } else { RequestPiece::Other(length) })
    }

    /// Goes on to the next state, if `rest` is enough for it: how many bytes are clear by that.
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

    /// Whether the request whose head was read last is the last one, and has to say so
    /// (`Connection: close`): some servers would take its body for the next request.
    pub fn is_last(&self) -> bool {
        self.afterwards == Afterwards::Closed
    }

    /// How many of the next bytes belong to the body of a request: these can be carried without
    /// being shown, if [`Requests::carried`] is told.
    pub fn body_left(&self) -> u64 {
        match self.state {
            RequestState::Body(left) | RequestState::ChunkBody(left) => left,
            RequestState::Opaque => u64::MAX,
            _ => 0,
        }
    }

    /// So many bytes of the body have been carried without being shown, at most what was left.
    pub fn carried(&mut self, count: u64) {
        if let RequestState::Body(left) | RequestState::ChunkBody(left) = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }

    /// Whether what the server says has to be shown before it is passed on.
    pub fn wants_answer(&self) -> bool {
        matches!(self.turn, UpgradeProgress::Ahead | UpgradeProgress::Asked(_))
    }

    /// What the server has said, each byte once and from the first, as long as it is wanted.
    pub fn answer(&mut self, bytes: &[u8]) {
        let UpgradeProgress::Asked(said) = &mut self.turn else {
            // Who speaks before the request is there has not answered it.
            if matches!(self.turn, UpgradeProgress::Ahead) && !bytes.is_empty() {
                self.turn = UpgradeProgress::Past;
            }
            return;
        };
        said.extend(&bytes[..bytes.len().min(ANSWER - said.len())]);
        match agrees(said) {
            Some(true) => self.turn = UpgradeProgress::Agreed,
            Some(false) => self.turn = UpgradeProgress::Past,
            None if said.len() == ANSWER => self.turn = UpgradeProgress::Past,
            None => {}
        }
    }

    /// The state after the head of a request.
    fn begin(&mut self, head: &HttpHead) -> Result<RequestState, PeekError> {
        super::agree(&head.host.name, &self.dialed)?;
        match head.host.port {
            Some(port) if port != self.port => return Err(PeekError::OtherPort(port)),
            Some(_) | None => {}
        }
        self.turn = match (&self.turn, head.wish) {
            (UpgradeProgress::Ahead, UpgradeWish::Upgrade)
                if head.afterwards == Afterwards::Open =>
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

    /// The state after a request. One that wants to change the connection can have been answered
    /// while its body was still on the way.
    fn over(&self) -> RequestState {
        match (self.afterwards, &self.turn) {
            (Afterwards::Closed, _) => RequestState::Over,
            (Afterwards::Open, UpgradeProgress::Asked(_) | UpgradeProgress::Agreed) => {
                RequestState::Answer
            }
            (Afterwards::Open, UpgradeProgress::Ahead | UpgradeProgress::Past) => {
                RequestState::Head(head::HttpHeadReader::default())
            }
        }
    }
}

/// The line in front of a chunk. Anything behind the number is refused: nobody sends it, and
/// servers disagree about where it ends. So are headers behind the last chunk.
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

/// The end of a line, after which comes `state`.
fn line_end(rest: &[u8], state: RequestState) -> PeekState<(usize, RequestState)> {
    match rest {
        [b'\r', b'\n', ..] => PeekState::Found((2, state)),
        [] | [b'\r'] => PeekState::NeedMore,
        _ => PeekState::Refused(PeekError::BadFraming),
    }
}

/// Whether an answer that begins like that agrees to change the connection; nothing if that
/// cannot be told yet. Before it there can be others that are no answers yet (`100`, `103`).
fn agrees(mut said: &[u8]) -> Option<bool> {
    loop {
        let [start @ .., b'1', second, third] = said.first_chunk::<12>()? else {
            return Some(false);
        };
        if !start.starts_with(b"HTTP/1.") || start[8] != b' ' {
            return Some(false);
        }
        if (second, third) == (&b'0', &b'1') {
            return Some(true);
        }
        let end = said.windows(4).position(|window| window == b"\r\n\r\n")?;
        said = &said[end + 4..];
    }
}

#[cfg(test)]
mod tests;
