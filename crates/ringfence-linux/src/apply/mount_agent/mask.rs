//! Masks paths in a running sandbox.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use ringfence_plan::{FileKind, Overmount};
use ringfence_policy::AbsPath;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{MaskedPath, enter, mask_mounts, open_path};
use crate::apply::build::attach_mount;
use crate::apply::watcher::mount_read_only;
use crate::apply::{SetupError, SetupStep};
use ringfence_sys::mount::MountRecursion;

/// A process that has a masked directory as its working directory, or open: paths relative to it
/// bypass the mask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirHolder {
    /// Index of the masked path.
    pub masked: usize,
    /// The process's pid in the sandbox.
    pub pid: u32,
    /// Its name.
    pub name: String,
    by: HeldBy,
}

impl DirHolder {
    /// Describes how the process holds the directory at `path`.
    pub(crate) fn reason(&self, path: &AbsPath) -> String {
        let process = format!("process {} of the sandbox ({})", self.pid, self.name);
        match self.by {
            HeldBy::Directory => format!("{process} has {path} as its working directory or open"),
            HeldBy::Socket => format!(
                "{process} has a socket with fds that were sent and not received, and {path} may be one of them"
            ),
        }
    }
}

/// The way in which a process holds a masked directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum HeldBy {
    /// It is the working or root directory, or is open.
    Directory,
    /// A Unix socket of the process holds fds that were sent and not received. The kernel does not
    /// report their files, so it may hold any directory.
    Socket,
}

/// The pid of init in the sandbox.
const INIT: u32 = 1;

/// Number of processes to report: one is enough.
const MAX_HOLDERS: usize = 8;

pub(super) fn mask_paths(
    masks: &[MaskedPath],
    mount: &OwnedFd,
    wire: Option<&OwnedFd>,
) -> Result<Vec<DirHolder>, SetupError> {
    enter(mount)?;
    for (masked, node) in masks.iter().zip(mask_mounts(wire, masks)?) {
        mount_mask(masked, node)?;
    }
    info!(target: "mount_agent", masks = masks.len(), "masked the paths of a changed policy");
    // Searched after masking: no process can enter any more.
    Ok(holders(masks))
}

fn mount_mask(masked: &MaskedPath, node: Option<OwnedFd>) -> Result<(), SetupError> {
    let path = &masked.path;
    let target = match open_path(path) {
        Ok(target) => target,
        // Gone, a symlink, which cannot be a mount point, or below a masked path.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::NAMETOOLONG) => {
            return Ok(());
        }
        Err(error) => return Err(error).during(|| format!("find {path} inside")),
    };
    let done = match (masked.mask, node) {
        (Overmount::Deny(_), Some(node)) => attach_mount(&node, &target),
        (Overmount::ReadOnly, _) => mount_read_only(&target, MountRecursion::Below),
        (Overmount::Shallow, _) => mount_read_only(&target, MountRecursion::One),
        (Overmount::Deny(_), None) => Err(Errno::NOENT),
    };
    done.during(|| format!("mask {path}"))
}

/// The processes that have a masked directory, or one below it, as a base for relative paths.
fn holders(masks: &[MaskedPath]) -> Vec<DirHolder> {
    let masked: Vec<(usize, &AbsPath)> = masks
        .iter()
        .enumerate()
        .filter(|(_, one)| one.mask == Overmount::Deny(FileKind::Directory))
        .map(|(index, one)| (index, &one.path))
        .collect();
    let mut holders = Vec::new();
    if masked.is_empty() {
        return holders;
    }
    for process in list_dir(Path::new("/proc")) {
        let Some(pid) = process.file_name().and_then(|name| name.to_str()?.parse().ok()) else {
            continue;
        };
        // Each thread can have its own working directory and fd table.
        let threads = list_dir(&process.join("task"));
        let held = threads.iter().flat_map(|thread| held_dirs(thread)).find_map(|directory| {
            let directory = AbsPath::new(directory)?;
            masked.iter().find(|(_, path)| directory.is_within(path)).map(|(index, _)| *index)
        });
        let (indices, by) = match held {
            Some(index) => (vec![index], HeldBy::Directory),
            // The fds that init receives come from outside.
            None if pid != INIT && threads.iter().any(|thread| has_fds_in_flight(thread)) => {
                (masked.iter().map(|(index, _)| *index).collect(), HeldBy::Socket)
            }
            None => continue,
        };
        let name =
            fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned();
        holders.extend(indices.into_iter().map(|index| DirHolder {
            masked: index,
            pid,
            name: name.clone(),
            by,
        }));
        if holders.len() >= MAX_HOLDERS {
            break;
        }
    }
    holders
}

/// The directories that a thread holds.
fn held_dirs(thread: &Path) -> Vec<std::path::PathBuf> {
    let own = [thread.join("cwd"), thread.join("root")];
    let open = list_dir(&thread.join("fd")).into_iter().filter(|link| link.is_dir());
    own.into_iter().chain(open).filter_map(|link| fs::read_link(link).ok()).collect()
}

/// True if a Unix socket of the thread holds fds that were sent and not received (Linux 5.6).
fn has_fds_in_flight(thread: &Path) -> bool {
    let is_socket = |link: &Path| {
        fs::read_link(link)
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
    };
    list_dir(&thread.join("fd"))
        .iter()
        .filter(|link| is_socket(link))
        .filter_map(|link| link.file_name())
        .any(|number| {
            let fdinfo = fs::read_to_string(thread.join("fdinfo").join(number)).unwrap_or_default();
            fdinfo
                .lines()
                .filter_map(|line| line.strip_prefix("scm_fds:"))
                .any(|count| count.trim() != "0")
        })
}

fn list_dir(directory: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
