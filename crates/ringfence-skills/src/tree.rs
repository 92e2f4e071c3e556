//! Access by fd to directories that untrusted commands write to.
//!
//! A command in a skill's directory may replace any name by a link at any time. So the kernel
//! resolves each path below a directory that is already open, without links, and all checks use the
//! opened fd.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Below the directory, without symbolic or magic links.
const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// The kernel refuses longer paths.
pub(crate) const LONGEST: usize = 4095;

pub(crate) fn open(
    at: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(at, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, BELOW)
}

/// Opens a directory for listing.
pub(crate) fn open_directory(at: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    open(at, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a path for reading. The caller must check its type. Does not block on a pipe without a
/// writer.
pub(crate) fn open_readable(at: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    open(at, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
}

/// Creates a directory with exactly this mode; an existing one stays unchanged.
pub(crate) fn create_directory(at: impl AsFd, name: &str, mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let made = open(&at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            rustix::fs::fchmod(made, Mode::from_raw_mode(mode))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory that only the store writes to.
pub(crate) fn names(directory: impl AsFd) -> Result<Vec<CString>, Errno> {
    first_names(directory, usize::MAX)
}

/// The number of names deleted at a time: there may be millions.
const BATCH_SIZE: usize = 10_000;

fn first_names(directory: impl AsFd, most: usize) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == most {
            break;
        }
    }
    Ok(names)
}

pub(crate) fn stat(at: impl AsFd, name: impl Arg) -> Result<Stat, Errno> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The treatment of directories without read permission for their owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadableDirs {
    /// Add the owner's permissions: their content must be counted.
    Open,
    /// Leave them unchanged.
    Leave,
}

/// An entry of a walk.
pub(crate) struct TreeEntry<'a> {
    /// The path relative to the root of the walk.
    pub(crate) path: &'a [u8],
    pub(crate) stat: Stat,
}

/// The limit of pending directories of a walk, above any normal use.
const MAX_PENDING: usize = 100_000;

/// Visits everything below `root`, a directory before its content, with one fd at a time. Returns
/// true if that was everything: too long paths, unreadable directories and too many directories are
/// left out. Entries that disappear meanwhile are ignored.
pub(crate) fn walk(
    root: BorrowedFd<'_>,
    locked: UnreadableDirs,
    visit: impl FnMut(TreeEntry<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    walk_except(root, locked, &[], visit)
}

/// As [`walk`], without the directories in `except`, relative to the root, and their content.
pub(crate) fn walk_except(
    root: BorrowedFd<'_>,
    locked: UnreadableDirs,
    except: &[String],
    mut visit: impl FnMut(TreeEntry<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    let mut is_all = true;
    let mut pending: Vec<(Rc<[u8]>, CString)> = vec![(Rc::from([]), CString::from(c"."))];
    while let Some((above, name)) = pending.pop() {
        let is_root = name.as_bytes() == b".";
        let here: Rc<[u8]> =
            if is_root { Rc::from(*b".") } else { Rc::from(join(&above, name.as_bytes())) };
        if locked == UnreadableDirs::Open {
            let _ = unlock(root, &*here);
        }
        let opened = open_directory(root, &*here)
            .and_then(|directory| Ok((Dir::read_from(&directory)?, directory)));
        let (entries, directory) = match opened {
            Ok(opened) => opened,
            Err(errno) if is_root => return Err(errno),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            Err(_) => {
                is_all = false;
                continue;
            }
        };
        let prefix: Rc<[u8]> = if is_root { Rc::from([]) } else { here };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match stat(&directory, name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    is_all = false;
                    continue;
                }
            };
            let path = join(&prefix, name.to_bytes());
            if except.iter().any(|other| other.as_bytes() == path) {
                continue;
            }
            if visit(TreeEntry { path: &path, stat }).is_break() {
                return Ok(false);
            }
            if kind(&stat) == FileType::Directory {
                if path.len() > LONGEST || pending.len() >= MAX_PENDING {
                    is_all = false;
                } else {
                    pending.push((Rc::clone(&prefix), name.to_owned()));
                }
            }
        }
    }
    Ok(is_all)
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() { name.to_vec() } else { [above, b"/", name].concat() }
}

/// Adds the owner's permissions to a directory, if a command removed them.
fn unlock(at: impl AsFd, path: impl Arg) -> Result<(), Errno> {
    let held = open(at, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let mode = rustix::fs::fstat(&held)?.st_mode & 0o7777;
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    // By fd, not by name, which could have become a link. An `O_PATH` fd does not support `fchmod`.
    let proc_path = format!("/proc/self/fd/{}", held.as_raw_fd());
    rustix::fs::chmodat(CWD, proc_path, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())
}

/// Opens a directory whose permissions a command removed.
pub(crate) fn open_unlocked(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    unlock(&at, path)?;
    open_directory(at, path)
}

/// The number of attempts if a running command removes the permissions again.
const MAX_UNLOCKS: u32 = 1000;

/// Moves a directory, which must be writable for that. A running command may remove the permission
/// again and again.
pub(crate) fn rename_unlocking(
    at: impl AsFd,
    name: &str,
    mut rename: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    for _ in 0..MAX_UNLOCKS {
        match rename() {
            Err(Errno::ACCESS | Errno::PERM) => unlock(&at, name)?,
            done => return done,
        }
    }
    rename()
}

/// The number of passes over a directory that other processes still write to.
const MAX_PASSES: u32 = 16;

/// Deletes `name` in `bin` with all its content.
///
/// Non-empty directories are moved up to `bin`, under names from `fresh`: so any depth needs only
/// two fds and no long path. After a crash the rest is in `bin`.
pub(crate) fn delete(
    bin: BorrowedFd<'_>,
    name: &str,
    mut fresh: impl FnMut() -> String,
) -> Result<(), Errno> {
    let mut pending = vec![name.to_owned()];
    while let Some(name) = pending.pop() {
        match unlock(bin, &name) {
            Err(Errno::NOENT) => continue,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                rustix::fs::unlinkat(bin, &name, AtFlags::empty())?;
                continue;
            }
            Ok(()) | Err(_) => {}
        }
        let directory = open_directory(bin, &name)?;
        let mut passes = 0;
        loop {
            let entries = first_names(&directory, BATCH_SIZE)?;
            let is_some = entries.len() == BATCH_SIZE;
            for entry in entries {
                if let Some(moved) = discard(bin, &directory, &entry, &mut fresh)? {
                    pending.push(moved);
                }
            }
            match rustix::fs::unlinkat(bin, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if is_some => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) if passes < MAX_PASSES => passes += 1,
                done => break done?,
            }
        }
    }
    Ok(())
}

/// Deletes a tree made by untrusted commands, at any depth and with any modes: `name` in `bin`,
/// which is private. After a crash the rest is in `bin`, under a name that begins with a dot.
pub fn delete_tree(bin: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let begun = std::process::id();
    let fresh = || format!(".gone-{begun}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    delete(bin, name, fresh).map_err(std::io::Error::from)
}

/// Deletes one entry of a directory, or moves it up to `bin`.
fn discard(
    bin: BorrowedFd<'_>,
    from: &OwnedFd,
    entry: &CStr,
    fresh: &mut impl FnMut() -> String,
) -> Result<Option<String>, Errno> {
    match rustix::fs::unlinkat(from, entry, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::ISDIR) => {}
        Err(errno) => return Err(errno),
    }
    match rustix::fs::unlinkat(from, entry, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    // A directory that gets another parent must be writable.
    unlock(from, entry)?;
    loop {
        let to = fresh();
        match rustix::fs::renameat_with(from, entry, bin, &to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(Some(to)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// The modification time in milliseconds since 1970.
pub(crate) fn modified_ms(stat: &Stat) -> u64 {
    let (seconds, nanoseconds) = (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec));
    u64::try_from(seconds * 1000 + nanoseconds / 1_000_000).unwrap_or(0)
}
