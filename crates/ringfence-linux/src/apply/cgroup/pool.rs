//! The cgroups that this program has created: their names, idle ones for reuse, and those that
//! could not be removed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::locks::lock;

use super::dir::CgroupDir;
use super::discover::CgroupResource;

/// Prefix of all cgroup names.
const PREFIX: &str = "ringfence-";

/// Maximum number of idle cgroups.
const MAX_IDLE: usize = 64;

/// The cgroups of one process. A fork of the process starts with none.
struct CgroupPool {
    pid: u32,
    prefix: String,
    waiting: Vec<IdleCgroup>,
    unremoved: Vec<PathBuf>,
}

/// An idle cgroup, and the resources it was made for.
struct IdleCgroup {
    wanted: Vec<CgroupResource>,
    parts: Vec<CgroupDir>,
}

static POOL: Mutex<Option<CgroupPool>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut CgroupPool) -> T) -> T {
    let mut pool = lock(&POOL);
    let pid = std::process::id();
    if pool.as_ref().is_none_or(|pool| pool.pid != pid) {
        let new =
            CgroupPool { pid, prefix: prefix(pid), waiting: Vec::new(), unremoved: Vec::new() };
        // The entries belong to the parent process and are not ours to remove.
        std::mem::forget(pool.replace(new));
    }
    act(pool.as_mut().expect("it was just put there"))
}

/// The prefix contains the pid namespace, the pid and the start time of the process, so that
/// another process can tell if it has ended; and the current time, since `exec` keeps the start
/// time.
fn prefix(pid: u32) -> String {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("{PREFIX}{}-{pid}-{}-{now}-", pid_namespace(), start_time(pid).unwrap_or_default())
}

/// The pid namespace of this process.
fn pid_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Start time of a process: unique together with its pid.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Behind the name, which may contain any byte, the state is the third field.
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// The prefix of this program's cgroups.
pub(super) fn own_prefix() -> String {
    with(|pool| pool.prefix.clone())
}

/// A unique cgroup name.
pub(super) fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}{}", own_prefix(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// True if the creator of the cgroup has ended. Unknown, and so false, for another pid namespace.
pub(super) fn is_left_over(name: &str) -> bool {
    let parts: Option<Vec<u64>> = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').map(|part| part.parse().ok()).collect());
    let Some([numbers, pid, started, _, _]) = parts.as_deref() else { return false };
    *numbers == pid_namespace()
        && u32::try_from(*pid).is_ok_and(|pid| start_time(pid) != Some(*started))
}

/// Takes an idle cgroup that was made for the same resources.
pub(super) fn take_idle(wanted: &[CgroupResource]) -> Option<Vec<CgroupDir>> {
    with(|pool| {
        let at = pool.waiting.iter().rposition(|one| one.wanted == wanted)?;
        Some(pool.waiting.swap_remove(at).parts)
    })
}

/// Keeps a cgroup for reuse, unless processes or memory are left in it.
pub(super) fn keep(wanted: Vec<CgroupResource>, mut parts: Vec<CgroupDir>) {
    let is_reusable =
        !parts.is_empty() && parts.iter().all(|part| part.has_all_limits() && part.is_free());
    if !is_reusable {
        return;
    }
    parts.iter_mut().for_each(CgroupDir::reset_baseline);
    let one = IdleCgroup { wanted, parts };
    // A surplus cgroup is removed after the lock is released.
    drop(with(|pool| {
        if pool.waiting.len() < MAX_IDLE {
            pool.waiting.push(one);
            None
        } else {
            Some(one)
        }
    }));
}

/// Removes a cgroup when it is empty. True if it is gone.
pub(super) fn remove(directory: &Path, timeout: Duration) -> bool {
    let started = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && started.elapsed() < timeout =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            removed => return removed.is_ok() || !directory.exists(),
        }
    }
}

/// Notes a cgroup that could not be removed.
pub(super) fn note_unremoved(directory: PathBuf) {
    with(|pool| pool.unremoved.push(directory));
}

/// Retries the cgroups that could not be removed.
pub(super) fn retry_unremoved() {
    with(|pool| pool.unremoved.retain(|directory| !remove(directory, Duration::ZERO)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_ended_process_is_left_over() {
        let (pid, numbers) = (std::process::id(), pid_namespace());
        assert!(!is_left_over(&name()));
        assert!(
            is_left_over(&format!("{PREFIX}{numbers}-{pid}-1-5-3")),
            "another process with that pid"
        );
        assert!(is_left_over(&format!("{PREFIX}{numbers}-{}-1-5-3", u32::MAX)));
        assert!(
            !is_left_over(&format!("{PREFIX}{}-{pid}-1-5-3", numbers + 1)),
            "another pid namespace"
        );
        for name in [
            "ringfence",
            "ringfence-",
            "ringfence-1-2-3",
            "ringfence-x-1-3-4-5",
            "ringfence-1-1-3-4-5-6",
            "other-1-1-3-4-5",
        ] {
            assert!(!is_left_over(name), "{name}");
        }
    }

    #[test]
    fn start_time_is_stable() {
        let pid = std::process::id();
        assert_eq!(start_time(pid), start_time(pid));
        assert!(start_time(pid).is_some() && start_time(u32::MAX).is_none());
    }
}
