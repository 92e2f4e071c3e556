//! Mount points for private caches that the host lacks.
//!
//! `~/.cargo` is bound read-only and a fresh home has no `~/.cargo/registry`: the cache has no
//! mount point, and nothing is ever created on the host. A directory of the sandbox's own replaces
//! `~/.cargo`, with the same entries, each bound separately, and with the mount point.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use crate::open::open_at;

use ringfence_plan::{FileKind, MountAccess, Step};
use ringfence_policy::AbsPath;
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::{
    RootBuilder, SetupError, SetupStep, attach_mount, new_mount, open_dir_nofollow, restrict_mount,
};

/// A directory with more entries is not replaced: each entry is a mount.
const MAX_ENTRIES: usize = 1000;

/// The private caches in trees bound read-only, by the innermost such tree.
pub(super) fn caches_in_bound_trees<'a>(
    steps: impl Iterator<Item = &'a Step> + Clone,
) -> BTreeMap<AbsPath, Vec<AbsPath>> {
    let mut caches: BTreeMap<AbsPath, Vec<AbsPath>> = BTreeMap::new();
    for step in steps.clone() {
        let Step::Private { path, .. } = step else { continue };
        let around = steps.clone().filter_map(|step| match step {
            Step::Bind { path: tree, access, kind } => {
                Some((tree, *access == MountAccess::ReadOnly && *kind == FileKind::Directory))
            }
            Step::Scratch { path: tree } | Step::Private { path: tree, .. } => Some((tree, false)),
            _ => None,
        });
        let innermost = around
            .filter(|(tree, _)| *tree != path && path.is_within(tree))
            .max_by_key(|(tree, _)| tree.depth());
        if let Some((tree, true)) = innermost {
            caches.entry(tree.clone()).or_default().push(path.clone());
        }
    }
    caches
}

impl RootBuilder {
    /// Creates mount points for those of `caches` that are absent below a bound tree. Nothing must
    /// be mounted in that tree yet.
    pub(super) fn add_mount_points(&mut self, caches: &[AbsPath]) -> Result<(), SetupError> {
        let mut absent: BTreeMap<AbsPath, Vec<&AbsPath>> = BTreeMap::new();
        for path in caches {
            if self.find(path).during(|| format!("find {path}"))?.is_some() {
                continue;
            }
            // If a symlink or a file is in the way, there is no such directory.
            let existing =
                path.ancestors().skip(1).find(|above| matches!(self.find(above), Ok(Some(_))));
            if let Some(directory) = existing.filter(|directory| self.is_bound(directory)) {
                absent.entry(directory).or_default().push(path);
            }
        }
        // Outer directories come first, so that inner ones are mounted in them.
        for (directory, paths) in &absent {
            match self.replace_directory(directory, paths) {
                // It cannot be listed, or it has too many entries: the caches are left out.
                Err(Errno::ACCESS | Errno::NOTDIR | Errno::LOOP | Errno::TOOBIG) => {}
                done => done.during(|| format!("make mount points in {directory}"))?,
            }
        }
        Ok(())
    }

    /// Mounts a copy of a directory over it, with directories for `paths`.
    fn replace_directory(&self, directory: &AbsPath, paths: &[&AbsPath]) -> rustix::io::Result<()> {
        let Some(found) = self.find(directory)? else { return Ok(()) };
        let names = entries(&found)?;
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&found)?.st_mode).bits() & 0o777 | 0o500;
        let copy = new_mount(
            "tmpfs",
            &[("mode", &format!("{mode:o}")), ("size", "4m")],
            &[],
            MountAttrFlags::empty(),
        )?;
        // Before Linux 6.15 nothing can be mounted in a detached mount.
        attach_mount(&copy, &found)?;
        for (name, kind) in &names {
            match bind_entry(&found, &copy, name, *kind) {
                // Removed meanwhile.
                Err(Errno::NOENT) => {}
                done => done?,
            }
        }
        for path in paths {
            let mut at = open_dir_nofollow(&copy, ".")?;
            for name in path.relative_to(directory).into_iter().flatten() {
                match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                at = open_dir_nofollow(&at, name)?;
            }
        }
        restrict_mount(&copy, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV)
    }
}

fn entries(directory: &OwnedFd) -> rustix::io::Result<Vec<(std::ffi::CString, FileType)>> {
    let listed = open_at(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(listed)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == MAX_ENTRIES {
            return Err(Errno::TOOBIG);
        }
        match rustix::fs::statat(directory, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => entries.push((name, FileType::from_raw_mode(status.st_mode))),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(entries)
}

/// Adds one entry to the copy: a symlink as a copy, everything else as a mount, read-only as the
/// tree.
fn bind_entry(
    directory: &OwnedFd,
    copy: &OwnedFd,
    name: &CStr,
    kind: FileType,
) -> rustix::io::Result<()> {
    if kind.is_symlink() {
        let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
        return rustix::fs::symlinkat(target, copy, name);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(directory, name, flags)?;
    restrict_mount(&tree, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)?;
    // Checked again: the entry may have been replaced.
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode);
    match kind {
        FileType::Directory => rustix::fs::mkdirat(copy, name, Mode::from_raw_mode(0o755))?,
        FileType::Symlink => return Ok(()),
        _ => rustix::fs::mknodat(copy, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?,
    }
    let node = open_at(copy, name, OFlags::PATH | OFlags::NOFOLLOW)?;
    attach_mount(&tree, &node)
}
