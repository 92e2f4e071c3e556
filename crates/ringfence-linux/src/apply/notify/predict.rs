//! Syscalls that change or remove existing files: the kernel executes them, and the notify handler
//! reports those that the policy makes fail.
//!
//! Nothing is decided here. The mounts deny, so a path that another thread changes meanwhile
//! changes the report and never the effect; the kernel may continue such a syscall. The failure
//! must be predicted, since no component sees the result of a continued syscall.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::open::open_at;

use ringfence_api::Operation;
use ringfence_plan::seccomp::calls::Call;
use rustix::fs::{
    AtFlags, FileType, OFlags, StatVfsMountFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;

use super::caller::NotifyCaller;
use super::resolve::{self, FinalSymlink};

/// The effect of a syscall on an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileMutation {
    /// Writes the file.
    Content,
    /// Changes its metadata: mode, owner, times, attributes.
    Attributes,
    /// Removes its name.
    Name,
    /// Creates an unnamed file in it (`O_TMPFILE`).
    Inside,
}

/// The arguments that name the file.
#[derive(Debug, Clone, Copy)]
struct MutationArgs {
    directory: Option<usize>,
    /// `None` if the syscall takes the fd itself.
    path: Option<usize>,
    last: FinalSymlink,
    change: FileMutation,
}

/// A syscall that is going to fail because of the policy.
pub(super) struct PredictedDenial {
    /// The file it names.
    pub(super) there: OwnedFd,
    pub(super) operation: Operation,
}

/// Predicts if `call` is going to fail because of the policy.
pub(super) fn predict_denial(
    call: Call,
    caller: &NotifyCaller<'_>,
    mounts: &mut MountCache,
) -> Option<PredictedDenial> {
    let args = args_of_call(call, caller)?;
    let directory = args.directory.map_or(libc::AT_FDCWD, |number| caller.int_arg(number));
    let path = args.path.map_or(Ok(c"".to_owned()), |number| caller.string_arg(number));
    // The kernel itself reports an unreadable or absent path.
    path.and_then(|path| check_path(caller, mounts, (directory, &path), args)).ok()?
}

/// Checks if a rename or link failed because the name is a mount point.
pub(super) fn check_mount_point(
    caller: &NotifyCaller<'_>,
    (directory, path): (i32, usize),
) -> Result<Option<PredictedDenial>, Errno> {
    let path = caller.string_arg(path)?;
    if !ends_in_name(&path) {
        return Ok(None);
    }
    let (start_path, status) = PathStart::find(caller, (directory, &path), FinalSymlink::Keep)?;
    if !is_mounted(&status) {
        return Ok(None);
    }
    Ok(Some(PredictedDenial {
        there: start_path.open(FinalSymlink::Keep)?,
        operation: Operation::Rename,
    }))
}

fn check_path(
    caller: &NotifyCaller<'_>,
    mounts: &mut MountCache,
    (directory, path): (i32, &CStr),
    args: MutationArgs,
) -> Result<Option<PredictedDenial>, Errno> {
    if args.change == FileMutation::Name && !ends_in_name(path) {
        return Ok(None);
    }
    let last = if path.is_empty() { FinalSymlink::Follow } else { args.last };
    let (start_path, status) = PathStart::find(caller, (directory, path), last)?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    let fails = match args.change {
        FileMutation::Name if is_mounted(&status) => true,
        // Devices and FIFOs can be written on read-only mounts.
        FileMutation::Content if kind != FileType::RegularFile => false,
        FileMutation::Inside if kind != FileType::Directory => false,
        _ => mounts.is_read_only(&status, || start_path.open(last))?,
    };
    if !fails {
        return Ok(None);
    }
    let there = start_path.open(last)?;
    caller.ensure_waiting()?;
    let operation =
        if args.change == FileMutation::Inside { Operation::Create } else { Operation::Write };
    Ok(Some(PredictedDenial { there, operation }))
}

fn args_of_call(call: Call, caller: &NotifyCaller<'_>) -> Option<MutationArgs> {
    use FileMutation::{Attributes, Content, Name};
    use FinalSymlink::{Follow, Keep};
    let at = |directory, path, last, change| {
        Some(MutationArgs { directory, path: Some(path), last, change })
    };
    let flagged = |number: usize| {
        if caller.int_arg(number) & libc::AT_SYMLINK_NOFOLLOW == 0 { Follow } else { Keep }
    };
    match call {
        Call::Open => args_of_open(None, 0, caller.int_arg(1)),
        Call::Openat => args_of_open(Some(0), 1, caller.int_arg(2)),
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

fn args_of_open(directory: Option<usize>, path: usize, flags: i32) -> Option<MutationArgs> {
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

/// A path from which the notify handler reaches the file that the caller names.
struct PathStart<'a> {
    from: PathBase<'a>,
    path: PathBuf,
}

enum PathBase<'a> {
    /// Relative to the host's `/proc`.
    Proc(BorrowedFd<'a>),
    /// An opened file; the path is empty.
    Opened(OwnedFd),
}

impl<'a> PathStart<'a> {
    /// Also returns the file's status.
    fn find(
        caller: &NotifyCaller<'a>,
        (directory, text): (i32, &CStr),
        last: FinalSymlink,
    ) -> Result<(Self, Statx), Errno> {
        let written = Path::new(OsStr::from_bytes(text.to_bytes()));
        let own = PathBuf::from(caller.pid().to_string());
        // Through the caller's directory in `/proc`: saves opening the start of the path.
        let path = match (written.strip_prefix("/proc/self"), directory) {
            (Ok(rest), _) => own.join(rest),
            _ if written.is_absolute() => written.to_owned(),
            (_, libc::AT_FDCWD) => own.join("cwd").join(written),
            (_, number) if text.is_empty() => own.join(format!("fd/{number}")),
            (_, number) => own.join(format!("fd/{number}")).join(written),
        };
        let start_path = PathStart { from: PathBase::Proc(caller.host_proc), path };
        match start_path.status(last) {
            // A single name that is absent in the start directory involves no symlink.
            Err(Errno::NOENT) if last == FinalSymlink::Keep && !text.to_bytes().contains(&b'/') => {
                Err(Errno::NOENT)
            }
            // A process that is not dumpable for its own user, which is our user too; or a path
            // that leads through a symlink to the caller's own directory in `/proc`.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => {
                let there = if text.is_empty() {
                    caller.open_start(directory)?
                } else {
                    resolve::open(caller, directory, text, last)?
                };
                let start_path = PathStart { from: PathBase::Opened(there), path: PathBuf::new() };
                start_path.status(last).map(|status| (start_path, status))
            }
            status => status.map(|status| (start_path, status)),
        }
    }

    fn start(&self) -> BorrowedFd<'_> {
        match &self.from {
            PathBase::Proc(proc) => *proc,
            PathBase::Opened(directory) => directory.as_fd(),
        }
    }

    fn status(&self, last: FinalSymlink) -> Result<Statx, Errno> {
        /// `AT_STATX_DONT_SYNC`: do not query the server of a network or FUSE file system.
        const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);
        /// Unique mount id (Linux 6.8); older kernels return the reusable one.
        const UNIQUE_MOUNT_ID: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let keep =
            if last == FinalSymlink::Keep { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        let mask = StatxFlags::TYPE
            | StatxFlags::INO
            | StatxFlags::BTIME
            | StatxFlags::MNT_ID
            | UNIQUE_MOUNT_ID;
        let empty = if let PathBase::Opened(_) = self.from {
            AtFlags::EMPTY_PATH
        } else {
            AtFlags::empty()
        };
        rustix::fs::statx(
            self.start(),
            &self.path,
            keep | empty | AtFlags::NO_AUTOMOUNT | DONT_SYNC,
            mask,
        )
    }

    fn open(&self, last: FinalSymlink) -> Result<OwnedFd, Errno> {
        if let PathBase::Opened(there) = &self.from {
            return rustix::io::fcntl_dupfd_cloexec(there, 3);
        }
        let keep = if last == FinalSymlink::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
        open_at(self.start(), &self.path, keep | OFlags::PATH)
    }
}

/// True if a path ends in a name: `.` and `..` can be neither renamed nor removed.
fn ends_in_name(path: &CStr) -> bool {
    let mut parts = path.to_bytes().rsplit(|byte| *byte == b'/');
    parts.find(|part| !part.is_empty()).is_some_and(|last| !matches!(last, b"." | b".."))
}

/// True if it is a mount point: such a name cannot be removed.
pub(super) fn is_mounted(status: &Statx) -> bool {
    status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

/// Read-only state of the sandbox's mounts, which never changes.
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
