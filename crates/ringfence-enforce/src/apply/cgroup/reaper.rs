//! The janitor: removes the groups of a program that was killed before it could.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_sys::process;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use super::super::watcher::{receive, send, spawn_apart};
use super::discover::{CgroupResource, LookupPurpose, places};
use super::pool::{is_left_over, own_prefix, remove};

/// The argument that makes the helper one.
pub(in crate::apply) const JANITOR: &str = "--janitor";

/// So long it takes care of what does not go.
const PATIENCE: Duration = Duration::from_secs(5);

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
struct ReaperRequest {
    directories: Vec<PathBuf>,
    prefix: String,
}

/// This program's: it waits as long as the socket is open.
struct CgroupReaper {
    socket: OwnedFd,
    pid: i32,
    /// Whose it is: not that of a copy of the program.
    of: u32,
    /// For how many groups.
    groups: usize,
}

static OURS: Mutex<Option<CgroupReaper>> = Mutex::new(None);

/// Has somebody take care of a group that is about to be made.
pub(super) fn call() {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let this = std::process::id();
    if let Some(janitor) = ours.as_mut().filter(|janitor| janitor.of == this) {
        janitor.groups += 1;
        return;
    }
    let directories: Vec<PathBuf> = places(&CgroupResource::ALL, LookupPurpose::Make)
        .into_iter()
        .map(|place| place.directory)
        .collect();
    for directory in &directories {
        sweep(directory, is_left_over);
    }
    // Without one, whoever comes next sweeps.
    if let Ok((socket, pid)) = spawn_apart(JANITOR) {
        send(&socket, &ReaperRequest { directories, prefix: own_prefix() });
        *ours = Some(CgroupReaper { socket, pid, of: this, groups: 1 });
    }
}

/// A group is gone; with the last one the janitor goes.
pub(super) fn dismiss() {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(janitor) = ours.as_mut().filter(|janitor| janitor.of == std::process::id()) else {
        return;
    };
    janitor.groups = janitor.groups.saturating_sub(1);
    if janitor.groups == 0
        && let Some(CgroupReaper { socket, pid, .. }) = ours.take()
    {
        drop(socket);
        process::await_end(pid);
    }
}

/// Removes groups of such names, where nobody is in them; answers whether none is left.
fn sweep(directory: &Path, is_meant: impl Fn(&str) -> bool) -> bool {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    let meant = found.filter(|entry| entry.file_name().to_str().is_some_and(&is_meant));
    // Each of them, whether or not another one could be removed.
    meant.filter(|entry| !remove(&entry.path(), Duration::ZERO)).count() == 0
}

/// What our binary does as the janitor; answers its exit status.
pub(in crate::apply) fn main(control: &OwnedFd) -> i32 {
    // A directory that somebody wants to unmount is not kept for this.
    let _ = std::env::set_current_dir("/");
    let Some(ReaperRequest { directories, prefix }) = receive::<ReaperRequest>(control) else {
        return 0;
    };
    let mut ends = [PollFd::new(control, PollFlags::empty())];
    while !ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) {
        match poll(&mut ends, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 125,
        }
    }
    let begun = Instant::now();
    let mut left = directories;
    while begun.elapsed() < PATIENCE {
        left.retain(|directory| !sweep(directory, |name| name.starts_with(&prefix)));
        if left.is_empty() {
            return 0;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    125
}
