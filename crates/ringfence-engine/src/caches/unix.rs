//! Linux and macOS: every directory is opened below an open one, and no link is followed.

use std::ffi::{CStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::{Duration, SystemTime};

use ringfence_plan::CONCURRENT;
use ringfence_policy::{AbsPath, Facts};
use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RawMode};
use rustix::io::Errno;

use super::{Cleared, ProjectCaches};

/// The depth limit for directories of a cache.
const MAX_DEPTH: usize = 400;

/// The caches of all projects of this user, by path.
pub fn list_caches(facts: &Facts) -> io::Result<Vec<ProjectCaches>> {
    let Some(all) = facts.store.parent() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let directory = match open(CWD, all.as_path()) {
        Err(Errno::NOENT) => return Ok(found),
        directory => directory?,
    };
    for name in names(&directory)? {
        let Ok(project) = open(&directory, name.as_c_str()) else { continue };
        let store = all.join(OsString::from_vec(name.to_bytes().to_vec()));
        let caches = stores(&project)?;
        if caches.is_empty() {
            continue;
        }
        let mut usage = Usage::default();
        let mut in_use = false;
        let mut locks = Vec::new();
        for (_, cache) in &caches {
            in_use |= lock(cache, &mut locks)? == Lock::Held;
            usage.add(cache, 0);
        }
        found.push(ProjectCaches {
            project: project_from_name(name.to_bytes()),
            store,
            names: caches.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
            bytes: usage.blocks * 512,
            last_use: last_use(&project, &caches),
            in_use,
        });
    }
    found.sort_by(|one, other| one.store.cmp(&other.store));
    Ok(found)
}

/// Removes the caches of a project, unless a run has one of them open.
pub fn clear_caches(caches: &ProjectCaches) -> io::Result<Cleared> {
    let project = open(CWD, caches.store.as_path())?;
    let stores = stores(&project)?;
    // Takes all locks first: either all caches go or none. The locks are held until the end.
    let mut locks = Vec::new();
    for (_, store) in &stores {
        if lock(store, &mut locks)? == Lock::Held {
            return Ok(Cleared::InUse);
        }
    }
    for (name, _) in &stores {
        remove(&project, name, 0)?;
    }
    Ok(Cleared::Removed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lock {
    Taken,
    Held,
}

/// Locks a cache as a run does, and each extra layer of it, which a second run may write to. Adds
/// the locked fds to `locks`.
fn lock(store: &OwnedFd, locks: &mut Vec<OwnedFd>) -> io::Result<Lock> {
    if try_lock(store)? == Lock::Held {
        return Ok(Lock::Held);
    }
    let Ok(layers) = open(store, CONCURRENT) else { return Ok(Lock::Taken) };
    for name in names(&layers)? {
        let Ok(layer) = open(&layers, name.as_c_str()) else { continue };
        if try_lock(&layer)? == Lock::Held {
            return Ok(Lock::Held);
        }
        locks.push(layer);
    }
    Ok(Lock::Taken)
}

fn try_lock(directory: &OwnedFd) -> io::Result<Lock> {
    match rustix::io::retry_on_intr(|| {
        rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive)
    }) {
        Ok(()) => Ok(Lock::Taken),
        Err(Errno::AGAIN) => Ok(Lock::Held),
        Err(error) => Err(error.into()),
    }
}

/// The caches in the directory of a project.
fn stores(project: &OwnedFd) -> io::Result<Vec<(std::ffi::CString, OwnedFd)>> {
    let caches = names(project)?.into_iter().filter_map(|name| {
        let store = open(project, name.as_c_str()).ok()?;
        let is_cache = rustix::fs::statat(&store, "upper", AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|upper| is_directory(upper.st_mode));
        is_cache.then_some((name, store))
    });
    Ok(caches.collect())
}

fn open(at: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(
        at,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

fn names(directory: &OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let entries = Dir::read_from(directory)?.collect::<Result<Vec<_>, _>>()?;
    Ok(entries
        .iter()
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
        .collect())
}

fn is_directory(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}

#[derive(Default)]
struct Usage {
    blocks: u64,
}

impl Usage {
    /// Adds the size of a directory; unreadable parts count as zero.
    fn add(&mut self, directory: &OwnedFd, depth: usize) {
        for name in names(directory).unwrap_or_default() {
            let Ok(status) = rustix::fs::statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            self.blocks += u64::try_from(status.st_blocks).unwrap_or(0);
            if is_directory(status.st_mode)
                && depth < MAX_DEPTH
                && let Ok(inner) = open(directory, name.as_c_str())
            {
                self.add(&inner, depth + 1);
            }
        }
    }
}

/// The newest change of a cache or of the run marks.
fn last_use(project: &OwnedFd, caches: &[(std::ffi::CString, OwnedFd)]) -> Option<SystemTime> {
    let marks = rustix::fs::statat(project, "runs", AtFlags::SYMLINK_NOFOLLOW).ok();
    let uppers = caches.iter().filter_map(|(_, cache)| {
        rustix::fs::statat(cache, "upper", AtFlags::SYMLINK_NOFOLLOW).ok()
    });
    let newest = marks.into_iter().chain(uppers).map(|status| status.st_mtime).max()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(newest).ok()?))
}

/// Removes an entry and everything below it. overlayfs makes directories of mode 0, which get a new
/// mode first. Follows no link, and no run writes here: this process holds its lock.
fn remove(at: &OwnedFd, name: &CStr, depth: usize) -> io::Result<()> {
    let status = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_directory(status.st_mode) {
        return Ok(rustix::fs::unlinkat(at, name, AtFlags::empty())?);
    }
    if depth > MAX_DEPTH {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let owner_bits = Mode::RWXU.bits();
    if status.st_mode & owner_bits != owner_bits {
        rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
    }
    let directory = open(at, name)?;
    for inner in names(&directory)? {
        remove(&directory, &inner, depth + 1)?;
    }
    Ok(rustix::fs::unlinkat(at, name, AtFlags::REMOVEDIR)?)
}

/// The project path that a cache name encodes; `None` if the name is truncated.
fn project_from_name(name: &[u8]) -> Option<AbsPath> {
    let mut path = vec![b'/'];
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'+' => path.push(b'/'),
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                path.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &rest[2..];
            }
            other => path.push(*other),
        }
    }
    let path = AbsPath::new(std::path::Path::new(std::ffi::OsStr::from_bytes(&path)))?;
    (crate::host::slug(&path).as_os_str().as_bytes() == name).then_some(path)
}
