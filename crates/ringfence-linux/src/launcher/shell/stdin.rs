//! Input of a command, fed while it runs.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use crate::locks::lock;

use ringfence_api::StdinInput;
use ringfence_provider::StdinFeeder;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Connects a feeder with the command that reads.
pub(crate) struct StdinFeed {
    state: Mutex<StdinFeedState>,
    /// Readable when there is more.
    wake: OwnedFd,
}

#[derive(Default)]
struct StdinFeedState {
    waiting: Vec<u8>,
    /// Set when no more input comes.
    is_shut: bool,
    /// Set when no process reads it any more.
    is_over: bool,
}

/// Unread bytes above which no more are accepted.
const MAX_UNREAD: usize = 1024 * 1024;

impl StdinFeed {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: Mutex::default(), wake }))
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl StdinFeeder for StdinFeed {
    fn feed(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        if state.is_over || state.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.waiting.len() > MAX_UNREAD {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.waiting.extend_from_slice(bytes);
        drop(state);
        self.wake();
        Ok(())
    }

    fn close(&self) {
        lock(&self.state).is_shut = true;
        self.wake();
    }
}

/// Our end of a command's standard input.
pub(crate) struct StdinPipe {
    /// `None` once all was read, or no process reads it.
    pipe: Option<OwnedFd>,
    feed: Arc<StdinFeed>,
    chunk: Vec<u8>,
    written: usize,
}

impl StdinPipe {
    /// Opens a pipe and returns the command's end with it; `None` for a command without input.
    /// `fed` is the feed of a feeder, if there is one.
    pub(crate) fn open(
        input: &StdinInput,
        fed: Option<Arc<StdinFeed>>,
    ) -> io::Result<Option<(Self, OwnedFd)>> {
        let (chunk, feed) = match input {
            StdinInput::Empty => return Ok(None),
            StdinInput::Given(bytes) => {
                let feed = StdinFeed::new()?;
                feed.close();
                (bytes.clone(), feed)
            }
            StdinInput::Streamed => (Vec::new(), fed.map_or_else(StdinFeed::new, Ok)?),
        };
        let (their_end, our_end) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&our_end, true)?;
        Ok(Some((Self { pipe: Some(our_end), feed, chunk, written: 0 }, their_end)))
    }

    /// Writes as much as the pipe takes.
    pub(crate) fn write_pending(&mut self) {
        while let Some(pipe) = &self.pipe {
            if self.written == self.chunk.len() {
                let mut state = lock(&self.feed.state);
                let _ = rustix::io::read(&self.feed.wake, &mut [0; 8]);
                (self.chunk, self.written) = (mem::take(&mut state.waiting), 0);
                if self.chunk.is_empty() {
                    if state.is_shut {
                        self.pipe = None;
                    }
                    return;
                }
            }
            match rustix::io::write(pipe, &self.chunk[self.written..]) {
                Ok(more) => self.written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.stop(),
            }
        }
    }

    /// The fd to poll until more can be written.
    pub(crate) fn poll_target(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let pipe = self.pipe.as_ref()?;
        let has_more = self.written < self.chunk.len();
        Some(if has_more {
            (pipe.as_fd(), PollFlags::OUT)
        } else {
            (self.feed.wake.as_fd(), PollFlags::IN)
        })
    }

    fn stop(&mut self) {
        self.pipe = None;
        lock(&self.feed.state).is_over = true;
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        self.stop();
    }
}
