//! When a run began, by the clock that file systems write.

use std::fmt;
use std::os::fd::AsFd;

use ringfence_enforce::apply::Birth;
use rustix::time::{ClockId, clock_gettime};

/// File systems whose times are this kernel's own. Those of a server may be behind.
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

    /// As it is displayed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (seconds, nanoseconds) = text.split_once(' ')?;
        Some(Self(seconds.parse().ok()?, nanoseconds.parse().ok()?))
    }

    pub(crate) fn now() -> Self {
        // The coarse clock: a file's time may be up to a tick before that of the fine one.
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Self(now.tv_sec as u64, now.tv_nsec as u64)
    }

    /// Answers whether a file was made before. Where the file system does not record that, it
    /// was not.
    pub(super) fn follows(self, birth: Birth) -> bool {
        birth
            .born()
            .is_some_and(|(seconds, nanoseconds)| Self(seconds as u64, nanoseconds.into()) < self)
    }

    /// Whether a name may have been made in `directory` since. The time of its last change
    /// cannot be set back.
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
