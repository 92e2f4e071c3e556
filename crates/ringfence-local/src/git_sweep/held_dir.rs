//! Directories held open. What the sweep looks at was made by somebody who is not trusted,
//! so no link is followed, nothing is waited for, and no path leads to what is changed.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

/// Device and inode.
pub(crate) type InodeId = (u64, u64);

/// An open directory. One that had to be made accessible first is as it was when dropped.
#[derive(Debug)]
pub(super) struct HeldDir {
    descriptor: OwnedFd,
    shut: Option<Mode>,
}

/// What is wanted of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirAccess {
    Look,
    Change,
}

/// Whether another file system may be entered on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrossMounts {
    Cross,
    Stay,
}

const PASS: OFlags =
    OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const ONLY_LOOK: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
const NO_LINKS: ResolveFlags = ResolveFlags::NO_SYMLINKS.union(ResolveFlags::NO_MAGICLINKS);

impl AsFd for HeldDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for HeldDir {
    fn drop(&mut self) {
        if let Some(mode) = self.shut {
            let _ = rustix::fs::fchmod(&self.descriptor, mode);
        }
    }
}

/// Opens what `directory` is, also if whoever made it took the right to look away.
pub(super) fn hold(directory: impl AsFd, want: DirAccess) -> Result<HeldDir> {
    let status = rustix::fs::fstat(&directory)?;
    let (mode, user) = (Mode::from_raw_mode(status.st_mode), rustix::process::geteuid());
    let needed = match want {
        DirAccess::Look => Mode::RUSR | Mode::XUSR,
        DirAccess::Change => Mode::RWXU,
    };
    let is_shut = !mode.contains(needed) && status.st_uid == user.as_raw() && !user.is_root();
    // Through the descriptor, so that no link can be put in its place.
    let link = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
    if is_shut {
        rustix::fs::chmod(&link, mode | needed)?;
    }
    let opened = rustix::fs::openat(&directory, ".", ONLY_LOOK | OFlags::DIRECTORY, Mode::empty());
    if is_shut && opened.is_err() {
        let _ = rustix::fs::chmod(&link, mode);
    }
    Ok(HeldDir { descriptor: opened?, shut: is_shut.then_some(mode) })
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
    hold(rustix::fs::openat2(directory, name.as_ref(), PASS, Mode::empty(), resolve)?, want)
}

/// Opens a directory by a path below `top` that leads through no link.
pub(super) fn open_below(top: &HeldDir, below: &Path) -> Result<HeldDir> {
    if below.as_os_str().is_empty() {
        return hold(top, DirAccess::Look);
    }
    match rustix::fs::openat2(top, below, PASS, Mode::empty(), NO_LINKS | ResolveFlags::BENEATH) {
        Err(Errno::ACCESS) => {}
        other => return hold(other?, DirAccess::Look),
    }
    // Something on the way is shut: name by name.
    let mut here = hold(top, DirAccess::Look)?;
    for name in below {
        here = enter(&here, name, DirAccess::Look, CrossMounts::Cross)?;
    }
    Ok(here)
}

/// Opens a directory by its path, which leads through no link.
pub(super) fn open_at(path: &Path) -> Result<HeldDir> {
    hold(
        rustix::fs::openat2(rustix::fs::CWD, path, PASS, Mode::empty(), NO_LINKS)?,
        DirAccess::Look,
    )
}

/// The directory at `path`, only to go on from, if it is this very one and no link is on the way.
pub(crate) fn led_to(path: &AbsPath, expected: InodeId) -> Option<OwnedFd> {
    let directory =
        rustix::fs::openat2(rustix::fs::CWD, path.as_path(), PASS, Mode::empty(), NO_LINKS).ok()?;
    (identity(&directory) == Some(expected)).then_some(directory)
}

/// The directory around `directory`, only to go on from.
pub(super) fn around(directory: impl AsFd) -> Result<OwnedFd> {
    rustix::fs::openat(directory, "..", PASS, Mode::empty())
}

pub(crate) fn identity(file: impl AsFd) -> Option<InodeId> {
    rustix::fs::fstat(file).ok().map(|status| (status.st_dev, status.st_ino))
}

/// Of what stands at a name, be it a link.
pub(super) fn identity_at(directory: impl AsFd, name: impl AsRef<Path>) -> Option<InodeId> {
    let status = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((status.st_dev, status.st_ino))
}

pub(super) fn kind(directory: impl AsFd, name: impl AsRef<Path>) -> Option<FileType> {
    let status = rustix::fs::statat(directory, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(status.st_mode))
}

/// What is in a directory.
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

/// Opens a plain file to read. A pipe or a device is none, and is not waited for.
pub(super) fn open_file(directory: impl AsFd, name: impl AsRef<Path>) -> std::io::Result<fs::File> {
    let file = fs::File::from(rustix::fs::openat2(
        directory,
        name.as_ref(),
        ONLY_LOOK,
        Mode::empty(),
        NO_LINKS,
    )?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::ErrorKind::InvalidInput.into()) }
}

/// A small file. At most a megabyte: git's own pointers and configs are never longer.
pub(super) fn read(directory: impl AsFd, name: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
    read_all(open_file(directory, name)?, 1 << 20)
}

/// All of a file, if that is not more than `longest`.
pub(super) fn read_all(file: fs::File, longest: u64) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(longest + 1).read_to_end(&mut text)?;
    if text.len() as u64 > longest {
        Err(std::io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(text)
    }
}

/// Does something that changes `directory`, also if whoever made it took that right away.
pub(super) fn change<T>(directory: &HeldDir, mut act: impl FnMut() -> Result<T>) -> Result<T> {
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

/// Whether a walk goes on below a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkControl {
    Below,
    Past,
}

/// Goes through a whole tree. One directory is open at a time, however deep it is.
///
/// An error says that not all of it was seen: somebody moved things meanwhile.
pub(super) fn walk(
    top: HeldDir,
    mounts: CrossMounts,
    mut visit: impl FnMut(&HeldDir, &Path) -> Result<WalkControl>,
) -> Result<()> {
    let mut levels: Vec<(InodeId, Vec<OsString>)> = Vec::new();
    let (mut here, mut way) = (top, PathBuf::new());
    loop {
        let below = match visit(&here, &way)? {
            WalkControl::Below => entries(&here).unwrap_or_default(),
            WalkControl::Past => Vec::new(),
        };
        let mut below: Vec<_> =
            below.into_iter().filter(|(_, kind)| kind.is_dir()).map(|(name, _)| name).collect();
        loop {
            let Some(name) = below.pop() else {
                let Some((identity, rest)) = levels.pop() else { return Ok(()) };
                here = back(&here, identity, DirAccess::Look)?;
                below = rest;
                way.pop();
                continue;
            };
            if let Ok(next) = enter(&here, &name, DirAccess::Look, mounts) {
                levels.push((identity(&here).ok_or(Errno::IO)?, below));
                here = next;
                way.push(name);
                break;
            }
        }
    }
}

/// One up, if that is still where we came from.
fn back(here: &HeldDir, identity: InodeId, want: DirAccess) -> Result<HeldDir> {
    let above = around(here)?;
    if self::identity(&above) == Some(identity) { hold(above, want) } else { Err(Errno::STALE) }
}

/// Removes what stands at a name, with all that is below it on the same file system.
pub(super) fn remove(directory: &HeldDir, name: &Path) -> Result<()> {
    match change(directory, || rustix::fs::unlinkat(directory, name, AtFlags::empty())) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other,
    }
    let mut levels: Vec<(InodeId, OsString, Vec<OsString>)> = Vec::new();
    let mut here = enter(directory, name, DirAccess::Change, CrossMounts::Stay)?;
    let mut below = clear(&here)?;
    loop {
        if let Some(next) = below.pop() {
            match rustix::fs::unlinkat(&here, &next, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                other => {
                    other?;
                    continue;
                }
            }
            let inner = enter(&here, &next, DirAccess::Change, CrossMounts::Stay)?;
            levels.push((identity(&here).ok_or(Errno::IO)?, next, below));
            here = inner;
            below = clear(&here)?;
        } else if let Some((identity, emptied, rest)) = levels.pop() {
            here = back(&here, identity, DirAccess::Change)?;
            rustix::fs::unlinkat(&here, &emptied, AtFlags::REMOVEDIR)?;
            below = rest;
        } else {
            return change(directory, || rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR));
        }
    }
}

/// Removes the files of a directory and answers its directories.
fn clear(directory: &HeldDir) -> Result<Vec<OsString>> {
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
