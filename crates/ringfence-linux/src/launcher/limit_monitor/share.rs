//! CPU sharing between sandboxes of one program: one that has used much CPU time gets a lower
//! priority while all of them together want more CPUs than exist. Needs no privilege and no cgroup.
//!
//! A sandbox that is busy alone keeps its priority, also on an otherwise busy host. Busy sandboxes
//! share among themselves as before.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use rustix::process::{Pid, getpriority_process, setpriority_process};

use super::proc_usage;

/// CPU time after which a sandbox yields. Most commands of a service use less.
pub(super) const YIELD_AFTER_MS: u64 = 50;

/// A ninth of the usual share when others want the CPU. The lowest priority would starve a sandbox
/// on an otherwise busy host. Without privilege a process cannot raise it again.
const NICE: i32 = 10;

static IS_SHARED: AtomicBool = AtomicBool::new(false);

/// Makes sandboxes of this program that use much CPU time yield to its others from now on.
pub(crate) fn share_cpus() {
    IS_SHARED.store(true, Ordering::Relaxed);
}

pub(super) fn is_shared() -> bool {
    IS_SHARED.load(Ordering::Relaxed)
}

/// Runnable threads of all sandboxes that have used much CPU time.
static RUNNABLE: AtomicUsize = AtomicUsize::new(0);

/// One sandbox's part of [`RUNNABLE`].
#[derive(Debug, Default)]
pub(super) struct Demand(usize);

impl Demand {
    /// Counts the runnable threads of `members`; true if all sandboxes together have more than
    /// there are CPUs.
    pub(super) fn exceeds_cpus(&mut self, members: &[i32]) -> bool {
        let cpus = available_parallelism().map_or(1, usize::from);
        self.set(members.iter().map(|pid| proc_usage::runnable(*pid)).sum()) > cpus
    }

    fn set(&mut self, runnable: usize) -> usize {
        let before = std::mem::replace(&mut self.0, runnable);
        // One wrapping addition, so that no reader sees this part twice or not at all.
        let change = runnable.wrapping_sub(before);
        RUNNABLE.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Result of lowering priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lowered {
    All,
    /// The kernel accepts ten autogroup changes per second from unprivileged processes.
    Partly,
}

/// Lowers the priority of processes. Their children inherit it.
///
/// With `sched_autogroup` the kernel groups processes by session: their priority only counts within
/// the session, and the session has one of its own. The session of this program is left alone.
pub(super) fn lower_priority(members: &[i32]) -> Lowered {
    let own = autogroup("self").map(|(name, _)| name);
    let mut lowered = Lowered::All;
    for pid in members {
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let thread = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .and_then(Pid::from_raw);
            // A program may have lowered itself further, or have ended meanwhile.
            let higher = thread
                .filter(|thread| getpriority_process(Some(*thread)).is_ok_and(|nice| nice < NICE));
            let _ = higher.map(|thread| setpriority_process(Some(thread), NICE));
        }
        let Some((session, nice)) = autogroup(&pid.to_string()) else { continue };
        if Some(&session) != own.as_ref()
            && nice < NICE
            && fs::write(format!("/proc/{pid}/autogroup"), NICE.to_string()).is_err()
        {
            lowered = Lowered::Partly;
        }
    }
    lowered
}

/// Name and priority of a process's scheduling group: `/autogroup-7 nice 0`.
fn autogroup(pid: &str) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    let (name, nice) = text.trim().split_once(" nice ")?;
    name.starts_with("/autogroup-").then(|| Some((name.to_owned(), nice.parse().ok()?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_of_all_sandboxes_is_added_and_removed() {
        let [mut first, mut second] = [Demand::default(), Demand::default()];
        assert_eq!((first.set(3), second.set(2), first.set(1)), (3, 5, 3));
        drop(first);
        assert_eq!(second.set(2), 2);
        drop(second);
        assert_eq!(RUNNABLE.load(Ordering::Relaxed), 0);
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let exceeds =
            || Demand::default().exceeds_cpus(&[i32::try_from(child.id()).expect("a pid")]);
        let is_idle = (0..100).any(|_| {
            !exceeds() || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                false
            }
        });
        child.kill().expect("it ends");
        let _ = child.wait();
        assert!(is_idle, "a program that sleeps wants no CPU");
    }

    #[test]
    fn yielding_process_gets_a_lower_priority() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        lower_priority(&[pid]);
        let nice = getpriority_process(Pid::from_raw(pid));
        child.kill().expect("it ends");
        let _ = child.wait();
        let own = getpriority_process(None).expect("a process has a priority");
        assert_eq!(nice, Ok(own.max(NICE)));
    }
}
