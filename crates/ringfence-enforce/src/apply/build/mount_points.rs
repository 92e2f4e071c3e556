//! Mount points for private caches that the host lacks.
//!
//! `~/.cargo` is bound read-only and a fresh home has no `~/.cargo/registry`: the cache has nothing
//! to be mounted on, and nothing is ever made on the host. A directory of the sandbox's own stands
//! in for `~/.cargo`, with the same entries, each bound by itself, and with the mount point.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;

use ringfence_policy::AbsPath;
use ringfence_sys::mount::{MountRecursion, NO_DEV, NO_SUID, READ_ONLY};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, open_tree};

use super::{RootBuilder, SetupError, SetupStep, make, plain, put, restrict};
use crate::plan::{FileKind, MountAccess, Step};

/// A directory with more entries than this stays as it is: each of them is a mount.
const MOST_ENTRIES: usize = 1000;

/// The private caches that lie in trees bound read-only, by the innermost such tree.
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
    /// Makes mount points for those of `caches` that are absent below a bound tree. Nothing must be
    /// mounted in that tree yet.
    pub(super) fn add_mount_points(&mut self, caches: &[AbsPath]) -> Result<(), SetupError> {
        let mut absent: BTreeMap<AbsPath, Vec<&AbsPath>> = BTreeMap::new();
        for path in caches {
            if self.find(path).during(|| format!("find {path}"))?.is_some() {
                continue;
            }
            // Where a link or a file is in the way, there is no such directory.
            let existing =
                path.ancestors().skip(1).find(|above| matches!(self.find(above), Ok(Some(_))));
            if let Some(directory) = existing.filter(|directory| self.is_bound(directory)) {
                absent.entry(directory).or_default().push(path);
            }
        }
        // Outer directories come first, so that inner ones are mounted in them.
        for (directory, paths) in &absent {
            match self.replace_directory(directory, paths) {
                // It cannot be listed, or it holds too much: the caches stay away.
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
        let copy = make(
            "tmpfs",
            &[("mode", &format!("{mode:o}")), ("size", "4m")],
            &[],
            MountAttrFlags::empty(),
        )?;
        // Before 6.15 nothing can be mounted in a mount that stands nowhere.
        put(&copy, &found)?;
        for (name, kind) in &names {
            match bind_entry(&found, &copy, name, *kind) {
                // Removed meanwhile.
                Err(Errno::NOENT) => {}
                done => done?,
            }
        }
        for path in paths {
            let mut at = plain(&copy, ".")?;
            for name in path.relative_to(directory).into_iter().flatten() {
                match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error),
                }
                at = plain(&at, name)?;
            }
        }
        restrict(&copy, MountRecursion::One, READ_ONLY | NO_SUID | NO_DEV)
    }
}

/// The entries of a directory.
fn entries(directory: &OwnedFd) -> rustix::io::Result<Vec<(std::ffi::CString, FileType)>> {
    let listed = rustix::fs::openat(
        directory,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(listed)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == MOST_ENTRIES {
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

/// Shows one entry in the copy: a link as a copy, everything else as a mount, read-only as the tree
/// is.
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
    let how = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    let tree = open_tree(directory, name, how)?;
    restrict(&tree, MountRecursion::Below, READ_ONLY | NO_SUID | NO_DEV)?;
    // Looked at anew: the name may have become another thing.
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode);
    match kind {
        FileType::Directory => rustix::fs::mkdirat(copy, name, Mode::from_raw_mode(0o755))?,
        FileType::Symlink => return Ok(()),
        _ => rustix::fs::mknodat(copy, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0)?,
    }
    let node = rustix::fs::openat(
        copy,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    put(&tree, &node)
}
