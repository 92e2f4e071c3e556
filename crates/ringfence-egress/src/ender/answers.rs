//! Where the answers of a host end: what was held back can go then, and it is known whether
//! somebody still waits for one.
//!
//! Nothing is refused here. An answer whose end cannot be told has none, and what follows it is
//! not understood.

use std::collections::VecDeque;

/// More is no head.
const LONGEST: usize = 64 * 1024;

/// Follows what a host says.
#[derive(Debug)]
pub(super) struct Answers {
    state: State,
    /// Those that were asked for and did not come yet, and whether they have no body.
    asked: VecDeque<Kind>,
}

/// What kind of answer is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// To `HEAD`: it says how long its body would be.
    Head,
    Other,
}

#[derive(Debug)]
enum State {
    Head(Vec<u8>),
    Body(u64),
    /// The line in front of a chunk.
    Chunk(Vec<u8>),
    /// So much of a chunk, and the end of its line.
    ChunkBody(u64),
    /// Lines behind the last chunk.
    Last(Vec<u8>),
    /// It has no end, or it is not known.
    Endless,
    /// The connection has become something else, in which messages are short and waited for.
    Changed,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self { state: State::Head(Vec::new()), asked: VecDeque::new() }
    }

    /// One is asked for.
    pub(super) fn expect(&mut self, kind: Kind) {
        self.asked.push_back(kind);
    }

    /// Whether the host has answered everything, and says nothing now.
    pub(super) fn is_quiet(&self) -> bool {
        self.asked.is_empty() && matches!(&self.state, State::Head(begun) if begun.is_empty())
    }

    /// Takes in what it says; whether the last byte of it was the last of an answer, or may well be.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) -> bool {
        let mut ended = false;
        while !bytes.is_empty() {
            ended = false;
            match &mut self.state {
                State::Endless => return false,
                State::Changed => return true,
                State::Body(left) | State::ChunkBody(left) => {
                    let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= count as u64;
                    bytes = &bytes[count..];
                }
                State::Head(line) | State::Chunk(line) | State::Last(line) => {
                    line.push(bytes[0]);
                    bytes = &bytes[1..];
                }
            }
            ended |= self.go_on();
        }
        ended
    }

    /// The next state, if this one is over; whether an answer has ended by that.
    fn go_on(&mut self) -> bool {
        let next = match &self.state {
            State::Head(text) if text.ends_with(b"\r\n\r\n") => match self.begin(&text.clone()) {
                Some(state) => state,
                None => return self.end(),
            },
            State::Head(text) if text.len() > LONGEST => State::Endless,
            State::Body(0) => return self.end(),
            State::ChunkBody(0) => State::Chunk(Vec::new()),
            State::Chunk(text) if text.ends_with(b"\n") => match chunk(text) {
                Some(0) => State::Last(Vec::new()),
                Some(length) => State::ChunkBody(length + 2),
                None => State::Endless,
            },
            State::Last(text) if text == b"\r\n" => return self.end(),
            State::Last(text) if text.ends_with(b"\n") => State::Last(Vec::new()),
            State::Chunk(text) | State::Last(text) if text.len() > LONGEST => State::Endless,
            _ => return false,
        };
        self.state = next;
        false
    }

    fn end(&mut self) -> bool {
        self.asked.pop_front();
        self.state = State::Head(Vec::new());
        true
    }

    /// The state after a head; `None` where nothing follows it.
    fn begin(&self, head: &[u8]) -> Option<State> {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse::<u16>().ok());
        let field = |line: &str, name: &str| {
            let (found, value) = line.split_once(':')?;
            found.trim().eq_ignore_ascii_case(name).then(|| value.trim().to_ascii_lowercase())
        };
        let all: Vec<&str> = lines.collect();
        let value = |name: &str| all.iter().find_map(|line| field(line, name));
        match status {
            None => return Some(State::Endless),
            Some(101) => return Some(State::Changed),
            // Not an answer yet.
            Some(100..200) => return Some(State::Head(Vec::new())),
            Some(204 | 304) => return None,
            Some(_) if self.asked.front() == Some(&Kind::Head) => return None,
            Some(_) => {}
        }
        if value("transfer-encoding").is_some_and(|codings| codings.ends_with("chunked")) {
            return Some(State::Chunk(Vec::new()));
        }
        match value("content-length").and_then(|length| length.parse().ok()) {
            Some(0) => None,
            Some(length) => Some(State::Body(length)),
            None => Some(State::Endless),
        }
    }
}

fn chunk(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    u64::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok().filter(|length| *length < u64::MAX - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where answers end in what is said, however it is cut.
    #[track_caller]
    fn check(kinds: &[Kind], said: &str, ends: &[usize]) {
        let mut answers = Answers::new();
        kinds.iter().for_each(|kind| answers.expect(*kind));
        let found: Vec<usize> = (1..=said.len()).filter(|at| answers.hear(&said.as_bytes()[at - 1..*at])).collect();
        assert_eq!(found, ends, "{said}");
        let mut whole = Answers::new();
        kinds.iter().for_each(|kind| whole.expect(*kind));
        assert_eq!(whole.hear(said.as_bytes()), ends.last() == Some(&said.len()), "{said}");
    }

    #[test]
    fn every_way_to_end_is_known() {
        const TWO: [Kind; 2] = [Kind::Other, Kind::Other];
        check(&TWO, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No\r\n\r\n", &[41, 60]);
        check(&[Kind::Head], "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", &[38]);
        check(&TWO, "HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 200 OK\r\nCONTENT-LENGTH: 0\r\n\r\n", &[57]);
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n";
        check(&TWO, chunked, &[chunked.len()]);
        check(&TWO, "HTTP/1.1 200 OK\r\n\r\nabc", &[]);
        check(&TWO, "HTTP/1.1 101 Go\r\nContent-Length: 1\r\n\r\nabc", &[39, 40, 41]);
        check(&TWO, "garbage\r\n\r\n", &[]);
    }

    #[test]
    fn who_waits_is_known() {
        let mut answers = Answers::new();
        assert!(answers.is_quiet());
        answers.expect(Kind::Other);
        assert!(!answers.is_quiet());
        answers.hear(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n");
        assert!(!answers.is_quiet());
        answers.hear(b"a");
        assert!(answers.is_quiet());
        answers.hear(b"H");
        assert!(!answers.is_quiet());
    }
}
