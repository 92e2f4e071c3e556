//! Disk space that is taken for the command, where a limit counts it.
//!
//! The kernel counts it for the process that takes it, and that is the notify handler.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::change::is_untouched;
use super::creation_rules::CreationRules;
use super::open_flags::Wish;
use crate::apply::helper::tell;
use crate::apply::{SandboxMessage, SpaceTaken};

/// Disk space that was taken.
#[derive(Debug)]
pub(super) struct SpaceCount {
    taken: SpaceTaken,
    /// The supervisor was told of so many bytes.
    told: u64,
    /// The limit in bytes.
    most: u64,
    /// Device, inode and change time of new files that were counted last. A program that has just
    /// made its lock file may open it many times.
    recent: VecDeque<(u64, u64, i64, i64)>,
}

impl SpaceCount {
    pub(super) fn new(most: u64) -> Self {
        Self { taken: SpaceTaken::default(), told: 0, most, recent: VecDeque::new() }
    }

    /// Notes a new file; answers if it was not among the last ones.
    fn is_first_seen(&mut self, status: &Stat) -> bool {
        const FEW: usize = 16;
        let file = (status.st_dev, status.st_ino, status.st_ctime, status.st_ctime_nsec as i64);
        if self.recent.contains(&file) {
            return false;
        }
        self.recent.truncate(FEW - 1);
        self.recent.push_front(file);
        true
    }

    /// Tells the supervisor of what was taken since the last time, if that is much.
    pub(super) fn report(&mut self, control: impl AsFd) {
        /// Less matters to no limit.
        const SOME: u64 = 64 << 10;
        if self.taken.bytes() >= self.told + SOME {
            self.told = self.taken.bytes();
            tell(control, &SandboxMessage::TookSpace(self.taken));
        }
    }
}

impl CreationRules {
    /// Counts a name that was made.
    pub(super) fn took_name(&mut self) {
        if let Some(space) = &mut self.space {
            space.taken.names += 1;
        }
    }

    /// Counts a file that was opened just now, if that has made it.
    pub(super) fn count_opened(&mut self, wish: &Wish, opened: &Result<OwnedFd, Errno>) {
        let Some(space) = self.space.as_mut().filter(|_| wish.flags.contains(OFlags::CREATE))
        else {
            return;
        };
        let Ok(file) = opened else { return };
        let mut is_made = || {
            rustix::fs::fstat(file).is_ok_and(|status| {
                is_untouched(&status) && is_fresh(&status) && space.is_first_seen(&status)
            })
        };
        if wish.flags.contains(OFlags::EXCL) || is_made() {
            self.took_name();
        }
    }

    /// Counts a copy of so many bytes that is about to be made. Beyond the limit none is.
    pub(super) fn take_copy(&mut self, bytes: u64) -> Result<(), Errno> {
        let Some(space) = &mut self.space else { return Ok(()) };
        space.taken.copied = space.taken.copied.saturating_add(bytes);
        if space.taken.copied > space.most { Err(Errno::DQUOT) } else { Ok(()) }
    }
}

/// Tells whether a file was last changed a moment ago. File systems have the time of the last tick.
fn is_fresh(status: &Stat) -> bool {
    const MOMENT: Duration = Duration::from_millis(100);
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let age = (now.tv_sec - status.st_ctime) * 1_000_000_000
        + (now.tv_nsec - status.st_ctime_nsec as i64);
    age < MOMENT.as_nanos() as i64
}
