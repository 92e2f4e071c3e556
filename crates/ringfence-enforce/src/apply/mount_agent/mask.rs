//! Shutting something in a sandbox that runs.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use ringfence_policy::AbsPath;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{MaskedPath, enter, found, nodes};
use crate::apply::build::put;
use crate::apply::watcher::protect;
use crate::apply::{SetupError, SetupStep};
use crate::plan::{FileKind, Overmount};
use ringfence_sys::mount::MountRecursion;

/// A process that stands in a directory that was shut, or has one open: what is relative to it
/// leads past the cover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirHolder {
    /// Which of what was shut.
    pub covered: usize,
    /// The process's number in the sandbox.
    pub pid: u32,
    /// Its name.
    pub name: String,
    by: HeldBy,
}

impl DirHolder {
    /// Says how the process holds the directory at `path`.
    pub fn reason(&self, path: &AbsPath) -> String {
        let who = format!("process {} of the sandbox ({})", self.pid, self.name);
        match self.by {
            HeldBy::Place => format!("{who} stands in {path} or has it open"),
            HeldBy::Socket => format!(
                "{who} has a socket with fds that were sent and not received, and {path} may be one of them"
            ),
        }
    }
}

/// How a process holds a directory that was shut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum HeldBy {
    /// It stands in the directory, or has it open.
    Place,
    /// A Unix socket of it holds fds that were sent and not received. The kernel does not tell of
    /// which files, so it may hold any directory.
    Socket,
}

/// The pid of init in the sandbox.
const INIT: u32 = 1;

/// So many are told of: one is enough.
const TOLD: usize = 8;

pub(super) fn shut(
    covers: &[MaskedPath],
    mount: &OwnedFd,
    wire: Option<&OwnedFd>,
) -> Result<Vec<DirHolder>, SetupError> {
    enter(mount)?;
    for (covered, node) in covers.iter().zip(nodes(wire, covers)?) {
        put_over(covered, node)?;
    }
    // Looked for afterwards: nobody gets in any more.
    Ok(holders(covers))
}

fn put_over(covered: &MaskedPath, node: Option<OwnedFd>) -> Result<(), SetupError> {
    let path = &covered.path;
    let target = match found(path) {
        Ok(target) => target,
        // Gone, a link on which nothing can be mounted, or behind something that is shut.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG) => {
            return Ok(());
        }
        Err(error) => return Err(error).during(|| format!("find {path} inside")),
    };
    let done = match (covered.cover, node) {
        (Overmount::Deny(_), Some(node)) => put(&node, &target),
        (Overmount::ReadOnly, _) => protect(&target, MountRecursion::Below),
        (Overmount::Shallow, _) => protect(&target, MountRecursion::One),
        (Overmount::Deny(_), None) => Err(Errno::NOENT),
    };
    done.during(|| format!("cover {path}"))
}

/// Who has one of the covered directories, or something in it, for a place to go on from.
fn holders(covers: &[MaskedPath]) -> Vec<DirHolder> {
    let shut: Vec<(usize, &AbsPath)> = covers
        .iter()
        .enumerate()
        .filter(|(_, one)| one.cover == Overmount::Deny(FileKind::Directory))
        .map(|(at, one)| (at, &one.path))
        .collect();
    let mut holders = Vec::new();
    if shut.is_empty() {
        return holders;
    }
    for process in listed(Path::new("/proc")) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        // Each thread can have a directory and descriptors of its own.
        let threads = listed(&process.join("task"));
        let held = threads.iter().flat_map(|thread| places(thread)).find_map(|place| {
            let place = AbsPath::new(place)?;
            shut.iter().find(|(_, path)| place.is_within(path)).map(|(at, _)| *at)
        });
        let (covered, by) = match held {
            Some(at) => (vec![at], HeldBy::Place),
            // The fds that init receives come from outside.
            None if pid != INIT && threads.iter().any(|thread| has_fds_in_flight(thread)) => {
                (shut.iter().map(|(at, _)| *at).collect(), HeldBy::Socket)
            }
            None => continue,
        };
        let name =
            fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned();
        holders.extend(covered.into_iter().map(|covered| DirHolder {
            covered,
            pid,
            name: name.clone(),
            by,
        }));
        if holders.len() >= TOLD {
            break;
        }
    }
    holders
}

/// Directories that a thread has.
fn places(thread: &Path) -> Vec<std::path::PathBuf> {
    let own = [thread.join("cwd"), thread.join("root")];
    let open = listed(&thread.join("fd")).into_iter().filter(|link| link.is_dir());
    own.into_iter().chain(open).filter_map(|link| fs::read_link(link).ok()).collect()
}

/// Answers whether a Unix socket of a thread holds fds that were sent and not received (Linux 5.6).
fn has_fds_in_flight(thread: &Path) -> bool {
    let is_socket = |link: &Path| {
        fs::read_link(link)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
    };
    listed(&thread.join("fd"))
        .iter()
        .filter(|link| is_socket(link))
        .filter_map(|link| link.file_name())
        .any(|number| {
            let about = fs::read_to_string(thread.join("fdinfo").join(number)).unwrap_or_default();
            about
                .lines()
                .filter_map(|line| line.strip_prefix("scm_fds:"))
                .any(|count| count.trim() != "0")
        })
}

fn listed(directory: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
