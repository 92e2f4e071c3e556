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

use super::head::{self, Afterwards, Framing, Head, Wish};
use super::{Objection, Peek};
use ringfence_policy::Name;

/// More digits than a chunk's length may have: servers keep it in 32 bits, some without looking
/// (the JDK's among them), and read another length than was sent.
const CHUNK_DIGITS: usize = 9;
/// The longest chunk; a server that keeps its length as a signed number would read less than none.
pub(crate) const LONGEST_CHUNK: u64 = i32::MAX as u64;
/// How much of what the server says is looked at for its word.
const ANSWER: usize = 16 * 1024;

/// Follows what the program says.
#[derive(Debug)]
pub struct Requests {
    dialed: Name,
    port: u16,
    state: State,
    turn: Turn,
    afterwards: Afterwards,
}

#[derive(Debug)]
enum State {
    Head(head::Reader),
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
    Refused(Objection),
}

/// How far the one request is that can change the connection.
#[derive(Debug)]
enum Turn {
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
pub enum Piece {
    /// The head of a request, all of it.
    Head(usize),
    /// Something of its body, or what has become of the connection.
    Other(usize),
}

impl Piece {
    /// How many bytes.
    pub fn length(self) -> usize {
        match self {
            Piece::Head(length) | Piece::Other(length) => length,
        }
    }
}

/// What has been found in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// So many bytes from its front can go out; the next queue begins behind them.
    pub clear: usize,
    /// What is to be done then.
    pub next: Next,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Hear more of the program.
    More,
    /// Hear the server first ([`Requests::answer`]), then show the rest of the queue again.
    Answer,
    /// Everything can go out from now on.
    Opaque,
    /// Nothing goes out from now on, and what the server answers is awaited.
    Over,
    /// Nothing can go out from now on.
    Refused(Objection),
}

impl Requests {
    /// For a connection to `dialed`.
    pub fn new(dialed: Name, port: u16) -> Self {
        Self {
            dialed,
            port,
            state: State::Head(head::Reader::default()),
            turn: Turn::Ahead,
            afterwards: Afterwards::Open,
        }
    }

    /// Looks at the `queue`, see [`super`]. What is clear must be taken off before the next time.
    pub fn check(&mut self, queue: &[u8]) -> Checked {
        let mut clear = 0;
        while let Some(piece) = self.piece(&queue[clear..]) {
            clear += piece.length();
        }
        Checked { clear, next: self.next() }
    }

    /// What is to be done where the queue has no whole piece.
    pub fn next(&self) -> Next {
        match &self.state {
            State::Answer => Next::Answer,
            State::Opaque => Next::Opaque,
            State::Over => Next::Over,
            State::Refused(objection) => Next::Refused(objection.clone()),
            _ => Next::More,
        }
    }

    /// The next piece of the `queue` that can go out, if there is a whole one: its bytes must be
    /// taken off before the next time. It may be one without any.
    pub fn piece(&mut self, queue: &[u8]) -> Option<Piece> {
        let is_head = matches!(self.state, State::Head(_));
        let length = self.step(queue)?;
        Some(if is_head { Piece::Head(length) } else { Piece::Other(length) })
    }

    /// Goes on to the next state, if `rest` is enough for it: how many bytes are clear by that.
    fn step(&mut self, rest: &[u8]) -> Option<usize> {
        let found = match &mut self.state {
            State::Head(reader) => match reader.read(rest) {
                Peek::Found(head) => match self.begin(&head) {
                    Ok(state) => Peek::Found((head.length, state)),
                    Err(objection) => Peek::Refused(objection),
                },
                Peek::Refused(objection) => Peek::Refused(objection),
                Peek::NeedMore => Peek::NeedMore,
            },
            State::Body(0) => Peek::Found((0, self.over())),
            State::ChunkBody(0) => Peek::Found((0, State::ChunkEnd)),
            State::Body(left) | State::ChunkBody(left) => {
                let count = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                return (count > 0).then_some(count);
            }
            State::Chunk => chunk(rest),
            State::ChunkEnd => line_end(rest, State::Chunk),
            State::LastEnd => line_end(rest, self.over()),
            State::Answer => match self.turn {
                Turn::Asked(_) => Peek::NeedMore,
                Turn::Agreed => Peek::Found((0, State::Opaque)),
                Turn::Ahead | Turn::Past => Peek::Found((0, State::Head(head::Reader::default()))),
            },
            State::Opaque => return (!rest.is_empty()).then_some(rest.len()),
            State::Over | State::Refused(_) => Peek::NeedMore,
        };
        let (count, state) = match found {
            Peek::NeedMore => return None,
            Peek::Found(found) => found,
            Peek::Refused(objection) => (0, State::Refused(objection)),
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
            State::Body(left) | State::ChunkBody(left) => left,
            State::Opaque => u64::MAX,
            _ => 0,
        }
    }

    /// So many bytes of the body have been carried without being shown, at most what was left.
    pub fn carried(&mut self, count: u64) {
        if let State::Body(left) | State::ChunkBody(left) = &mut self.state {
            *left = left.saturating_sub(count);
        }
    }

    /// Whether what the server says has to be shown before it is passed on.
    pub fn wants_answer(&self) -> bool {
        matches!(self.turn, Turn::Ahead | Turn::Asked(_))
    }

    /// What the server has said, each byte once and from the first, as long as it is wanted.
    pub fn answer(&mut self, bytes: &[u8]) {
        let Turn::Asked(said) = &mut self.turn else {
            // Who speaks before the request is there has not answered it.
            if matches!(self.turn, Turn::Ahead) && !bytes.is_empty() {
                self.turn = Turn::Past;
            }
            return;
        };
        said.extend(&bytes[..bytes.len().min(ANSWER - said.len())]);
        match agrees(said) {
            Some(true) => self.turn = Turn::Agreed,
            Some(false) => self.turn = Turn::Past,
            None if said.len() == ANSWER => self.turn = Turn::Past,
            None => {}
        }
    }

    /// The state after the head of a request.
    fn begin(&mut self, head: &Head) -> Result<State, Objection> {
        super::agree(&head.host.name, &self.dialed)?;
        match head.host.port {
            Some(port) if port != self.port => return Err(Objection::OtherPort(port)),
            Some(_) | None => {}
        }
        self.turn = match (&self.turn, head.wish) {
            (Turn::Ahead, Wish::Upgrade) if head.afterwards == Afterwards::Open => {
                Turn::Asked(Vec::new())
            }
            _ => Turn::Past,
        };
        self.afterwards = head.afterwards;
        Ok(match head.framing {
            Framing::Length(length) => State::Body(length),
            Framing::Chunked => State::Chunk,
        })
    }

    /// The state after a request. One that wants to change the connection can have been answered
    /// while its body was still on the way.
    fn over(&self) -> State {
        match (self.afterwards, &self.turn) {
            (Afterwards::Closed, _) => State::Over,
            (Afterwards::Open, Turn::Asked(_) | Turn::Agreed) => State::Answer,
            (Afterwards::Open, Turn::Ahead | Turn::Past) => State::Head(head::Reader::default()),
        }
    }
}

/// The line in front of a chunk. Anything behind the number is refused: nobody sends it, and
/// servers disagree about where it ends. So are headers behind the last chunk.
fn chunk(rest: &[u8]) -> Peek<(usize, State)> {
    let digits = rest.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match (&rest[digits..], digits) {
        (_, CHUNK_DIGITS..) | ([_, ..], 0) => Peek::Refused(Objection::BadFraming),
        ([] | [b'\r'], _) => Peek::NeedMore,
        ([b'\r', b'\n', ..], _) => {
            let digit = |digit: &u8| u64::from(char::from(*digit).to_digit(16).unwrap_or_default());
            match rest[..digits].iter().map(digit).fold(0, |number, digit| number * 16 + digit) {
                0 => Peek::Found((digits + 2, State::LastEnd)),
                length @ ..=LONGEST_CHUNK => Peek::Found((digits + 2, State::ChunkBody(length))),
                _ => Peek::Refused(Objection::BadFraming),
            }
        }
        _ => Peek::Refused(Objection::BadFraming),
    }
}

/// The end of a line, after which comes `state`.
fn line_end(rest: &[u8], state: State) -> Peek<(usize, State)> {
    match rest {
        [b'\r', b'\n', ..] => Peek::Found((2, state)),
        [] | [b'\r'] => Peek::NeedMore,
        _ => Peek::Refused(Objection::BadFraming),
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
