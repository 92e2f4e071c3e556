//! Sharing CPUs between sandboxes: in a program that has many of them, one that has used much CPU
//! time gets a lower priority while all of them together want more CPUs than there are. It needs no
//! privilege and no cgroup.
//!
//! A sandbox that is busy alone keeps its priority, also on a host that is busy otherwise. Busy
//! sandboxes share among themselves as before.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;

use rustix::process::{Pid, getpriority_process, setpriority_process};

use super::proc_usage;

/// CPU time after which a sandbox gives way. Most commands of a service use less.
pub(super) const MUCH_MS: u64 = 50;

/// A ninth of the usual share where others want the CPU. The lowest priority would starve a sandbox
/// on a host that is busy otherwise. Without privilege a process cannot leave it.
const NICE: i32 = 10;

static IS_SHARED: AtomicBool = AtomicBool::new(false);

/// From now on, sandboxes of this program that use much CPU time give way to its others.
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
    /// Counts the runnable threads of `members`, and answers if all sandboxes together have
    /// more of them than there are CPUs.
    pub(super) fn exceeds_cpus(&mut self, members: &[i32]) -> bool {
        let cpus = available_parallelism().map_or(1, usize::from);
        self.set(members.iter().map(|pid| proc_usage::runnable(*pid)).sum()) > cpus
    }

    fn set(&mut self, runnable: usize) -> usize {
        let before = std::mem::replace(&mut self.0, runnable);
        // One addition that wraps, so that no reader sees this part counted twice or not at all.
        let change = runnable.wrapping_sub(before);
        RUNNABLE.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

impl Drop for Demand {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Whether all that was to be lowered is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lowered {
    All,
    /// The kernel takes ten sessions in a second from those without privilege.
    Partly,
}

/// Puts processes behind others. What they start inherits it.
///
/// Where the kernel groups processes by session (`sched_autogroup`), their priority only counts
/// within it, and the session has one of its own. That of this program is left alone.
pub(super) fn give_way(members: &[i32]) -> Lowered {
    let own = autogroup("self").map(|(name, _)| name);
    let mut lowered = Lowered::All;
    for pid in members {
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let thread = thread
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .and_then(Pid::from_raw);
            // A program may have lowered itself further. One that has ended meanwhile needs no
            // place.
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

/// The name of a process's scheduling group and its priority: `/autogroup-7 nice 0`.
fn autogroup(pid: &str) -> Option<(String, i32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    let (name, nice) = text.trim().split_once(" nice ")?;
    name.starts_with("/autogroup-").then(|| Some((name.to_owned(), nice.parse().ok()?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demand_of_all_sandboxes_is_added_up_and_taken_back() {
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
    fn process_that_gives_way_has_a_lower_priority() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().expect("it starts");
        let pid = i32::try_from(child.id()).expect("a pid");
        give_way(&[pid]);
        let nice = getpriority_process(Pid::from_raw(pid));
        child.kill().expect("it ends");
        let _ = child.wait();
        let own = getpriority_process(None).expect("a process has a priority");
        assert_eq!(nice, Ok(own.max(NICE)));
    }
}
