//! Signals to every descendant of this process, without a pid namespace.
//!
//! This process is a subreaper, so a process whose parent has ended becomes its child and stays a
//! descendant.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;

use ringfence_sys::process;

/// Sends `signal` to each descendant. Returns their number.
pub(super) fn signal_descendants(signal: i32) -> usize {
    let own = std::process::id() as i32;
    let processes = parents();
    let mut found = HashSet::from([own]);
    // A table in the order of pids may list a child before its parent.
    loop {
        let more: Vec<i32> = processes
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    found.remove(&own);
    found.iter().filter(|pid| signal_child_of(**pid, &found, own, signal)).count()
}

/// True if the process `of` is an ancestor of `pid`.
pub(super) fn is_descendant(pid: i32, of: i32) -> bool {
    const MAX_DEPTH: usize = 4096;
    let mut above = parent(pid);
    for _ in 0..MAX_DEPTH {
        match above {
            Some(found) if found == of => return true,
            Some(found) if found > 1 => above = parent(found),
            _ => return false,
        }
    }
    false
}

/// Signals a process if it is still a descendant: its pid may have been reused.
fn signal_child_of(pid: i32, descendants: &HashSet<i32>, own: i32, signal: i32) -> bool {
    let Ok(handle) = process::pidfd(pid) else { return false };
    let is_ours = parent(pid).is_some_and(|parent| parent == own || descendants.contains(&parent));
    is_ours && process::pidfd_send_signal(handle.as_fd(), signal).is_ok()
}

/// Each process that `/proc` shows, with its parent.
fn parents() -> Vec<(i32, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, parent(pid)?)))
        .collect()
}

/// The parent of a process that has not ended.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, also spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    (state != "Z").then_some(())?;
    fields.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn parent_of_a_child_with_an_odd_name_is_found() {
        let mut child = Command::new("sleep").arg("30").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(parent(pid), Some(std::process::id() as i32));
        assert!(parents().contains(&(pid, std::process::id() as i32)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent(pid), None);
    }
}
