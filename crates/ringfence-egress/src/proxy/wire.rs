//! A client's socket while it says what it wants: bounded in time and size.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// How long, and how much, is waited for and thrown away after a client was refused.
const FAREWELL: Duration = Duration::from_secs(2);
const THROWN_AWAY: usize = 4 * 1024 * 1024;

/// There is nobody to talk to any more.
#[derive(Debug)]
pub(super) struct ClientGone;

/// A client's socket, and what was read from it and not used.
pub(super) struct ClientSocket {
    socket: OwnedFd,
    bell: Arc<OwnedFd>,
    end: Instant,
    read: Vec<u8>,
}

impl ClientSocket {
    /// `socket` never waits; when `bell` rings, nobody is listened to any more.
    pub(super) fn new(socket: OwnedFd, bell: Arc<OwnedFd>, end: Instant) -> ClientSocket {
        ClientSocket { socket, bell, end, read: Vec::new() }
    }

    /// What was read and not used.
    pub(super) fn pending(&self) -> &[u8] {
        &self.read
    }

    /// The first byte, which stays unused.
    pub(super) fn first(&mut self) -> Result<u8, ClientGone> {
        while self.read.is_empty() {
            self.fill()?;
        }
        Ok(self.read[0])
    }

    /// Takes `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<Vec<u8>, ClientGone> {
        while self.read.len() < count {
            self.fill()?;
        }
        let rest = self.read.split_off(count);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    /// Reads some more.
    pub(super) fn fill(&mut self) -> Result<(), ClientGone> {
        let mut part = [0; 4096];
        loop {
            match recv(&self.socket, &mut part, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(ClientGone),
                Ok((_, count)) => {
                    self.read.extend_from_slice(&part[..count]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(_) => return Err(ClientGone),
            }
        }
    }

    /// Says `bytes`.
    pub(super) fn say(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(_) => return Err(ClientGone),
            }
        }
        Ok(())
    }

    /// Gives the client time anew: what it wanted took long to be decided.
    pub(super) fn prolong(&mut self, time: Duration) {
        self.end = self.end.max(Instant::now() + time);
    }

    /// Says `bytes` and closes, so that they arrive: a socket that is closed while something was
    /// not read is reset, and takes what was said along.
    pub(super) fn part(mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.end = Instant::now() + FAREWELL;
        self.say(bytes)?;
        shutdown(&self.socket, Shutdown::Write).map_err(|_| ClientGone)?;
        let mut thrown_away = 0;
        while thrown_away < THROWN_AWAY {
            self.read.clear();
            self.fill()?;
            thrown_away += self.read.len();
        }
        Ok(())
    }

    /// The socket, and what was read from it and not used.
    pub(super) fn into_parts(self) -> (OwnedFd, Vec<u8>) {
        (self.socket, self.read)
    }

    fn wait(&self, what: PollFlags) -> Result<(), ClientGone> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientGone);
        }
        let limit =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut polled = [PollFd::new(&self.socket, what), PollFd::new(&*self.bell, PollFlags::IN)];
        match poll(&mut polled, Some(&limit)) {
            Ok(_) if !polled[1].revents().is_empty() => Err(ClientGone),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(ClientGone),
        }
    }
}
