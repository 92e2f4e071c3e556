//! One TCP client: queries with a length prefix.
//!
//! A client cannot make the server hold more than a few kilobytes or keep it busy: a too long query
//! closes the connection, and a client that does not take its answers is not read from.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest query, far beyond any that resolvers write.
pub(super) const LONGEST: usize = 2048;
/// Limit of untaken answer bytes; above it no further query is read.
const UNTAKEN: usize = 8192;
/// Time a client may be silent, or take for one query.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct DnsStreamClient {
    /// Unique id per server.
    pub(super) number: u64,
    pub(super) stream: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Time of the last complete query or delivered answer. Single bytes do not count as progress.
    since: Instant,
    ended: bool,
}

/// Decision about a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamClientFate {
    Stays,
    Goes,
}

impl DnsStreamClient {
    pub(super) fn new(number: u64, stream: TcpStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Answers are small, and the client waits for them.
        stream.set_nodelay(true)?;
        Ok(Self { number, stream, input: Vec::new(), output: Vec::new(), since: now, ended: false })
    }

    pub(super) fn wants_input(&self) -> bool {
        !self.ended && self.output.len() < UNTAKEN && self.input.len() < 2 + LONGEST
    }

    pub(super) fn wants_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Time at which it is closed unless it makes progress.
    pub(super) fn deadline(&self) -> Instant {
        self.since + PATIENCE
    }

    /// Reads once.
    pub(super) fn read(&mut self) -> StreamClientFate {
        if !self.wants_input() {
            return StreamClientFate::Stays;
        }
        let mut buffer = [0; 2 + LONGEST];
        let space = buffer.len() - self.input.len();
        match self.stream.read(&mut buffer[..space]) {
            Ok(0) => self.ended = true,
            Ok(count) => self.input.extend(&buffer[..count]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return StreamClientFate::Goes,
        }
        StreamClientFate::Stays
    }

    /// The next complete query, if there is space for its answer.
    pub(super) fn next(&mut self, now: Instant) -> Result<Option<Vec<u8>>, StreamClientFate> {
        if self.next_length().is_some_and(|length| length > LONGEST) {
            return Err(StreamClientFate::Goes);
        }
        let Some(length) = self.next_length().filter(|_| self.has_question()) else {
            return Ok(None);
        };
        let message = self.input[2..2 + length].to_vec();
        self.input.drain(..2 + length);
        self.since = now;
        Ok(Some(message))
    }

    /// True if [`Self::next`] has a query.
    pub(super) fn has_question(&self) -> bool {
        let whole = self.next_length().is_some_and(|length| self.input.len() >= 2 + length);
        whole && self.output.len() < UNTAKEN
    }

    /// Length of the next query.
    fn next_length(&self) -> Option<usize> {
        self.input.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)))
    }

    /// Queues an answer; `None` for a query without one.
    pub(super) fn answer(&mut self, answer: Option<&[u8]>) {
        let Some(answer) = answer else { return };
        self.output.extend((answer.len() as u16).to_be_bytes());
        self.output.extend(answer);
    }

    /// Writes as much as the socket takes.
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

    /// True if the client has closed its side and has all its answers.
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

    fn send_to(there: &mut TcpStream, client: &mut DnsStreamClient, bytes: &[u8]) {
        there.write_all(bytes).unwrap();
        let whole = client.input.len() + bytes.len();
        while client.input.len() < whole {
            assert_eq!(client.read(), StreamClientFate::Stays);
        }
    }

    #[test]
    fn single_bytes_do_not_extend_the_deadline() {
        let begun = Instant::now();
        let later = begun + PATIENCE / 2;
        let (mut there, mut client) = pair(begun);
        for byte in [0, 3, 1, 2] {
            send_to(&mut there, &mut client, &[byte]);
            assert_eq!(client.next(later), Ok(None));
            assert_eq!(client.deadline(), begun + PATIENCE);
        }
        send_to(&mut there, &mut client, &[3]);
        assert_eq!(client.next(later), Ok(Some(vec![1, 2, 3])));
        assert_eq!(client.deadline(), later + PATIENCE);
    }

    #[test]
    fn query_waits_until_its_answer_has_space() {
        let now = Instant::now();
        let (mut there, mut client) = pair(now);
        send_to(&mut there, &mut client, &[0, 1, 7]);
        client.answer(Some(&[0; UNTAKEN]));
        assert!(!client.has_question() && !client.wants_input() && client.wants_output());
        assert_eq!(client.next(now), Ok(None));
        assert_eq!(client.write(now), StreamClientFate::Stays);
        assert!(client.has_question() && client.wants_input() && !client.wants_output());
        assert_eq!(client.next(now), Ok(Some(vec![7])));
        assert!(!client.is_done());
    }
}
