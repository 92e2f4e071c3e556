//! Pool of pipes for splicing. A connection borrows a pipe while bytes are in transit.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// Size of a large pipe: the limit for an unprivileged user. Larger transfers mean fewer wakeups.
pub(super) const LARGE: usize = 1024 * 1024;
/// Number of large pipes. The kernel limits a user's pipes to 64 MiB in total; beyond that, all new
/// pipes of the user are tiny. The other pipes keep the default size.
const LARGE_PIPES: usize = 16;
/// Idle pipes to keep.
const IDLE_PIPES: usize = 8;

/// One pipe, empty or in use.
#[derive(Debug)]
pub(super) struct SplicePipe {
    pub(super) reader: OwnedFd,
    pub(super) writer: OwnedFd,
    size: PipeSize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PipeSize {
    Large,
    Usual,
}

/// The idle pipes.
#[derive(Debug, Default)]
pub(super) struct PipePool {
    idle: Vec<SplicePipe>,
    /// Number of large pipes, in use or idle.
    large: usize,
}

impl PipePool {
    /// An empty pipe. `None` if the process has no fd left.
    pub(super) fn take(&mut self) -> Option<SplicePipe> {
        self.idle.pop().or_else(|| {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            let grown = self.large < LARGE_PIPES && fcntl_setpipe_size(&writer, LARGE).is_ok();
            self.large += usize::from(grown);
            Some(SplicePipe {
                reader,
                writer,
                size: if grown { PipeSize::Large } else { PipeSize::Usual },
            })
        })
    }

    /// Returns an empty pipe to the pool. Large pipes are kept first.
    pub(super) fn put(&mut self, pipe: SplicePipe) {
        self.idle.push(pipe);
        if self.idle.len() > IDLE_PIPES {
            let least = self.idle.iter().position(|pipe| pipe.size == PipeSize::Usual).unwrap_or(0);
            let pipe = self.idle.swap_remove(least);
            self.close(pipe);
        }
    }

    /// Closes a pipe and drops its content.
    pub(super) fn close(&mut self, pipe: SplicePipe) {
        self.large -= usize::from(pipe.size == PipeSize::Large);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_and_idle_pipes_are_bounded() {
        let mut pipes = PipePool::default();
        let taken: Vec<SplicePipe> = (0..LARGE_PIPES + 10).map(|_| pipes.take().unwrap()).collect();
        let large = taken.iter().filter(|pipe| pipe.size == PipeSize::Large).count();
        assert!(large <= LARGE_PIPES && large == pipes.large, "{large}");
        taken.into_iter().rev().for_each(|pipe| pipes.put(pipe));
        assert_eq!(pipes.idle.len(), IDLE_PIPES);
        assert_eq!(
            pipes.large,
            pipes.idle.iter().filter(|pipe| pipe.size == PipeSize::Large).count()
        );
        assert_eq!(pipes.large, large.min(IDLE_PIPES));
    }
}
