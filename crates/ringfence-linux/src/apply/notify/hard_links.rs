//! Files with several names, some of which may lie outside the writable trees.
//!
//! `git clone /path`, pnpm and uv fill a project with hard links to files of other repositories and
//! of shared stores. A write through such a name changes the file everywhere. The kernel does not
//! report where the other names of a file are, so they are counted: directories list the inode of
//! each entry, and one walk through the writable trees finds every inode with several names in
//! them.
//!
//! The walk takes place at the first write to a file with several names that the command did not
//! link itself. That is rare: most programs replace a file rather than write into it. Meanwhile no
//! name can be created or moved, since those syscalls wait for the notify handler. Another sandbox
//! in the same project could move a name past the walk and have it counted twice; the inode's
//! change time reveals that.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::inode::inode_id;
use crate::open::open;

use ringfence_policy::AbsPath;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags,
};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::resolve::ResolvedParent;

/// Location of a file's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// All of them lie in writable trees.
    Inside,
    /// At least one lies elsewhere, or its location is unknown.
    Outside,
}

/// The files whose names were searched.
#[derive(Default)]
pub(super) struct KnownHardLinks {
    /// The result, and the link count at that time. The command can move names within the writable
    /// trees, but neither out nor in: mounts separate them. So a result is valid while the count is
    /// the same, unless a name was removed: the host may have added one since.
    known: HashMap<LinkedInode, (Names, u32)>,
    index: Option<Index>,
}

/// A file, independent of its name. The birth time tells reused inodes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LinkedInode {
    device: (u32, u32),
    inode: u64,
    birth: (i64, u32),
}

/// Number of entries per inode in the writable trees, where it is more than one.
struct Index {
    counts: HashMap<(u64, u64), u32>,
    /// Start of the walk, by the file systems' clock.
    started_at: SystemTime,
    ended: Instant,
    took: Duration,
}

impl KnownHardLinks {
    /// Number of results that are kept.
    const CAPACITY: usize = 65_536;

    /// Notes that every name of a file lies in a writable tree.
    pub(super) fn note_inside(&mut self, file: &OwnedFd) {
        if let Ok(status) = status(file) {
            self.note(&status, Names::Inside);
        }
    }

    /// True if every name of a file is known to lie in a writable tree.
    pub(super) fn is_inside(&self, file: &OwnedFd) -> bool {
        !self.known.is_empty()
            && status(file).is_ok_and(|status| self.recall(&status) == Some(Names::Inside))
    }

    fn recall(&self, status: &Statx) -> Option<Names> {
        let (names, count) = self.known.get(&LinkedInode::from_statx(status))?;
        (*names == Names::Outside || status.stx_nlink == *count).then_some(*names)
    }

    fn note(&mut self, status: &Statx, names: Names) {
        if self.known.len() >= Self::CAPACITY {
            self.known.clear();
        }
        self.known.insert(LinkedInode::from_statx(status), (names, status.stx_nlink));
    }

    /// Forgets the result for the file at `place`, since this name is about to be removed.
    pub(super) fn forget(&mut self, place: &ResolvedParent) {
        if self.known.is_empty() {
            return;
        }
        let (flags, mask) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME);
        let Ok(status) = rustix::fs::statx(&place.directory, place.name.as_os_str(), flags, mask)
        else {
            return;
        };
        let identity = LinkedInode::from_statx(&status);
        if self.known.get(&identity).is_some_and(|(names, _)| *names == Names::Inside) {
            self.known.remove(&identity);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Locates the names of a file that has several, or has lost the one it was opened by.
    pub(super) fn names_of(&mut self, file: &OwnedFd, roots: &[AbsPath]) -> Result<Names, Errno> {
        let before = status(file)?;
        if let Some(known) = self.recall(&before) {
            return Ok(known);
        }
        let is_newer = |index: &Index| changed(&before) >= index.started_at;
        if self.index.as_ref().is_none_or(is_newer) {
            if self.index.as_ref().is_some_and(|index| !index.may_repeat()) {
                return Ok(Names::Outside);
            }
            self.index = Some(Index::new(roots));
            // It was linked, unlinked or moved during the walk.
            if changed(&status(file)?) != changed(&before) {
                return Ok(Names::Outside);
            }
        }
        let device = rustix::fs::makedev(before.stx_dev_major, before.stx_dev_minor);
        let counts =
            self.index.as_ref().and_then(|index| index.counts.get(&(device, before.stx_ino)));
        let names = if counts.is_some_and(|count| *count >= before.stx_nlink) {
            Names::Inside
        } else {
            Names::Outside
        };
        self.note(&before, names);
        Ok(names)
    }
}

impl LinkedInode {
    fn from_statx(status: &Statx) -> Self {
        let birth = (status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
        Self { device: (status.stx_dev_major, status.stx_dev_minor), inode: status.stx_ino, birth }
    }
}

/// True if the name by which a file was opened after `began` certainly still exists, for a file
/// with one link.
///
/// Removing a name sets the change time. The kernel sets it before it marks the path as deleted, so
/// an open may find a name that was removed a moment ago.
pub(super) fn is_settled(status: &Stat, began: Timespec) -> bool {
    const MOMENT: i64 = 2;
    status.st_nlink == 1 && status.st_ctime + MOMENT < began.tv_sec
}

/// True if `path`, by which a file is open, is its only name.
pub(super) fn is_at(path: &AbsPath, status: &Stat) -> bool {
    let (Some(directory), Some(name)) = (path.parent(), path.name()) else { return false };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .is_ok_and(|directory| is_only_name_in(directory.as_fd(), name, status))
}

/// True if `name` in `directory` is the only name of the file of `status`. The kernel removes names
/// under the directory's lock; the lookup here takes the same lock.
pub(super) fn is_only_name_in(directory: BorrowedFd<'_>, name: &OsStr, status: &Stat) -> bool {
    // For a trailing slash behind a file's name, the kernel locks the directory, looks the name up
    // and removes nothing.
    let slashed = [name.as_bytes(), b"/"].concat();
    rustix::fs::unlinkat(directory, slashed.as_slice(), AtFlags::empty()) == Err(Errno::NOTDIR)
        && rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            (found.st_dev, found.st_ino, found.st_nlink) == (status.st_dev, status.st_ino, 1)
        })
}

fn status(file: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The type of the file at `path`, for file systems whose directory entries have none.
fn kind_at(root: &OwnedFd, path: &Path) -> Result<FileType, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    Ok(FileType::from_raw_mode(rustix::fs::fstat(there)?.st_mode))
}

fn changed(status: &Statx) -> SystemTime {
    let since = Duration::new(
        u64::try_from(status.stx_ctime.tv_sec).unwrap_or(0),
        status.stx_ctime.tv_nsec,
    );
    SystemTime::UNIX_EPOCH + since
}

impl Index {
    /// Walks through `roots`. Names that are not reached in time count as outside.
    fn new(roots: &[AbsPath]) -> Self {
        const MAX_TIME: Duration = Duration::from_secs(5);
        const MAX_ENTRIES: usize = 4_000_000;
        // Change times have the resolution of a tick.
        const TICK: Duration = Duration::from_millis(20);
        let (started_at, started) = (SystemTime::now() - TICK, Instant::now());
        let mut walk = Walk::default();
        for root in roots {
            let Ok(opened) = open(root.as_path(), OFlags::PATH | OFlags::DIRECTORY) else {
                continue;
            };
            let mut waiting = vec![PathBuf::from(".")];
            while let Some(path) = waiting.pop() {
                if walk.listed.len() > MAX_ENTRIES || started.elapsed() > MAX_TIME {
                    break;
                }
                // Names in an unreadable directory count as outside.
                let _ = walk.directory(&opened, &path, &mut waiting);
            }
        }
        Self { counts: walk.counts(), started_at, ended: Instant::now(), took: started.elapsed() }
    }

    /// True if another walk would take at most an eighth of the time.
    fn may_repeat(&self) -> bool {
        const SHARE: u32 = 8;
        self.ended.elapsed() >= self.took * SHARE
    }
}

#[derive(Default)]
struct Walk {
    /// Device and inode of each regular file entry.
    listed: Vec<(u64, u64)>,
    /// Directories already read: roots overlap, and the host may mount a directory twice.
    seen: HashSet<(u64, u64)>,
}

impl Walk {
    fn directory(
        &mut self,
        root: &OwnedFd,
        path: &Path,
        below: &mut Vec<PathBuf>,
    ) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
        let status = rustix::fs::fstat(&opened)?;
        if !self.seen.insert(inode_id(&status)) {
            return Ok(());
        }
        for entry in Dir::new(opened)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let there = || path.join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => kind_at(root, &there())?,
                kind => kind,
            };
            match kind {
                FileType::Directory => below.push(there()),
                FileType::RegularFile => self.listed.push((status.st_dev, entry.ino())),
                _ => {}
            }
        }
        Ok(())
    }

    /// Number of entries of each inode that has more than one.
    fn counts(mut self) -> HashMap<(u64, u64), u32> {
        self.listed.sort_unstable();
        let same = self.listed.chunk_by(|one, other| one == other).filter(|same| same.len() > 1);
        same.map(|same| (same[0], same.len() as u32)).collect()
    }
}
