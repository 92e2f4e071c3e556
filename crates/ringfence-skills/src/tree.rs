//! Directories that strangers write to, by descriptor.
//!
//! Whatever runs in a skill's directory may exchange any name for a link at any moment. So each
//! path is resolved by the kernel below a directory that was opened before, through no link, and
//! what was opened is what is looked at.

use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Below the directory, and through no link of either kind.
const BELOW: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
/// Longer paths are refused by the kernel.
pub(crate) const LONGEST: usize = 4095;

pub(crate) fn open(
    at: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(at, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode, BELOW)
}

/// A directory, to be listed.
pub(crate) fn directory(at: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    open(at, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Something to be read. It need not be a file: look at it before you read. A pipe that nobody
/// writes to is not waited for.
pub(crate) fn readable(at: impl AsFd, path: impl Arg) -> Result<OwnedFd, Errno> {
    open(at, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
}

/// Makes a directory with exactly this mode, or leaves one that is there.
pub(crate) fn make(at: impl AsFd, name: &str, mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(mode)) {
        Ok(()) => {
            let made = open(&at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
            rustix::fs::fchmod(made, Mode::from_raw_mode(mode))
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory that nobody else writes to.
pub(crate) fn names(directory: impl AsFd) -> Result<Vec<CString>, Errno> {
    first_names(directory, usize::MAX)
}

/// So many names of a directory as are deleted at a time: there may be millions.
const AT_ONCE: usize = 10_000;

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

pub(crate) fn look(at: impl AsFd, name: impl Arg) -> Result<Stat, Errno> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether a walk may make directories readable that whoever owns them cannot look into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadableDirs {
    /// They are opened for their owner: what is in them has to be known.
    Open,
    /// They are left as they are.
    Leave,
}

/// What a walk comes by.
pub(crate) struct TreeEntry<'a> {
    /// From the walk's root on.
    pub(crate) path: &'a [u8],
    pub(crate) stat: Stat,
}

/// Directories that a walk keeps in mind at most. More of them beside each other are nobody's work.
const WAITING: usize = 100_000;

/// Looks at everything below `root`, a directory before what is in it, by one descriptor at a
/// time. Answers whether that was everything: paths beyond what the kernel takes, directories
/// that cannot be looked into, and crowds of them are left out. What vanishes meanwhile is not
/// there.
pub(crate) fn walk(
    root: BorrowedFd<'_>,
    locked: UnreadableDirs,
    visit: impl FnMut(TreeEntry<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    walk_except(root, locked, &[], visit)
}

/// The same without the directories at the paths in `except`, from the root on, and all that is
/// in them.
pub(crate) fn walk_except(
    root: BorrowedFd<'_>,
    locked: UnreadableDirs,
    except: &[String],
    mut visit: impl FnMut(TreeEntry<'_>) -> ControlFlow<()>,
) -> Result<bool, Errno> {
    let mut is_all = true;
    let mut waiting: Vec<(Rc<[u8]>, CString)> = vec![(Rc::from([]), CString::from(c"."))];
    while let Some((above, name)) = waiting.pop() {
        let is_root = name.as_bytes() == b".";
        let here: Rc<[u8]> =
            if is_root { Rc::from(*b".") } else { Rc::from(join(&above, name.as_bytes())) };
        if locked == UnreadableDirs::Open {
            let _ = unlock(root, &*here);
        }
        let opened = directory(root, &*here)
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
        let way: Rc<[u8]> = if is_root { Rc::from([]) } else { here };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match look(&directory, name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(_) => {
                    is_all = false;
                    continue;
                }
            };
            let path = join(&way, name.to_bytes());
            if except.iter().any(|other| other.as_bytes() == path) {
                continue;
            }
            if visit(TreeEntry { path: &path, stat }).is_break() {
                return Ok(false);
            }
            if kind(&stat) == FileType::Directory {
                if path.len() > LONGEST || waiting.len() >= WAITING {
                    is_all = false;
                } else {
                    waiting.push((Rc::clone(&way), name.to_owned()));
                }
            }
        }
    }
    Ok(is_all)
}

fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() { name.to_vec() } else { [above, b"/", name].concat() }
}

/// Lets the owner of a directory look into it and change it, where what ran there forbade that.
fn unlock(at: impl AsFd, path: impl Arg) -> Result<(), Errno> {
    let held = open(at, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    let mode = rustix::fs::fstat(&held)?.st_mode & 0o7777;
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    // By the descriptor and not by the name, which could have become a link; what was opened for
    // its path alone has no `fchmod`.
    let by = format!("/proc/self/fd/{}", held.as_raw_fd());
    rustix::fs::chmodat(CWD, by, Mode::from_raw_mode(mode | 0o700), AtFlags::empty())
}

/// A directory that was locked by what ran in it, opened.
pub(crate) fn unlocked(at: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    unlock(&at, path)?;
    directory(at, path)
}

/// How often a directory is opened for its owner that somebody who runs there locks again.
const PATIENCE: u32 = 1000;

/// Moves a directory, which has to be writable itself for that: what runs in it may have forbidden
/// it, and may do so again and again.
pub(crate) fn unlocking(
    at: impl AsFd,
    name: &str,
    mut rename: impl FnMut() -> Result<(), Errno>,
) -> Result<(), Errno> {
    for _ in 0..PATIENCE {
        match rename() {
            Err(Errno::ACCESS | Errno::PERM) => unlock(&at, name)?,
            done => return done,
        }
    }
    rename()
}

/// How often a directory is gone through that others still write to.
const ROUNDS: u32 = 16;

/// Deletes `name` in `bin` with everything in it.
///
/// Directories that are not empty are moved up into `bin`, under names that `fresh` makes: so no
/// depth takes more than two descriptors, or is beyond any path. What is left by a crash lies in
/// `bin` and is found there.
pub(crate) fn delete(
    bin: BorrowedFd<'_>,
    name: &str,
    mut fresh: impl FnMut() -> String,
) -> Result<(), Errno> {
    let mut waiting = vec![name.to_owned()];
    while let Some(name) = waiting.pop() {
        match unlock(bin, &name) {
            Err(Errno::NOENT) => continue,
            Err(Errno::NOTDIR | Errno::LOOP) => {
                rustix::fs::unlinkat(bin, &name, AtFlags::empty())?;
                continue;
            }
            Ok(()) | Err(_) => {}
        }
        let directory = directory(bin, &name)?;
        let mut rounds = 0;
        loop {
            let entries = first_names(&directory, AT_ONCE)?;
            let is_some = entries.len() == AT_ONCE;
            for entry in entries {
                if let Some(moved) = discard(bin, &directory, &entry, &mut fresh)? {
                    waiting.push(moved);
                }
            }
            match rustix::fs::unlinkat(bin, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if is_some => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) if rounds < ROUNDS => rounds += 1,
                done => break done?,
            }
        }
    }
    Ok(())
}

/// Deletes a tree that strangers made, however deep and however locked: `name` in `bin`, which
/// is nobody else's. What is left by a crash lies in `bin`, under a name that begins with a dot.
pub fn delete_tree(bin: BorrowedFd<'_>, name: &str) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let begun = std::process::id();
    let fresh = || format!(".gone-{begun}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    delete(bin, name, fresh).map_err(std::io::Error::from)
}

/// Deletes one name of a directory, or moves it up into `bin`.
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
    // A directory that changes its parent has to be writable itself.
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

/// Milliseconds since 1970.
pub(crate) fn modified_ms(stat: &Stat) -> u64 {
    let (seconds, nanoseconds) = (i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec));
    u64::try_from(seconds * 1000 + nanoseconds / 1_000_000).unwrap_or(0)
}
