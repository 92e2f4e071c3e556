//! CPU on which the serving thread waits.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::thread::CpuSet;

use crate::fuse::cpu_contention::{CpuContention, cpu_set_of};
use crate::open::open;

/// CPU placement of the serving thread. On the caller's CPU, a request is answered by a switch to
/// us and back; elsewhere an idle CPU has to be woken each time.
///
/// While a sandbox is built, requests follow each other, all from one CPU. Later the thread stays
/// on its CPU while no other process runs, and wakes callers there.
pub(crate) struct ServingCpu {
    contention: Option<CpuContention>,
    /// Affinity before pinning.
    affinity: Option<CpuSet>,
    is_pinned: bool,
    since: Instant,
}

impl ServingCpu {
    /// Longest time to build a sandbox.
    const BUILD_TIME: Duration = Duration::from_millis(20);

    pub(crate) fn new(processor: Option<usize>) -> Self {
        let proc = open("/proc", OFlags::PATH).ok();
        let contention = proc.and_then(|proc| CpuContention::from_proc(proc.as_fd()));
        let affinity = rustix::thread::sched_getaffinity(None).ok();
        let mut serving = Self { contention, affinity, is_pinned: false, since: Instant::now() };
        serving.is_pinned = processor.is_some_and(|processor| serving.pin(processor));
        serving
    }

    fn pin(&self, processor: usize) -> bool {
        self.affinity.is_some()
            && rustix::thread::sched_setaffinity(None, &cpu_set_of(processor)).is_ok()
    }

    /// Stays pinned, or unpins if the machine is busy.
    pub(crate) fn update_pinning(&mut self) {
        if self.since.elapsed() < Self::BUILD_TIME {
            return;
        }
        match (self.contention.as_ref().is_some_and(CpuContention::is_low), self.is_pinned) {
            (true, false) => self.is_pinned = self.pin(rustix::thread::sched_getcpu()),
            (false, true) => {
                self.is_pinned = self.affinity.as_ref().is_none_or(|affinity| {
                    rustix::thread::sched_setaffinity(None, affinity).is_err()
                })
            }
            _ => {}
        }
    }

    pub(crate) fn wake<T>(&self, other: u32, wake: impl FnOnce() -> T) -> T {
        match &self.contention {
            Some(contention) if self.is_pinned && self.since.elapsed() >= Self::BUILD_TIME => {
                contention.wake(other as i32, wake)
            }
            _ => wake(),
        }
    }
}
