//! The cgroup reaper: removes the cgroups of a program that was killed before it could.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::locks::lock;

use ringfence_sys::process::{self, SpawnIsolation};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use super::super::helper_process::start_helper;
use super::super::watcher::{receive, send};
use super::discover::{CgroupResource, LookupPurpose, find_parents};
use super::pool::{is_left_over, own_prefix, remove};

/// The argument that starts our binary as the cgroup reaper.
pub(in crate::apply) const REAPER: &str = "--cgroup-reaper";

/// Time limit for removing cgroups.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The task of the cgroup reaper.
#[derive(Debug, Serialize, Deserialize)]
struct ReaperRequest {
    directories: Vec<PathBuf>,
    prefix: String,
}

/// The reaper of this program: it waits while the socket is open.
struct CgroupReaper {
    socket: OwnedFd,
    pid: i32,
    /// The pid of the program: a fork has another reaper.
    owner: u32,
    /// Number of cgroups.
    cgroups: usize,
}

static OURS: Mutex<Option<CgroupReaper>> = Mutex::new(None);

/// Starts the reaper before a cgroup is created, or counts one more cgroup.
pub(super) fn register() {
    let mut ours = lock(&OURS);
    let this = std::process::id();
    if let Some(reaper) = ours.as_mut().filter(|reaper| reaper.owner == this) {
        reaper.cgroups += 1;
        return;
    }
    let directories: Vec<PathBuf> = find_parents(&CgroupResource::ALL, LookupPurpose::Make)
        .into_iter()
        .map(|place| place.directory)
        .collect();
    for directory in &directories {
        sweep(directory, is_left_over);
    }
    // Without a reaper, the next program sweeps.
    if let Ok((socket, pid)) = start_helper(REAPER, SpawnIsolation::NewSession, &[]) {
        send(&socket, &ReaperRequest { directories, prefix: own_prefix() });
        *ours = Some(CgroupReaper { socket, pid, owner: this, cgroups: 1 });
    }
}

/// Counts one cgroup less; the reaper ends with the last one.
pub(super) fn unregister() {
    let mut ours = lock(&OURS);
    let Some(reaper) = ours.as_mut().filter(|reaper| reaper.owner == std::process::id()) else {
        return;
    };
    reaper.cgroups = reaper.cgroups.saturating_sub(1);
    if reaper.cgroups == 0
        && let Some(CgroupReaper { socket, pid, .. }) = ours.take()
    {
        drop(socket);
        process::await_end(pid);
    }
}

/// Removes empty cgroups with matching names. True if none is left.
fn sweep(directory: &Path, matches: impl Fn(&str) -> bool) -> bool {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    let matching = found.filter(|entry| entry.file_name().to_str().is_some_and(&matches));
    // Tries each one, even if another could not be removed.
    matching.filter(|entry| !remove(&entry.path(), Duration::ZERO)).count() == 0
}

/// Entry point of the cgroup reaper process. Returns its exit status.
pub(in crate::apply) fn main(control: &OwnedFd) -> i32 {
    // Do not keep the working directory's mount busy.
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
    let started = Instant::now();
    let mut left = directories;
    while started.elapsed() < TIMEOUT {
        left.retain(|directory| !sweep(directory, |name| name.starts_with(&prefix)));
        if left.is_empty() {
            return 0;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    125
}
