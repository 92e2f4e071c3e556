//! Where the one who answers waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::thread::CpuSet;

use crate::company::{CpuContention, only};

/// Where we wait for questions. On the processor of whoever asks, one is answered by a switch
/// to us and back; elsewhere, each time a processor would have to be woken.
///
/// While a sandbox is built, one question follows the other, all from one processor. Later
/// we stay where we are as long as nobody else runs, and bring there who asks.
pub(crate) struct ServingCpu {
    company: Option<CpuContention>,
    /// Where else we may be.
    away: Option<CpuSet>,
    is_kept: bool,
    since: Instant,
}

impl ServingCpu {
    /// So long a sandbox may take to be built.
    const BUILT: Duration = Duration::from_millis(20);

    pub(crate) fn at(processor: Option<usize>) -> Self {
        let proc = rustix::fs::open("/proc", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok();
        let company = proc.and_then(|proc| CpuContention::of(proc.as_fd()));
        let away = rustix::thread::sched_getaffinity(None).ok();
        let mut post = Self { company, away, is_kept: false, since: Instant::now() };
        post.is_kept = processor.is_some_and(|processor| post.keep(processor));
        post
    }

    fn keep(&self, processor: usize) -> bool {
        self.away.is_some() && rustix::thread::sched_setaffinity(None, &only(processor)).is_ok()
    }

    /// Stays, or goes wherever there is room.
    pub(crate) fn choose(&mut self) {
        if self.since.elapsed() < Self::BUILT {
            return;
        }
        match (self.company.as_ref().is_some_and(CpuContention::is_none), self.is_kept) {
            (true, false) => self.is_kept = self.keep(rustix::thread::sched_getcpu()),
            (false, true) => {
                self.is_kept = self
                    .away
                    .as_ref()
                    .is_none_or(|away| rustix::thread::sched_setaffinity(None, away).is_err())
            }
            _ => {}
        }
    }

    pub(crate) fn wake<T>(&self, other: u32, wake: impl FnOnce() -> T) -> T {
        match &self.company {
            Some(company) if self.is_kept && self.since.elapsed() >= Self::BUILT => {
                company.wake(other as i32, wake)
            }
            _ => wake(),
        }
    }
}
