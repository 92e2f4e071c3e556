//! One connection by which questions come: each with its length in front.
//!
//! Nothing that a client does makes it hold more than a few kilobytes or keeps the server busy:
//! a question that is too long ends the connection, and whoever does not take its answers is not
//! read from until it does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The longest question, far beyond any that resolvers write.
pub(super) const LONGEST: usize = 2048;
/// As long as so many bytes of answers wait to be taken, no further question is looked at.
const UNTAKEN: usize = 8192;
/// How long a client may be silent, or take for one question.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct DnsStreamClient {
    /// No two clients of a server have the same.
    pub(super) number: u64,
    pub(super) stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// When it last put a whole question, or was answered. A byte now and then is no progress.
    since: Instant,
    ended: bool,
}

/// What to do with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamClientFate {
    Stays,
    Goes,
}

impl DnsStreamClient {
    pub(super) fn new(number: u64, stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Answers are small and whoever asks waits for them.
        stream.set_nodelay(true)?;
        Ok(Self { number, stream, input: Vec::new(), output: Vec::new(), since: now, ended: false })
    }

    pub(super) fn wants_input(&self) -> bool {
        !self.ended && self.output.len() < UNTAKEN && self.input.len() < 2 + LONGEST
    }

    pub(super) fn wants_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// When it is to go unless something happens.
    pub(super) fn deadline(&self) -> Instant {
        self.since + PATIENCE
    }

    /// Reads what is there, once.
    pub(super) fn read(&mut self) -> StreamClientFate {
        if !self.wants_input() {
            return StreamClientFate::Stays;
        }
        let mut buffer = [0; 2 + LONGEST];
        let room = buffer.len() - self.input.len();
        match self.stream.read(&mut buffer[..room]) {
            Ok(0) => self.ended = true,
            Ok(count) => self.input.extend(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return StreamClientFate::Goes,
        }
        StreamClientFate::Stays
    }

    /// The next whole question, if its answer has room.
    pub(super) fn next(&mut self, now: Instant) -> Result<Option<Vec<u8>>, StreamClientFate> {
        if self.announced().is_some_and(|length| length > LONGEST) {
            return Err(StreamClientFate::Goes);
        }
        let Some(length) = self.announced().filter(|_| self.has_question()) else {
            return Ok(None);
        };
        let message = self.input[2..2 + length].to_vec();
        self.input.drain(..2 + length);
        self.since = now;
        Ok(Some(message))
    }

    /// Whether [`Client::next`] has one to give.
    pub(super) fn has_question(&self) -> bool {
        let whole = self.announced().is_some_and(|length| self.input.len() >= 2 + length);
        whole && self.output.len() < UNTAKEN
    }

    /// How long the next question is.
    fn announced(&self) -> Option<usize> {
        self.input.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
    }

    /// Nothing for a question that gets no answer.
    pub(super) fn answer(&mut self, answer: Option<&[u8]>) {
        let Some(answer) = answer else { return };
        self.output.extend((answer.len() as u16).to_be_bytes());
        self.output.extend(answer);
    }

    /// Writes what it takes.
    pub(super) fn write(&mut self, now: Instant) -> StreamClientFate {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return StreamClientFate::Goes,
                Ok(count) => {
                    self.output.drain(..count);
                    self.since = now;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return StreamClientFate::Goes,
            }
        }
        StreamClientFate::Stays
    }

    /// Whether it has said that it is done, and has its answers.
    pub(super) fn is_done(&self) -> bool {
        self.ended && self.output.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn pair(now: Instant) -> (TcpStream, DnsStreamClient) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (there, DnsStreamClient::new(1, listener.accept().unwrap().0, now).unwrap())
    }

    fn say(there: &mut TcpStream, client: &mut DnsStreamClient, bytes: &[u8]) {
        there.write_all(bytes).unwrap();
        let whole = client.input.len() + bytes.len();
        while client.input.len() < whole {
            assert_eq!(client.read(), StreamClientFate::Stays);
        }
    }

    #[test]
    fn a_byte_now_and_then_buys_no_time() {
        let begun = Instant::now();
        let later = begun + PATIENCE / 2;
        let (mut there, mut client) = pair(begun);
        for byte in [0, 3, 1, 2] {
            say(&mut there, &mut client, &[byte]);
            assert_eq!(client.next(later), Ok(None));
            assert_eq!(client.deadline(), begun + PATIENCE);
        }
        say(&mut there, &mut client, &[3]);
        assert_eq!(client.next(later), Ok(Some(vec![1, 2, 3])));
        assert_eq!(client.deadline(), later + PATIENCE);
    }

    #[test]
    fn a_question_waits_until_its_answer_has_room() {
        let now = Instant::now();
        let (mut there, mut client) = pair(now);
        say(&mut there, &mut client, &[0, 1, 7]);
        client.answer(Some(&[0; UNTAKEN]));
        assert!(!client.has_question() && !client.wants_input() && client.wants_output());
        assert_eq!(client.next(now), Ok(None));
        assert_eq!(client.write(now), StreamClientFate::Stays);
        assert!(client.has_question() && client.wants_input() && !client.wants_output());
        assert_eq!(client.next(now), Ok(Some(vec![7])));
        assert!(!client.is_done());
    }
}
