//! Files with several names, some of which may lie outside the writable trees.
//!
//! `git clone /path`, pnpm and uv fill a project with hard links to files of other repositories and
//! of shared stores. A write through such a name changes the file everywhere. The kernel does not
//! tell where the other names of a file are, so they are counted: directories list the inode of
//! each entry, and one walk through the writable trees finds every inode with several names in
//! them.
//!
//! The walk takes place at the first write to a file with several names that the command did not
//! link itself, which is rare: most programs replace a file rather than write into it. Meanwhile no
//! name can be made or moved, since the calls that do so wait for us. Another sandbox in the same
//! project could move a name past the walk and have it counted twice; its inode's change time gives
//! that away.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ringfence_policy::AbsPath;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, Statx, StatxFlags,
};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::resolve::ResolvedParent;

/// Where the names of a file lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// All of them in writable trees.
    Inside,
    /// At least one of them elsewhere, or it is not known where.
    Outside,
}

/// The files whose names were looked for.
#[derive(Default)]
pub(super) struct HardLinks {
    /// With how many names a file had at the time. The command can move names within the writable
    /// trees, but neither out nor in: mounts are in between. So an answer holds while there are as
    /// many, unless one was removed: the host may have added one since.
    known: HashMap<Identity, (Names, u32)>,
    index: Option<Index>,
}

/// A file, whatever its name. With the time of its birth, since inodes are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    birth: (i64, u32),
}

/// How often an inode is listed in the writable trees, where that is more than once.
struct Index {
    counts: HashMap<(u64, u64), u32>,
    /// When the walk began, by the clock of file systems.
    begun: SystemTime,
    ended: Instant,
    took: Duration,
}

impl HardLinks {
    /// How many answers are kept.
    const MANY: usize = 65_536;

    /// Notes that every name of a file lies in a writable tree.
    pub(super) fn note_inside(&mut self, file: &OwnedFd) {
        if let Ok(status) = status(file) {
            self.note(&status, Names::Inside);
        }
    }

    /// Tells whether it is known that every name of a file lies in a writable tree.
    pub(super) fn is_inside(&self, file: &OwnedFd) -> bool {
        !self.known.is_empty()
            && status(file).is_ok_and(|status| self.recall(&status) == Some(Names::Inside))
    }

    fn recall(&self, status: &Statx) -> Option<Names> {
        let (names, count) = self.known.get(&Identity::of(status))?;
        (*names == Names::Outside || status.stx_nlink == *count).then_some(*names)
    }

    fn note(&mut self, status: &Statx, names: Names) {
        if self.known.len() >= Self::MANY {
            self.known.clear();
        }
        self.known.insert(Identity::of(status), (names, status.stx_nlink));
    }

    /// Forgets that all names of the file at a place are inside, since this one is about to be
    /// removed.
    pub(super) fn forget(&mut self, place: &ResolvedParent) {
        if self.known.is_empty() {
            return;
        }
        let (flags, mask) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO | StatxFlags::BTIME);
        let Ok(status) = rustix::fs::statx(&place.directory, place.name.as_os_str(), flags, mask)
        else {
            return;
        };
        let identity = Identity::of(&status);
        if self.known.get(&identity).is_some_and(|(names, _)| *names == Names::Inside) {
            self.known.remove(&identity);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Tells where the names of a file lie that has several, or has lost the one it was opened by.
    pub(super) fn names_of(&mut self, file: &OwnedFd, roots: &[AbsPath]) -> Result<Names, Errno> {
        let before = status(file)?;
        if let Some(known) = self.recall(&before) {
            return Ok(known);
        }
        let is_newer = |index: &Index| changed(&before) >= index.begun;
        if self.index.as_ref().is_none_or(is_newer) {
            if self.index.as_ref().is_some_and(|index| !index.may_repeat()) {
                return Ok(Names::Outside);
            }
            self.index = Some(Index::new(roots));
            // Linked, unlinked or moved meanwhile.
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

impl Identity {
    fn of(status: &Statx) -> Self {
        let birth = (status.stx_btime.tv_sec, status.stx_btime.tv_nsec);
        Self { device: (status.stx_dev_major, status.stx_dev_minor), inode: status.stx_ino, birth }
    }
}

/// Tells whether the name by which a file was opened after `began` is still there, if it had only
/// one according to `status`.
///
/// Removing a name sets the change time. The kernel sets it before it marks the path as deleted, so
/// an open may find a name that was counted off a moment ago.
pub(super) fn is_settled(status: &Stat, began: Timespec) -> bool {
    const MOMENT: i64 = 2;
    status.st_nlink == 1 && status.st_ctime + MOMENT < began.tv_sec
}

/// Tells whether `path`, by which a file is open, is its only name.
pub(super) fn is_at(path: &AbsPath, status: &Stat) -> bool {
    let (Some(directory), Some(name)) = (path.parent(), path.name()) else { return false };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .is_ok_and(|directory| is_only_name_in(directory.as_fd(), name, status))
}

/// Tells whether `name` in `directory` is the only name of the file of `status`. Names are removed
/// under the directory's lock, and looked up under it here.
pub(super) fn is_only_name_in(directory: BorrowedFd<'_>, name: &OsStr, status: &Stat) -> bool {
    // With a slash behind the name of a file, the kernel locks the directory, looks the name up and
    // removes nothing.
    let slashed = [name.as_bytes(), b"/"].concat();
    rustix::fs::unlinkat(directory, slashed.as_slice(), AtFlags::empty()) == Err(Errno::NOTDIR)
        && rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| {
            (found.st_dev, found.st_ino, found.st_nlink) == (status.st_dev, status.st_ino, 1)
        })
}

fn status(file: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// The type of what stands at `path`, for file systems that do not list it.
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
    /// Walks through `roots`. What is not reached in time counts as outside.
    fn new(roots: &[AbsPath]) -> Self {
        const LONGEST: Duration = Duration::from_secs(5);
        const MANY: usize = 4_000_000;
        // Change times are those of the last tick.
        const TICK: Duration = Duration::from_millis(20);
        let (begun, started) = (SystemTime::now() - TICK, Instant::now());
        let mut walk = Walk::default();
        for root in roots {
            let Ok(opened) = rustix::fs::open(
                root.as_path(),
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            ) else {
                continue;
            };
            let mut waiting = vec![PathBuf::from(".")];
            while let Some(path) = waiting.pop() {
                if walk.listed.len() > MANY || started.elapsed() > LONGEST {
                    break;
                }
                // A directory that cannot be read keeps its names to itself: they count as outside.
                let _ = walk.directory(&opened, &path, &mut waiting);
            }
        }
        Self { counts: walk.counts(), begun, ended: Instant::now(), took: started.elapsed() }
    }

    /// Whether the time that walks take stays small.
    fn may_repeat(&self) -> bool {
        const SHARE: u32 = 8;
        self.ended.elapsed() >= self.took * SHARE
    }
}

#[derive(Default)]
struct Walk {
    /// Device and inode of each entry that is no directory.
    listed: Vec<(u64, u64)>,
    /// Directories, so that none is counted twice: roots overlap, and a host may mount one twice.
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
        if !self.seen.insert((status.st_dev, status.st_ino)) {
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

    /// How often each is listed that is listed more than once.
    fn counts(mut self) -> HashMap<(u64, u64), u32> {
        self.listed.sort_unstable();
        let same = self.listed.chunk_by(|one, other| one == other).filter(|same| same.len() > 1);
        same.map(|same| (same[0], same.len() as u32)).collect()
    }
}
