//! Pipes to splice through, which are lent while bytes are on their way.

use std::os::fd::OwnedFd;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

/// How much a pipe holds that is made for much: as much as an ordinary user may have. The more is
/// moved at once, the less often anybody is woken up.
pub(super) const LARGE: usize = 1024 * 1024;
/// So many are made large. The kernel counts a user's pipes together and gives 64 MiB to all of
/// them; beyond that, everybody's new pipes are tiny. The others keep the size they are born with.
const MANY: usize = 16;
/// Pipes that are kept while nobody needs them.
const KEPT: usize = 8;

/// An empty pipe, or one on its way.
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

/// The pipes that nobody uses.
#[derive(Debug, Default)]
pub(super) struct PipePool {
    idle: Vec<SplicePipe>,
    /// How many large ones there are, in use or not.
    large: usize,
}

impl PipePool {
    /// An empty pipe. There is none where the process has no descriptor left.
    pub(super) fn take(&mut self) -> Option<SplicePipe> {
        self.idle.pop().or_else(|| {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            let grown = self.large < MANY && fcntl_setpipe_size(&writer, LARGE).is_ok();
            self.large += usize::from(grown);
            Some(SplicePipe {
                reader,
                writer,
                size: if grown { PipeSize::Large } else { PipeSize::Usual },
            })
        })
    }

    /// Takes an empty pipe back. Large ones are kept before others.
    pub(super) fn put(&mut self, pipe: SplicePipe) {
        self.idle.push(pipe);
        if self.idle.len() > KEPT {
            let least = self.idle.iter().position(|pipe| pipe.size == PipeSize::Usual).unwrap_or(0);
            let pipe = self.idle.swap_remove(least);
            self.lose(pipe);
        }
    }

    /// Closes a pipe, with whatever is in it.
    pub(super) fn lose(&mut self, pipe: SplicePipe) {
        self.large -= usize::from(pipe.size == PipeSize::Large);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_large_and_few_are_kept() {
        let mut pipes = PipePool::default();
        let taken: Vec<SplicePipe> = (0..MANY + 10).map(|_| pipes.take().unwrap()).collect();
        let large = taken.iter().filter(|pipe| pipe.size == PipeSize::Large).count();
        assert!(large <= MANY && large == pipes.large, "{large}");
        taken.into_iter().rev().for_each(|pipe| pipes.put(pipe));
        assert_eq!(pipes.idle.len(), KEPT);
        assert_eq!(
            pipes.large,
            pipes.idle.iter().filter(|pipe| pipe.size == PipeSize::Large).count()
        );
        assert_eq!(pipes.large, large.min(KEPT));
    }
}
