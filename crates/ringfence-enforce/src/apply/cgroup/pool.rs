//! The groups that this program has made: their names, those that wait for another sandbox, and
//! those that did not go when they should.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::dir::CgroupDir;
use super::discover::CgroupResource;

/// What all names of groups begin with.
const PREFIX: &str = "ringfence-";

/// More hardly ever wait.
const MOST: usize = 64;

/// What is known of the groups of one process. A copy of it that goes on by itself knows nothing.
struct CgroupPool {
    pid: u32,
    prefix: String,
    waiting: Vec<IdleCgroup>,
    aside: Vec<PathBuf>,
}

/// A group, and what it was made for.
struct IdleCgroup {
    wanted: Vec<CgroupResource>,
    parts: Vec<CgroupDir>,
}

static STOCK: Mutex<Option<CgroupPool>> = Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut CgroupPool) -> T) -> T {
    let mut stock: MutexGuard<'_, Option<CgroupPool>> =
        STOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let pid = std::process::id();
    if stock.as_ref().is_none_or(|stock| stock.pid != pid) {
        let new = CgroupPool { pid, prefix: prefix(pid), waiting: Vec::new(), aside: Vec::new() };
        // What another process has in there is not ours to remove.
        std::mem::forget(stock.replace(new));
    }
    act(stock.as_mut().expect("it was just put there"))
}

/// Tells of the process numbers that it counts by, of the process and when it began: whether it is
/// still there can be known. And of this moment, since a program may become another.
fn prefix(pid: u32) -> String {
    let now =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    format!("{PREFIX}{}-{pid}-{}-{now}-", numbering(), began(pid).unwrap_or_default())
}

/// Whose numbers processes have here.
fn numbering() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// When a process began: no other of its number has.
fn began(pid: u32) -> Option<u64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Behind the name, which may hold anything, the state is the third field.
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// What the names of this program's groups begin with.
pub(super) fn own_prefix() -> String {
    with(|stock| stock.prefix.clone())
}

/// A name that no other group has.
pub(super) fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{}{}", own_prefix(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether whoever made it is gone. Of those who count processes in another way nothing is known.
pub(super) fn is_left_over(name: &str) -> bool {
    let parts: Option<Vec<u64>> = name
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.split('-').map(|part| part.parse().ok()).collect());
    let Some([numbers, pid, begun, _, _]) = parts.as_deref() else { return false };
    *numbers == numbering() && u32::try_from(*pid).is_ok_and(|pid| began(pid) != Some(*begun))
}

/// A group that was made for the same, and that nobody is in.
pub(super) fn used_before(wanted: &[CgroupResource]) -> Option<Vec<CgroupDir>> {
    with(|stock| {
        let at = stock.waiting.iter().rposition(|one| one.wanted == wanted)?;
        Some(stock.waiting.swap_remove(at).parts)
    })
}

/// Lets a group wait for another sandbox, unless somebody or something is left in it.
pub(super) fn keep(wanted: Vec<CgroupResource>, mut parts: Vec<CgroupDir>) {
    let is_good = !parts.is_empty() && parts.iter().all(|part| part.is_whole() && part.is_free());
    if !is_good {
        return;
    }
    parts.iter_mut().for_each(CgroupDir::forget);
    let one = IdleCgroup { wanted, parts };
    // One too many is removed when nobody waits for us any more.
    drop(with(|stock| {
        if stock.waiting.len() < MOST {
            stock.waiting.push(one);
            None
        } else {
            Some(one)
        }
    }));
}

/// Removes a group when nobody is left in it; answers whether it is gone.
pub(super) fn remove(directory: &Path, patience: Duration) -> bool {
    let begun = Instant::now();
    loop {
        match fs::remove_dir(directory) {
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && begun.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            removed => return removed.is_ok() || !directory.exists(),
        }
    }
}

/// It did not go.
pub(super) fn set_aside(directory: PathBuf) {
    with(|stock| stock.aside.push(directory));
}

/// Removes what did not go before.
pub(super) fn try_again() {
    with(|stock| stock.aside.retain(|directory| !remove(directory, Duration::ZERO)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_somebody_left_is_left_over() {
        let (pid, numbers) = (std::process::id(), numbering());
        assert!(!is_left_over(&name()));
        assert!(is_left_over(&format!("{PREFIX}{numbers}-{pid}-1-5-3")), "another of that number");
        assert!(is_left_over(&format!("{PREFIX}{numbers}-{}-1-5-3", u32::MAX)));
        assert!(
            !is_left_over(&format!("{PREFIX}{}-{pid}-1-5-3", numbers + 1)),
            "somebody elsewhere"
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
    fn a_process_begins_once() {
        let pid = std::process::id();
        assert_eq!(began(pid), began(pid));
        assert!(began(pid).is_some() && began(u32::MAX).is_none());
    }
}
