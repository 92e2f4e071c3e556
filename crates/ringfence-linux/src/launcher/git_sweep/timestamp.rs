//! Start time of a run, by the clock of the file systems.

use std::fmt;
use std::os::fd::AsFd;

use crate::apply::FileIdentity;
use rustix::time::{ClockId, clock_gettime};

/// File systems whose times are this kernel's own. A file server's clock may be behind.
const OWN_CLOCK: &[u32] = &[
    0xEF53,      // ext
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0x794C_7630, // overlay
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
];

/// Seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FsTimestamp(u64, u64);

impl FsTimestamp {
    pub(crate) fn new(seconds: u64, nanoseconds: u64) -> Self {
        Self(seconds, nanoseconds)
    }

    /// Parses the `Display` form.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (seconds, nanoseconds) = text.split_once(' ')?;
        Some(Self(seconds.parse().ok()?, nanoseconds.parse().ok()?))
    }

    pub(crate) fn now() -> Self {
        // The coarse clock, which stamps files: the fine one is up to a tick ahead of it.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec as u64, now.tv_nsec as u64)
    }

    /// True if a file was created before. False if the file system does not record that.
    pub(super) fn follows(self, birth: FileIdentity) -> bool {
        birth
            .birth_time()
            .is_some_and(|(seconds, nanoseconds)| Self(seconds as u64, nanoseconds.into()) < self)
    }

    /// True if `directory` may have changed since. A program cannot set a change time back.
    pub(super) fn may_precede_change_of(self, directory: impl AsFd) -> bool {
        let has_own_clock = rustix::fs::fstatfs(&directory)
            .is_ok_and(|status| OWN_CLOCK.contains(&(status.f_type as u32)));
        let changed = rustix::fs::fstat(&directory)
            .map(|status| Self(status.st_ctime as u64, status.st_ctime_nsec));
        !has_own_clock || changed.is_ok_and(|changed| changed >= self)
    }
}

impl fmt::Display for FsTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}
