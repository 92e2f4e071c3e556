//! Wakes a waiting process on the CPU of the thread that answers it.
//!
//! Waking it elsewhere would have to wake an idle CPU, which takes ten times as long as a switch
//! and back. On a busy machine the scheduler chooses better.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::open::open_at;

use rustix::fs::OFlags;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Highest confidence.
const MAX_CONFIDENCE: i32 = 8;

/// Measure of other running processes on this machine.
#[derive(Debug)]
pub(crate) struct CpuContention {
    loads: OwnedFd,
    /// Confidence that hardly any other process runs.
    alone: Cell<i32>,
    /// Number of wake-ups.
    woken: Cell<u32>,
}

impl CpuContention {
    /// Reads from a `/proc`; `None` if it has no load data.
    pub(crate) fn from_proc(proc: BorrowedFd<'_>) -> Option<Self> {
        let loads = open_at(proc, "loadavg", OFlags::RDONLY).ok()?;
        Some(Self { loads, alone: Cell::new(0), woken: Cell::new(0) })
    }

    /// True if hardly any other process runs on any CPU, now and at most earlier checks:
    /// cooperating processes are better off on several CPUs.
    pub(crate) fn is_low(&self) -> bool {
        self.check(1)
    }

    /// The same for frequent wake-ups, where a check each time would cost more than it gains. A
    /// rare check has more weight, but not so much that one briefly running process changes the
    /// result.
    fn is_low_lately(&self) -> bool {
        const CHECK_EVERY: u32 = 8;
        let woken = self.woken.replace(self.woken.get().wrapping_add(1));
        if woken.is_multiple_of(CHECK_EVERY) {
            self.check(MAX_CONFIDENCE / 4)
        } else {
            self.alone.get() > 0
        }
    }

    fn check(&self, weight: i32) -> bool {
        // This thread and the process that waits: since Linux 6.12 a sleeping one counts for a
        // while. Before, this may be one other process, for which a switch in place costs little.
        const OURS: usize = 2;
        let mut text = [0; 64];
        let length = rustix::io::pread(&self.loads, &mut text, 0).unwrap_or(0);
        let step = if running_count(&text[..length]).is_some_and(|runs| runs <= OURS) {
            weight
        } else {
            -weight
        };
        self.alone.set((self.alone.get() + step).clamp(-MAX_CONFIDENCE, MAX_CONFIDENCE));
        self.alone.get() > 0
    }

    /// Wakes the thread `other` with `wake`, on this CPU if hardly any other process runs. Its
    /// affinity is restored afterwards.
    pub(crate) fn wake<T>(&self, other: i32, wake: impl FnOnce() -> T) -> T {
        let other = Pid::from_raw(other);
        let affinity = other
            .filter(|_| self.is_low_lately())
            .and_then(|other| sched_getaffinity(Some(other)).ok());
        let here = sched_getcpu();
        let pinned = affinity.filter(|affinity| {
            affinity.is_set(here) && sched_setaffinity(other, &cpu_set_of(here)).is_ok()
        });
        let woken = wake();
        // The thread may have ended meanwhile.
        let _ = pinned.map(|affinity| sched_setaffinity(other, &affinity));
        woken
    }
}

/// A set of one CPU.
pub(crate) fn cpu_set_of(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}

/// Pins this thread to one CPU; returns its affinity before.
pub(crate) fn pin_to(processor: usize) -> Option<CpuSet> {
    let all = sched_getaffinity(None).ok()?;
    sched_setaffinity(None, &cpu_set_of(processor)).ok().map(|()| all)
}

/// Number of running processes, including the caller: in `0.20 0.18 0.12 1/80 11206`, one.
fn running_count(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_processes_are_counted() {
        assert_eq!(running_count(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(running_count(b"12.20 10.18 8.12 13/1180 9\n"), Some(13));
        assert_eq!(running_count(b""), None);
    }

    #[test]
    fn affinity_is_restored_after_a_wake() {
        let proc = crate::open::open("/proc", OFlags::PATH).expect("there is a /proc");
        let contention =
            CpuContention::from_proc(std::os::fd::AsFd::as_fd(&proc)).expect("it has load data");
        let before = sched_getaffinity(None).expect("the affinity is readable");
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(contention.wake(own, || 7), 7);
        assert_eq!(sched_getaffinity(None).expect("the affinity is readable"), before);
    }
}
