//! Disk space that the notify handler takes for the command, where a limit counts it.
//!
//! The kernel charges it to the process that takes it, which is the notify handler.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use super::change::is_untouched;
use super::creation_rules::CreationRules;
use super::open_flags::OpenRequest;
use crate::apply::fd_passing::send_message;
use crate::apply::{SandboxMessage, SpaceTaken};

/// Disk space taken so far.
#[derive(Debug)]
pub(super) struct SpaceCount {
    taken: SpaceTaken,
    /// Bytes reported to the launcher so far.
    reported: u64,
    /// The limit, in bytes.
    limit: u64,
    /// Device, inode and change time of the new files counted last: a program may open its new lock
    /// file many times.
    recent: VecDeque<(u64, u64, i64, i64)>,
}

impl SpaceCount {
    pub(super) fn new(limit: u64) -> Self {
        Self { taken: SpaceTaken::default(), reported: 0, limit, recent: VecDeque::new() }
    }

    /// Notes a new file. True if it is not among the last ones.
    fn is_first_seen(&mut self, status: &Stat) -> bool {
        const CAPACITY: usize = 16;
        let file = (status.st_dev, status.st_ino, status.st_ctime, status.st_ctime_nsec as i64);
        if self.recent.contains(&file) {
            return false;
        }
        self.recent.truncate(CAPACITY - 1);
        self.recent.push_front(file);
        true
    }

    /// Reports the space taken to the launcher, if it grew by at least 64 KiB.
    pub(super) fn report(&mut self, control: impl AsFd) {
        /// Smaller amounts matter to no limit.
        const STEP: u64 = 64 << 10;
        if self.taken.bytes() >= self.reported + STEP {
            self.reported = self.taken.bytes();
            send_message(control, &SandboxMessage::SpaceTaken(self.taken));
        }
    }
}

impl CreationRules {
    /// Counts a created name.
    pub(super) fn count_name(&mut self) {
        if let Some(space) = &mut self.space {
            space.taken.names += 1;
        }
    }

    /// Counts a file that was just opened, if the open created it.
    pub(super) fn count_opened(&mut self, request: &OpenRequest, opened: &Result<OwnedFd, Errno>) {
        let Some(space) = self.space.as_mut().filter(|_| request.flags.contains(OFlags::CREATE))
        else {
            return;
        };
        let Ok(file) = opened else { return };
        let mut is_made = || {
            rustix::fs::fstat(file).is_ok_and(|status| {
                is_untouched(&status) && is_fresh(&status) && space.is_first_seen(&status)
            })
        };
        if request.flags.contains(OFlags::EXCL) || is_made() {
            self.count_name();
        }
    }

    /// Counts a copy of `bytes` bytes before it is made. Fails with EDQUOT beyond the limit.
    pub(super) fn count_copy(&mut self, bytes: u64) -> Result<(), Errno> {
        let Some(space) = &mut self.space else { return Ok(()) };
        space.taken.copied = space.taken.copied.saturating_add(bytes);
        if space.taken.copied > space.limit { Err(Errno::DQUOT) } else { Ok(()) }
    }
}

/// True if the file was changed within the last 100 ms. File systems use the time of the last tick.
fn is_fresh(status: &Stat) -> bool {
    const MOMENT: Duration = Duration::from_millis(100);
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let age = (now.tv_sec - status.st_ctime) * 1_000_000_000
        + (now.tv_nsec - status.st_ctime_nsec as i64);
    age < MOMENT.as_nanos() as i64
}
