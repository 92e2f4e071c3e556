//! What a command is given to read, while it runs.

use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_api::StdinInput;
use ringfence_provider::StdinFeeder;
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// Between somebody who has something to read and the command that reads it.
pub(crate) struct StdinFeed {
    state: Mutex<StdinFeedState>,
    /// Ready when there is more.
    wake: OwnedFd,
}

#[derive(Default)]
struct StdinFeedState {
    waiting: Vec<u8>,
    /// Nothing more comes.
    is_shut: bool,
    /// Nobody reads it any more.
    is_over: bool,
}

/// Nothing more is taken while so much was not read.
const MOST: usize = 1024 * 1024;

impl StdinFeed {
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(Self { state: Mutex::default(), wake }))
    }

    fn lock(&self) -> MutexGuard<'_, StdinFeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl StdinFeeder for StdinFeed {
    fn feed(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_over || state.is_shut {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if state.waiting.len() > MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.waiting.extend_from_slice(bytes);
        drop(state);
        self.wake();
        Ok(())
    }

    fn shut(&self) {
        self.lock().is_shut = true;
        self.wake();
    }
}

/// Our end of what a command reads.
pub(crate) struct StdinPipe {
    /// Until it was all read, or nobody reads it.
    pipe: Option<OwnedFd>,
    feed: Arc<StdinFeed>,
    piece: Vec<u8>,
    given: usize,
}

impl StdinPipe {
    /// With the command's end of it; `None` for a command that reads nothing. `fed` is what
    /// somebody else has, if they were to feed it.
    pub(crate) fn open(
        input: &StdinInput,
        fed: Option<Arc<StdinFeed>>,
    ) -> io::Result<Option<(Self, OwnedFd)>> {
        let (piece, feed) = match input {
            StdinInput::Nothing => return Ok(None),
            StdinInput::Given(bytes) => {
                let feed = StdinFeed::new()?;
                feed.shut();
                (bytes.clone(), feed)
            }
            StdinInput::Fed => (Vec::new(), fed.map_or_else(StdinFeed::new, Ok)?),
        };
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        Ok(Some((Self { pipe: Some(ours), feed, piece, given: 0 }, theirs)))
    }

    /// Gives as much as there is room for.
    pub(crate) fn pour(&mut self) {
        while let Some(pipe) = &self.pipe {
            if self.given == self.piece.len() {
                let mut state = self.feed.lock();
                let _ = rustix::io::read(&self.feed.wake, &mut [0; 8]);
                (self.piece, self.given) = (mem::take(&mut state.waiting), 0);
                if self.piece.is_empty() {
                    if state.is_shut {
                        self.pipe = None;
                    }
                    return;
                }
            }
            match rustix::io::write(pipe, &self.piece[self.given..]) {
                Ok(more) => self.given += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => self.stop(),
            }
        }
    }

    /// What is ready when more can be given: some of it was read, or there is more.
    pub(crate) fn waits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let pipe = self.pipe.as_ref()?;
        let has_more = self.given < self.piece.len();
        Some(if has_more {
            (pipe.as_fd(), PollFlags::OUT)
        } else {
            (self.feed.wake.as_fd(), PollFlags::IN)
        })
    }

    fn stop(&mut self) {
        self.pipe = None;
        self.feed.lock().is_over = true;
    }
}

impl Drop for StdinPipe {
    fn drop(&mut self) {
        self.stop();
    }
}
