//! Processes that commands leave running in a shell, and their output.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::locks::lock;

use ringfence_api::StreamOutput;
use ringfence_shell::BoundedCapture;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

/// Child processes of a shell that still run.
pub(super) struct BackgroundProcesses {
    /// The kernel's list of children, if it has one.
    list: Option<File>,
    known: Vec<u8>,
}

impl BackgroundProcesses {
    pub(super) fn new(shell: i32) -> Self {
        Self {
            list: File::open(format!("/proc/{shell}/task/{shell}/children")).ok(),
            known: Vec::new(),
        }
    }

    /// The children at the last check.
    pub(super) fn known(&self) -> Vec<i32> {
        String::from_utf8_lossy(&self.known)
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect()
    }

    /// True if there is a new child since the last check, or if the kernel has no list.
    pub(super) fn has_grown(&mut self) -> bool {
        let Some(now) = self.list.as_ref().and_then(read_whole) else { return true };
        let known = std::mem::replace(&mut self.known, now);
        let mut known = known.split(|byte| *byte == b' ');
        // Both are in start order.
        !self.known.split(|byte| *byte == b' ').all(|one| known.any(|known| known == one))
    }
}

/// Reads a whole file of /proc from its start.
fn read_whole(file: &File) -> Option<Vec<u8>> {
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

/// Reads the output of background processes, so that none of them blocks, and no later command is
/// taken for them.
#[derive(Default)]
pub(super) struct BackgroundOutput(Option<Arc<BackgroundReader>>);

struct BackgroundReader {
    state: Mutex<BackgroundState>,
    /// Readable when there is a new stream to read.
    wake: OwnedFd,
}

struct BackgroundState {
    streams: Vec<Arc<OwnedFd>>,
    kept: BoundedCapture,
    is_over: bool,
}

/// Bytes kept of the output between two commands.
const KEPT_BYTES: usize = 64 * 1024;

/// Bytes per read, and reads per stream before the next stream.
const READ_SIZE: usize = 16 * 1024;
const READS_PER_STREAM: usize = 16;

impl BackgroundOutput {
    /// Reads these streams from now on; they stay in place on failure.
    pub(super) fn read_streams(&mut self, streams: &mut [Option<OwnedFd>]) -> std::io::Result<()> {
        let reader = match &self.0 {
            Some(reader) => reader.clone(),
            None => {
                let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                let state = BackgroundState {
                    streams: Vec::new(),
                    kept: BoundedCapture::new(KEPT_BYTES),
                    is_over: false,
                };
                let reader = Arc::new(BackgroundReader { state: Mutex::new(state), wake });
                let kept = reader.clone();
                thread::Builder::new()
                    .name("background".into())
                    .stack_size(8 * READ_SIZE)
                    .spawn(move || kept.read_loop())?;
                self.0.insert(reader).clone()
            }
        };
        lock(&reader.state)
            .streams
            .extend(streams.iter_mut().filter_map(Option::take).map(Arc::new));
        reader.wake();
        Ok(())
    }

    /// Takes the output since the last call.
    pub(super) fn take_output(&mut self) -> StreamOutput {
        let Some(reader) = &self.0 else { return StreamOutput::default() };
        let mut state = lock(&reader.state);
        state.read();
        std::mem::replace(&mut state.kept, BoundedCapture::new(KEPT_BYTES)).finish()
    }
}

impl Drop for BackgroundOutput {
    fn drop(&mut self) {
        if let Some(reader) = &self.0 {
            lock(&reader.state).is_over = true;
            reader.wake();
        }
    }
}

impl BackgroundReader {
    fn wake(&self) {
        // A full eventfd is readable as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn read_loop(&self) {
        loop {
            let streams = {
                let mut state = lock(&self.state);
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
    /// Reads the output so far, or a part of it if a process never stops.
    fn read(&mut self) {
        let Self { streams, kept, .. } = self;
        let mut buffer = [0; READ_SIZE];
        streams.retain(|stream| {
            for _ in 0..READS_PER_STREAM {
                match rustix::io::read(&**stream, &mut buffer) {
                    // All writers have ended.
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
