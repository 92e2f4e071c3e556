//! A client's socket during its request: bounded in time and size.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Time and bytes for draining a refused client.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);
const DRAIN_BYTES: usize = 4 * 1024 * 1024;

/// The client has closed, or its time is over.
#[derive(Debug)]
pub(super) struct ClientGone;

/// A client's socket, and the bytes read and not used yet.
pub(super) struct ClientSocket {
    socket: OwnedFd,
    wake_fd: Arc<OwnedFd>,
    end: Instant,
    read: Vec<u8>,
}

impl ClientSocket {
    /// `socket` is non-blocking; reading stops when `wake_fd` becomes readable.
    pub(super) fn new(socket: OwnedFd, wake_fd: Arc<OwnedFd>, end: Instant) -> ClientSocket {
        ClientSocket { socket, wake_fd, end, read: Vec::new() }
    }

    /// Bytes read and not used.
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

    /// Reads some more bytes.
    pub(super) fn fill(&mut self) -> Result<(), ClientGone> {
        let mut finish = [0; 4096];
        loop {
            match recv(&self.socket, &mut finish, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(ClientGone),
                Ok((_, count)) => {
                    self.read.extend_from_slice(&finish[..count]);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(_) => return Err(ClientGone),
            }
        }
    }

    /// Sends `bytes`.
    pub(super) fn send_all(&mut self, mut bytes: &[u8]) -> Result<(), ClientGone> {
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

    /// Extends the deadline: the decision took long.
    pub(super) fn extend_deadline(&mut self, time: Duration) {
        self.end = self.end.max(Instant::now() + time);
    }

    /// Sends `bytes` and closes after draining: a socket closed with unread data is reset, and sent
    /// bytes are lost.
    pub(super) fn finish(mut self, bytes: &[u8]) -> Result<(), ClientGone> {
        self.end = Instant::now() + DRAIN_LIMIT;
        self.send_all(bytes)?;
        shutdown(&self.socket, Shutdown::Write).map_err(|_| ClientGone)?;
        let mut thrown_away = 0;
        while thrown_away < DRAIN_BYTES {
            self.read.clear();
            self.fill()?;
            thrown_away += self.read.len();
        }
        Ok(())
    }

    /// The socket, and the bytes read and not used.
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
        let mut polled =
            [PollFd::new(&self.socket, what), PollFd::new(&*self.wake_fd, PollFlags::IN)];
        match poll(&mut polled, Some(&limit)) {
            Ok(_) if !polled[1].revents().is_empty() => Err(ClientGone),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(ClientGone),
        }
    }
}
