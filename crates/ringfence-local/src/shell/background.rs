//! What commands of a shell leave running, and what that prints.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use ringfence_api::StreamOutput;
use ringfence_shell::BoundedCapture;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// The processes that a shell has started and that still run.
pub(super) struct BackgroundProcesses {
    /// Where they stand. Not every kernel tells.
    list: Option<File>,
    known: Vec<u8>,
}

impl BackgroundProcesses {
    pub(super) fn by(shell: i32) -> Self {
        Self {
            list: File::open(format!("/proc/{shell}/task/{shell}/children")).ok(),
            known: Vec::new(),
        }
    }

    /// Those that were there when it was asked last.
    pub(super) fn known(&self) -> Vec<i32> {
        String::from_utf8_lossy(&self.known)
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect()
    }

    /// Whether there is one that was not there when this was asked last, or nobody can tell.
    pub(super) fn has_grown(&mut self) -> bool {
        let Some(now) = self.list.as_ref().and_then(whole) else { return true };
        let known = std::mem::replace(&mut self.known, now);
        let mut known = known.split(|byte| *byte == b' ');
        // Both in the order in which they were started.
        !self.known.split(|byte| *byte == b' ').all(|one| known.any(|known| known == one))
    }
}

/// All of a file of the kernel's, which is as it is now.
fn whole(file: &File) -> Option<Vec<u8>> {
    const PAGE: usize = 4096;
    let mut all = Vec::new();
    let mut part = [0; PAGE];
    loop {
        match file.read_at(&mut part, all.len() as u64).ok()? {
            0 => return Some(all),
            length => all.extend_from_slice(&part[..length]),
        }
    }
}

/// Hears what those print that were left running, so that none of them waits until somebody
/// does, and no later command is taken for them.
#[derive(Default)]
pub(super) struct BackgroundOutput(Option<Arc<BackgroundReader>>);

struct BackgroundReader {
    state: Mutex<BackgroundState>,
    /// Ready when there is something else to be heard.
    wake: OwnedFd,
}

struct BackgroundState {
    streams: Vec<Arc<OwnedFd>>,
    kept: BoundedCapture,
    is_over: bool,
}

/// So much is kept of what is printed from one command to the next.
const KEPT: usize = 64 * 1024;

/// So much is read at once, and so often until somebody else has their turn.
const PIECE: usize = 16 * 1024;
const PIECES: usize = 16;

impl BackgroundOutput {
    /// Hears these from now on; they stay where they are if that cannot be.
    pub(super) fn hear(&mut self, streams: &mut [Option<OwnedFd>]) -> std::io::Result<()> {
        let heard = match &self.0 {
            Some(heard) => heard.clone(),
            None => {
                let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                let state = BackgroundState {
                    streams: Vec::new(),
                    kept: BoundedCapture::new(KEPT),
                    is_over: false,
                };
                let heard = Arc::new(BackgroundReader { state: Mutex::new(state), wake });
                let kept = heard.clone();
                thread::Builder::new()
                    .name("late".into())
                    .stack_size(8 * PIECE)
                    .spawn(move || kept.listen())?;
                self.0.insert(heard).clone()
            }
        };
        heard.lock().streams.extend(streams.iter_mut().filter_map(Option::take).map(Arc::new));
        heard.wake();
        Ok(())
    }

    /// What was printed since this was asked last.
    pub(super) fn take(&mut self) -> StreamOutput {
        let Some(heard) = &self.0 else { return StreamOutput::default() };
        let mut state = heard.lock();
        state.read();
        std::mem::replace(&mut state.kept, BoundedCapture::new(KEPT)).finish()
    }
}

impl Drop for BackgroundOutput {
    fn drop(&mut self) {
        if let Some(heard) = &self.0 {
            heard.lock().is_over = true;
            heard.wake();
        }
    }
}

impl BackgroundReader {
    fn lock(&self) -> MutexGuard<'_, BackgroundState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // One that is full wakes as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn listen(&self) {
        loop {
            let streams = {
                let mut state = self.lock();
                if state.is_over {
                    return;
                }
                state.read();
                state.streams.clone()
            };
            let mut waits = vec![PollFd::new(&self.wake, PollFlags::IN)];
            waits.extend(streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)));
            match poll(&mut waits, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
    }
}

impl BackgroundState {
    /// What was printed so far, or much of it where somebody never stops.
    fn read(&mut self) {
        let Self { streams, kept, .. } = self;
        let mut buffer = [0; PIECE];
        streams.retain(|stream| {
            for _ in 0..PIECES {
                match rustix::io::read(&**stream, &mut buffer) {
                    // All of those have ended.
                    Ok(0) => return false,
                    Ok(length) => kept.push(&buffer[..length]),
                    Err(Errno::INTR) => {}
                    Err(error) => return error == Errno::AGAIN,
                }
            }
            true
        });
    }
}
