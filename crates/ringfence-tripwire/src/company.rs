//! Answering somebody who waits, on the processor that it waits on.
//!
//! Woken elsewhere, it would have to wait until a sleeping processor is up, which takes ten
//! times as long as a switch to it and back. Where others run, the scheduler knows better.

use std::cell::Cell;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

/// As sure as one can be.
const SURE: i32 = 8;

/// Who else runs on this machine.
#[derive(Debug)]
pub struct CpuContention {
    loads: OwnedFd,
    /// How sure it is that hardly anybody else runs.
    alone: Cell<i32>,
    /// How many were woken.
    woken: Cell<u32>,
}

impl CpuContention {
    /// As told by a `/proc`; `None` where it tells nothing.
    pub fn of(proc: BorrowedFd<'_>) -> Option<Self> {
        let loads =
            rustix::fs::openat(proc, "loadavg", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .ok()?;
        Some(Self { loads, alone: Cell::new(0), woken: Cell::new(0) })
    }

    /// Whether hardly anybody else runs, on any processor, nor did most of the times when this was
    /// asked before: those that work hand in hand are better off on several.
    pub fn is_none(&self) -> bool {
        self.look(1)
    }

    /// The same for many that are woken one after the other: to look each time would take longer
    /// than what is gained. What is seen so seldom counts for more, but not for so much that one
    /// who is awake for a moment makes a difference.
    fn is_none_lately(&self) -> bool {
        const SELDOM: u32 = 8;
        let woken = self.woken.replace(self.woken.get().wrapping_add(1));
        if woken.is_multiple_of(SELDOM) { self.look(SURE / 4) } else { self.alone.get() > 0 }
    }

    fn look(&self, weight: i32) -> bool {
        // We, and whoever waits for us: from Linux 6.12 on, one that sleeps is counted for a while.
        // Before, this may be one other, whom a switch in place costs little.
        const OURS: usize = 2;
        let mut text = [0; 64];
        let length = rustix::io::pread(&self.loads, &mut text, 0).unwrap_or(0);
        let step =
            if runs(&text[..length]).is_some_and(|runs| runs <= OURS) { weight } else { -weight };
        self.alone.set((self.alone.get() + step).clamp(-SURE, SURE));
        self.alone.get() > 0
    }

    /// Wakes the thread `other` by `wake`: here, if hardly anybody else runs. It may go wherever it
    /// might before, once it is awake.
    pub fn wake<T>(&self, other: i32, wake: impl FnOnce() -> T) -> T {
        let other = Pid::from_raw(other);
        let may = other
            .filter(|_| self.is_none_lately())
            .and_then(|other| sched_getaffinity(Some(other)).ok());
        let here = sched_getcpu();
        let kept =
            may.filter(|may| may.is_set(here) && sched_setaffinity(other, &only(here)).is_ok());
        let woken = wake();
        // Whoever has ended meanwhile needs no place.
        let _ = kept.map(|may| sched_setaffinity(other, &may));
        woken
    }
}

/// One processor and no other.
pub fn only(processor: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(processor);
    set
}

/// Keeps this thread at one processor from now on; answers where else it may be.
pub fn stay_at(processor: usize) -> Option<CpuSet> {
    let all = sched_getaffinity(None).ok()?;
    sched_setaffinity(None, &only(processor)).ok().map(|()| all)
}

/// How many run, the one that asks among them: in `0.20 0.18 0.12 1/80 11206`, one.
fn runs(text: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(text).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_run_are_told_from_those_who_are() {
        assert_eq!(runs(b"0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(runs(b"12.20 10.18 8.12 13/1180 9\n"), Some(13));
        assert_eq!(runs(b""), None);
    }

    #[test]
    fn whoever_is_woken_may_go_where_it_might() {
        let proc =
            rustix::fs::open("/proc", OFlags::PATH, Mode::empty()).expect("there is a /proc");
        let company =
            CpuContention::of(std::os::fd::AsFd::as_fd(&proc)).expect("it tells of loads");
        let before = sched_getaffinity(None).expect("we are somewhere");
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        assert_eq!(company.wake(own, || 7), 7);
        assert_eq!(sched_getaffinity(None).expect("we are somewhere"), before);
    }
}
