//! Directories held open. The sweep reads untrusted trees: it follows no link, never blocks, and
//! changes nothing by path.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::inode::{InodeId, inode_id, inode_of};

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::{Errno, Result};

/// An open directory. If it had to be made accessible, its mode is restored on drop.
#[derive(Debug)]
pub(super) struct HeldDir {
    fd: OwnedFd,
    restore_mode: Option<Mode>,
}

/// Access needed to a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirAccess {
    Look,
    Change,
}

/// Permission to enter another file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrossMounts {
    Cross,
    Stay,
}

const PATH_DIR: OFlags =
    OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const READ_ONLY: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

impl AsFd for HeldDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for HeldDir {
    fn drop(&mut self) {
        if let Some(mode) = self.restore_mode {
            let _ = rustix::fs::fchmod(&self.fd, mode);
        }
    }
}

/// Opens `directory` itself, also if a command removed the read permission.
pub(super) fn open_held(directory: impl AsFd, want: DirAccess) -> Result<HeldDir> {
    let status = rustix::fs::fstat(&directory)?;
    let (mode, user) = (Mode::from_raw_mode(status.st_mode), rustix::process::geteuid());
    let needed = match want {
        DirAccess::Look => Mode::RUSR | Mode::XUSR,
        DirAccess::Change => Mode::RWXU,
    };
    let lacks_permission =
        !mode.contains(needed) && status.st_uid == user.as_raw() && !user.is_root();
    // Through the fd, so that no link can be put in its place.
    let link = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
    if lacks_permission {
        rustix::fs::chmod(&link, mode | needed)?;
    }
    let opened = rustix::fs::openat(&directory, ".", READ_ONLY | OFlags::DIRECTORY, Mode::empty());
    if lacks_permission && opened.is_err() {
        let _ = rustix::fs::chmod(&link, mode);
    }
    Ok(HeldDir { fd: opened?, restore_mode: lacks_permission.then_some(mode) })
}

/// Opens a directory by one name.
pub(super) fn enter(
    directory: impl AsFd,
    name: impl AsRef<Path>,
    want: DirAccess,
    mounts: CrossMounts,
) -> Result<HeldDir> {
    let resolve = match mounts {
        CrossMounts::Cross => NO_LINKS,
        CrossMounts::Stay => NO_LINKS | ResolveFlags::NO_XDEV,
    };
    open_held(
        rustix::fs::openat2(directory, name.as_ref(), PATH_DIR, Mode::empty(), resolve)?,
        want,
    )
}

/// Opens a directory by a path below `top` without links.
pub(super) fn open_below(top: &HeldDir, below: &Path) -> Result<HeldDir> {
    if below.as_os_str().is_empty() {
        return open_held(top, DirAccess::Look);
    }
    match rustix::fs::openat2(top, below, PATH_DIR, Mode::empty(), NO_LINKS | ResolveFlags::BENEATH)
    {
        Err(Errno::ACCESS) => {}
        other => return open_held(other?, DirAccess::Look),
    }
    // A directory on the way has no permissions: open name by name.
    let mut current = open_held(top, DirAccess::Look)?;
    for name in below {
        current = enter(&current, name, DirAccess::Look, CrossMounts::Cross)?;
    }
    Ok(current)
}

/// Opens a directory by a path without links.
pub(super) fn open_at(path: &Path) -> Result<HeldDir> {
    open_held(
        rustix::fs::openat2(rustix::fs::CWD, path, PATH_DIR, Mode::empty(), NO_LINKS)?,
        DirAccess::Look,
    )
}

/// The directory at `path` as an O_PATH fd, if it has this identity and no link is on the way.
pub(crate) fn open_expected(path: &AbsPath, expected: InodeId) -> Option<OwnedFd> {
    let directory =
        rustix::fs::openat2(rustix::fs::CWD, path.as_path(), PATH_DIR, Mode::empty(), NO_LINKS)
            .ok()?;
    (identity(&directory) == Some(expected)).then_some(directory)
}

/// The parent of `directory`, as an O_PATH fd.
pub(super) fn open_parent(directory: impl AsFd) -> Result<OwnedFd> {
    rustix::fs::openat(directory, "..", PATH_DIR, Mode::empty())
}

pub(crate) fn identity(file: impl AsFd) -> Option<InodeId> {
    inode_of(file).ok()
}

/// Identity of the entry at a name; a link is not followed.
pub(super) fn identity_at(directory: impl AsFd, name: impl AsRef<Path>) -> Option<InodeId> {
    let status = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(inode_id(&status))
}

pub(super) fn kind(directory: impl AsFd, name: impl AsRef<Path>) -> Option<FileType> {
    let status = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(status.st_mode))
}

/// Entries of a directory.
pub(super) fn entries(directory: &HeldDir) -> Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = std::ffi::OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind(directory, name).unwrap_or(FileType::Unknown),
            known => known,
        };
        entries.push((name.to_owned(), kind));
    }
    Ok(entries)
}

/// Opens a regular file to read. A pipe or a device is an error, and does not block.
pub(super) fn open_file(directory: impl AsFd, name: impl AsRef<Path>) -> std::io::Result<fs::File> {
    let file = fs::File::from(rustix::fs::openat2(
        directory,
        name.as_ref(),
        READ_ONLY,
        Mode::empty(),
        NO_LINKS,
    )?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
}

/// Reads a small file, of at most one megabyte: git's own pointers and configs are never longer.
pub(super) fn read(directory: impl AsFd, name: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    read_all(open_file(directory, name)?, 1 << 20)
}

/// Reads a whole file, if it is not longer than `longest`.
pub(super) fn read_all(file: fs::File, longest: u64) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(longest + 1).read_to_end(&mut text)?;
    if text.len() as u64 > longest {
        Err(std::io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(text)
    }
}

/// Performs a change in `directory`, also if a command removed the write permission.
pub(super) fn with_write_permission<T>(
    directory: &HeldDir,
    mut act: impl FnMut() -> Result<T>,
) -> Result<T> {
    match act() {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(rustix::fs::fstat(directory)?.st_mode);
            rustix::fs::fchmod(directory, mode | Mode::RWXU)?;
            let result = act();
            let _ = rustix::fs::fchmod(directory, mode);
            result
        }
        other => other,
    }
}

/// Writes a new file next to `name`, to be renamed over it, and returns its name.
///
/// It has the modification time of the file at `name`: git compares that of an index with those of
/// the files in it.
pub(super) fn write_beside(
    directory: &HeldDir,
    name: impl AsRef<Path>,
    content: &[u8],
) -> std::io::Result<OsString> {
    let mut new = name.as_ref().as_os_str().to_owned();
    new.push(".ringfence");
    remove_file(directory, &new)?;
    let old = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = fs::File::from(with_write_permission(directory, || {
        rustix::fs::openat(directory, &new, flags, Mode::from_raw_mode(0o644))
    })?);
    let written = file.write_all(content);
    if let Ok(old) = old {
        let modified = Timespec { tv_sec: old.st_mtime as _, tv_nsec: old.st_mtime_nsec as _ };
        let times = Timestamps { last_access: modified, last_modification: modified };
        let _ = rustix::fs::futimens(&file, &times);
    }
    written.inspect_err(|_| drop(remove_file(directory, &new))).map(|()| new)
}

/// Removes a file, if there is one.
pub(super) fn remove_file(directory: &HeldDir, name: impl AsRef<Path>) -> std::io::Result<()> {
    let name = name.as_ref();
    match with_write_permission(directory, || {
        rustix::fs::unlinkat(directory, name, AtFlags::empty())
    }) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Decision to descend into a directory or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkControl {
    Below,
    Past,
}

/// Walks a whole tree. One directory is open at a time, at any depth.
///
/// An error means that the walk is incomplete: directories were moved meanwhile.
pub(super) fn walk(
    top: HeldDir,
    mounts: CrossMounts,
    mut visit: impl FnMut(&HeldDir, &Path) -> Result<WalkControl>,
) -> Result<()> {
    let mut levels: Vec<(InodeId, Vec<OsString>)> = Vec::new();
    let (mut current, mut relative) = (top, PathBuf::new());
    loop {
        let below = match visit(&current, &relative)? {
            WalkControl::Below => entries(&current).unwrap_or_default(),
            WalkControl::Past => Vec::new(),
        };
        let mut below: Vec<_> =
            below.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(name, _)| name).collect();
        loop {
            let Some(name) = below.pop() else {
                let Some((identity, rest)) = levels.pop() else { return Ok(()) };
                current = open_parent_checked(&current, identity, DirAccess::Look)?;
                below = rest;
                relative.pop();
                continue;
            };
            if let Ok(next) = enter(&current, &name, DirAccess::Look, mounts) {
                levels.push((identity(&current).ok_or(Errno::IO)?, below));
                current = next;
                relative.push(name);
                break;
            }
        }
    }
}

/// Opens the parent, if it is still the directory that the walk came from.
fn open_parent_checked(current: &HeldDir, identity: InodeId, want: DirAccess) -> Result<HeldDir> {
    let above = open_parent(current)?;
    if self::identity(&above) == Some(identity) {
        open_held(above, want)
    } else {
        Err(Errno::STALE)
    }
}

/// Removes an entry, with everything below it on the same file system.
pub(super) fn remove(directory: &HeldDir, name: &Path) -> Result<()> {
    match with_write_permission(directory, || {
        rustix::fs::unlinkat(directory, name, AtFlags::empty())
    }) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let mut levels: Vec<(InodeId, OsString, Vec<OsString>)> = Vec::new();
    let mut current = enter(directory, name, DirAccess::Change, CrossMounts::Stay)?;
    let mut below = remove_files(&current)?;
    loop {
        if let Some(next) = below.pop() {
            match rustix::fs::unlinkat(&current, &next, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                other => {
                    other?;
                    continue;
                }
            }
            let inner = enter(&current, &next, DirAccess::Change, CrossMounts::Stay)?;
            levels.push((identity(&current).ok_or(Errno::IO)?, next, below));
            current = inner;
            below = remove_files(&current)?;
        } else if let Some((identity, emptied, rest)) = levels.pop() {
            current = open_parent_checked(&current, identity, DirAccess::Change)?;
            rustix::fs::unlinkat(&current, &emptied, AtFlags::REMOVEDIR)?;
            below = rest;
        } else {
            return with_write_permission(directory, || {
                rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
            });
        }
    }
}

/// Removes the files of a directory and returns its directories.
fn remove_files(directory: &HeldDir) -> Result<Vec<OsString>> {
    let mut directories = Vec::new();
    for (name, kind) in entries(directory)? {
        if kind.is_dir() {
            directories.push(name);
        } else {
            rustix::fs::unlinkat(directory, &name, AtFlags::empty())?;
        }
    }
    Ok(directories)
}
