//! Pipes to splice through, which are lent while bytes are on their way.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// How much a pipe should hold. The kernel gives an ordinary user 64 MiB in all and says no to
/// what is beyond: such a pipe keeps the size it has.
pub(super) const SIZE: usize = 512 * 1024;
/// Pipes that are kept while nobody needs them.
const KEPT: usize = 8;

/// An empty pipe, or one on its way.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
}

/// The pipes that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    idle: Vec<Pipe>,
}

impl Pipes {
    /// An empty pipe. There is none where the process has no descriptor left.
    pub(super) fn take(&mut self) -> Option<Pipe> {
        self.idle.pop().or_else(|| {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            let _ = fcntl_setpipe_size(&writer, SIZE);
            Some(Pipe { reader, writer })
        })
    }

    /// Takes an empty pipe back.
    pub(super) fn put(&mut self, pipe: Pipe) {
        if self.idle.len() < KEPT {
            self.idle.push(pipe);
        }
    }
}
