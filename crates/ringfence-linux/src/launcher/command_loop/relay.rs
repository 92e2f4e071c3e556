//! Relay of standard error to the caller's own, with a copy kept.
//!
//! Without a tripwire, denied reads are guessed from the error text of a failed command. With the
//! caller's own standard error, a command would write past ringfence, so it gets a pipe instead. If
//! the caller's is a terminal it gets the terminal: programs behave differently there.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crate::clock::timespec;
use crate::inode::inode_id;

use ringfence_shell::BoundedCapture;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::fstat;
use rustix::io::Errno;

/// Most bytes that wait to be written: beyond that the command waits as well.
const MAX_PENDING: usize = 64 * 1024;
/// Bytes that a writable pipe takes without blocking (PIPE_BUF).
const WRITE_SIZE: usize = 4096;
/// Bytes kept at each end of the text.
const KEPT_BYTES: usize = 512 * 1024;

/// A pipe whose other end is a command's standard error.
#[derive(Debug)]
pub(super) struct Relay {
    from: Option<OwnedFd>,
    waiting: Vec<u8>,
    kept: BoundedCapture,
}

/// The ends that the command gets.
pub(super) struct Ends {
    pub(super) stderr: OwnedFd,
    /// True if standard output is the same file: both go through one pipe, so that they stay in
    /// order.
    pub(super) is_both: bool,
}

impl Relay {
    /// `None` where the caller's standard error is a terminal, or closed.
    pub(super) fn new() -> Result<Option<(Self, Ends)>, Errno> {
        let (out, err) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let (Ok(to), false) = (fstat(err), rustix::termios::isatty(err)) else { return Ok(None) };
        let is_both = fstat(out).is_ok_and(|out| inode_id(&out) == inode_id(&to));
        let (from, stderr) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&from, true)?;
        let relay =
            Self { from: Some(from), waiting: Vec::new(), kept: BoundedCapture::new(KEPT_BYTES) };
        Ok(Some((relay, Ends { stderr, is_both })))
    }

    /// The fd to poll for.
    pub(super) fn polled(&self) -> Option<PollFd<'_>> {
        match (&self.from, self.waiting.is_empty()) {
            (_, false) => Some(PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)),
            (Some(from), true) => Some(PollFd::new(from, PollFlags::IN)),
            (None, true) => None,
        }
    }

    /// Reads and writes as much as possible without blocking.
    pub(super) fn pass_on(&mut self) {
        let mut buffer = vec![0; MAX_PENDING];
        loop {
            let is_filled = self.fill(&mut buffer);
            let is_written =
                !self.waiting.is_empty() && is_writable(Some(Duration::ZERO)) && self.write();
            if !is_filled && !is_written {
                return;
            }
        }
    }

    /// Writes all that is left. Waits for a slow reader, but not beyond the command's time limit.
    pub(super) fn finish(mut self, limit: Option<Instant>) -> BoundedCapture {
        let mut buffer = vec![0; MAX_PENDING];
        while self.fill(&mut buffer) || !self.waiting.is_empty() {
            let left = limit.map(|limit| limit.saturating_duration_since(Instant::now()));
            if !is_writable(left) {
                break;
            }
            self.write();
        }
        self.kept
    }

    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        let Some(from) = self.from.as_ref().filter(|_| self.waiting.is_empty()) else {
            return false;
        };
        match rustix::io::read(from, &mut *buffer) {
            Ok(0) => self.from = None,
            Ok(length) => {
                self.kept.push(&buffer[..length]);
                self.waiting.extend_from_slice(&buffer[..length]);
                return true;
            }
            Err(Errno::INTR) => return true,
            Err(_) => {}
        }
        false
    }

    /// False if nothing was written.
    fn write(&mut self) -> bool {
        let length = self.waiting.len().min(WRITE_SIZE);
        match rustix::io::write(rustix::stdio::stderr(), &self.waiting[..length]) {
            Ok(written) => {
                self.waiting.drain(..written);
                written > 0
            }
            Err(Errno::INTR | Errno::AGAIN) => false,
            // The reader is gone: the command gets EPIPE from its own pipe.
            Err(_) => {
                self.waiting.clear();
                self.from = None;
                false
            }
        }
    }
}

/// True once the caller's standard error is writable, or has an error; waits at most `wait`.
fn is_writable(wait: Option<Duration>) -> bool {
    let wait = wait.map(timespec);
    loop {
        match poll(
            &mut [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)],
            wait.as_ref(),
        ) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}
