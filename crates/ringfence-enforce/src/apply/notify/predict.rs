//! Calls that change or take away what is there: the kernel carries them out, and those that
//! are going to fail by the policy are told of.
//!
//! Nothing is decided here. The mounts refuse, so a path that another thread changes
//! meanwhile changes what is told and never what is done: such a call can be let through.
//! That it will fail must be known before, since nobody hears how a call has ended.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringfence_api::Operation;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::resolve::{self, FinalSymlink};
use crate::seccomp::calls::Call;

/// What a call wants to do to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileMutation {
    /// Write a file.
    Content,
    /// Change what is known of it: mode, owner, times, attributes.
    Attributes,
    /// Take its name away.
    Name,
    /// Make a file without a name in it.
    Inside,
}

/// Which arguments say what is to be changed.
#[derive(Debug, Clone, Copy)]
struct MutationArgs {
    directory: Option<usize>,
    /// Without a path, the descriptor itself is meant.
    path: Option<usize>,
    last: FinalSymlink,
    change: FileMutation,
}

/// A call that is going to fail by the policy.
pub(super) struct PredictedDenial {
    /// On what.
    pub(super) there: OwnedFd,
    pub(super) operation: Operation,
}

/// Whether `call` is going to fail by the policy.
pub(super) fn foresee(
    call: Call,
    caller: &NotifyCaller<'_>,
    mounts: &mut MountCache,
) -> Option<PredictedDenial> {
    let form = form(call, caller)?;
    let directory = form.directory.map_or(libc::AT_FDCWD, |number| caller.int(number));
    let path = form.path.map_or(Ok(c"".to_owned()), |number| caller.text(number));
    // What cannot be read or is not there fails by itself.
    path.and_then(|path| look(caller, mounts, (directory, &path), form)).ok()?
}

/// Whether a renaming or linking failed because what it names is mounted by itself.
pub(super) fn held(
    caller: &NotifyCaller<'_>,
    (directory, path): (i32, usize),
) -> Result<Option<PredictedDenial>, Errno> {
    let path = caller.text(path)?;
    if !is_name(&path) {
        return Ok(None);
    }
    let (way, status) = PathStart::find(caller, (directory, &path), FinalSymlink::Keep)?;
    if !is_mounted(&status) {
        return Ok(None);
    }
    Ok(Some(PredictedDenial { there: way.open(FinalSymlink::Keep)?, operation: Operation::Rename }))
}

fn look(
    caller: &NotifyCaller<'_>,
    mounts: &mut MountCache,
    (directory, path): (i32, &CStr),
    form: MutationArgs,
) -> Result<Option<PredictedDenial>, Errno> {
    if form.change == FileMutation::Name && !is_name(path) {
        return Ok(None);
    }
    let last = if path.is_empty() { FinalSymlink::Follow } else { form.last };
    let (way, status) = PathStart::find(caller, (directory, path), last)?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    let fails = match form.change {
        FileMutation::Name if is_mounted(&status) => true,
        // Devices and pipes are written wherever they stand.
        FileMutation::Content if kind != FileType::RegularFile => false,
        FileMutation::Inside if kind != FileType::Directory => false,
        _ => mounts.is_read_only(&status, || way.open(last))?,
    };
    if !fails {
        return Ok(None);
    }
    let there = way.open(last)?;
    caller.still_waits()?;
    let operation =
        if form.change == FileMutation::Inside { Operation::Create } else { Operation::Write };
    Ok(Some(PredictedDenial { there, operation }))
}

fn form(call: Call, caller: &NotifyCaller<'_>) -> Option<MutationArgs> {
    use FileMutation::{Attributes, Content, Name};
    use FinalSymlink::{Follow, Keep};
    let at = |directory, path, last, change| {
        Some(MutationArgs { directory, path: Some(path), last, change })
    };
    let flagged = |number: usize| {
        if caller.int(number) & libc::AT_SYMLINK_NOFOLLOW == 0 { Follow } else { Keep }
    };
    match call {
        Call::Open => opened(None, 0, caller.int(1)),
        Call::Openat => opened(Some(0), 1, caller.int(2)),
        Call::Truncate | Call::Truncate64 => at(None, 0, Follow, Content),
        Call::Chmod
        | Call::Chown
        | Call::Chown16
        | Call::Utime
        | Call::Utimes
        | Call::Setxattr
        | Call::Removexattr => at(None, 0, Follow, Attributes),
        Call::Lchown | Call::Lchown16 | Call::Lsetxattr | Call::Lremovexattr => {
            at(None, 0, Keep, Attributes)
        }
        Call::Fchmodat | Call::Futimesat => at(Some(0), 1, Follow, Attributes),
        Call::Fchmodat2 | Call::Utimensat | Call::Utimensat64 => {
            at(Some(0), 1, flagged(3), Attributes)
        }
        Call::Fchownat => at(Some(0), 1, flagged(4), Attributes),
        Call::Ioctl => {
            Some(MutationArgs { directory: Some(0), path: None, last: Follow, change: Attributes })
        }
        Call::Unlink | Call::Rmdir => at(None, 0, Keep, Name),
        Call::Unlinkat => at(Some(0), 1, Keep, Name),
        _ => None,
    }
}

fn opened(directory: Option<usize>, path: usize, flags: i32) -> Option<MutationArgs> {
    if flags & libc::O_PATH != 0 {
        return None;
    }
    let last =
        if flags & libc::O_NOFOLLOW == 0 { FinalSymlink::Follow } else { FinalSymlink::Keep };
    let change = if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        FileMutation::Inside
    } else {
        FileMutation::Content
    };
    Some(MutationArgs { directory, path: Some(path), last, change })
}

/// How what a caller names is reached from here.
struct PathStart<'a> {
    from: PathBase<'a>,
    path: PathBuf,
}

enum PathBase<'a> {
    /// By a path from the host's `/proc`.
    Proc(BorrowedFd<'a>),
    /// Open already; the path is empty.
    Opened(OwnedFd),
}

impl<'a> PathStart<'a> {
    /// Also says what stands there.
    fn find(
        caller: &NotifyCaller<'a>,
        (directory, text): (i32, &CStr),
        last: FinalSymlink,
    ) -> Result<(Self, Statx), Errno> {
        let written = Path::new(OsStr::from_bytes(text.to_bytes()));
        let own = PathBuf::from(caller.pid().to_string());
        // By the caller's own directory in `/proc`: it saves opening where the path begins.
        let path = match (written.strip_prefix("/proc/self"), directory) {
            (Ok(rest), _) => own.join(rest),
            _ if written.is_absolute() => written.to_owned(),
            (_, libc::AT_FDCWD) => own.join("cwd").join(written),
            (_, number) if text.is_empty() => own.join(format!("fd/{number}")),
            (_, number) => own.join(format!("fd/{number}")).join(written),
        };
        let way = PathStart { from: PathBase::Proc(caller.host_proc), path };
        match way.status(last) {
            // A name that is not there where the path begins leads through no link.
            Err(Errno::NOENT) if last == FinalSymlink::Keep && !text.to_bytes().contains(&b'/') => {
                Err(Errno::NOENT)
            }
            // A process that hides from its own user, who we are; or a path that leads through a
            // link to the caller's own directory in `/proc`.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => {
                let there = if text.is_empty() {
                    caller.directory(directory)?
                } else {
                    resolve::open(caller, directory, text, last)?
                };
                let way = PathStart { from: PathBase::Opened(there), path: PathBuf::new() };
                way.status(last).map(|status| (way, status))
            }
            status => status.map(|status| (way, status)),
        }
    }

    fn start(&self) -> BorrowedFd<'_> {
        match &self.from {
            PathBase::Proc(proc) => *proc,
            PathBase::Opened(directory) => directory.as_fd(),
        }
    }

    fn status(&self, last: FinalSymlink) -> Result<Statx, Errno> {
        /// As far as the kernel knows: nobody who serves a file system need be asked.
        const AS_KNOWN: AtFlags = AtFlags::from_bits_retain(0x4000);
        /// A number that no other mount ever gets (6.8); older kernels answer the usual one.
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let keep =
            if last == FinalSymlink::Keep { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        let mask =
            StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MNT_ID | UNIQUE;
        let empty = if let PathBase::Opened(_) = self.from {
            AtFlags::EMPTY_PATH
        } else {
            AtFlags::empty()
        };
        rustix::fs::statx(
            self.start(),
            &self.path,
            keep | empty | AtFlags::NO_AUTOMOUNT | AS_KNOWN,
            mask,
        )
    }

    fn open(&self, last: FinalSymlink) -> Result<OwnedFd, Errno> {
        if let PathBase::Opened(there) = &self.from {
            return rustix::io::fcntl_dupfd_cloexec(there, 3);
        }
        let keep = if last == FinalSymlink::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        rustix::fs::openat(
            self.start(),
            &self.path,
            keep | OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }
}

/// Whether a path ends in a name: `.` and `..` can be neither renamed nor removed anywhere.
fn is_name(path: &CStr) -> bool {
    let mut parts = path.to_bytes().rsplit(|byte| *byte == b'/');
    parts.find(|part| !part.is_empty()).is_some_and(|last| !matches!(last, b"." | b".."))
}

/// Whether a mount stands on it: such a name cannot be taken away.
pub(super) fn is_mounted(status: &Statx) -> bool {
    status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// Which mounts of the sandbox are read-only: that never changes.
#[derive(Default)]
pub(super) struct MountCache {
    known: HashMap<u64, bool>,
}

impl MountCache {
    fn is_read_only(
        &mut self,
        status: &Statx,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<bool, Errno> {
        if let Some(known) = self.known.get(&status.stx_mnt_id) {
            return Ok(*known);
        }
        let is = rustix::fs::fstatvfs(open()?)?.f_flag.contains(StatVfsMountFlags::RDONLY);
        self.known.insert(status.stx_mnt_id, is);
        Ok(is)
    }
}
