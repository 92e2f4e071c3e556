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

use super::caller::Caller;
use super::place::{self, Last};
use crate::seccomp::calls::Call;

/// What a call wants to do to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
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
struct Form {
    directory: Option<usize>,
    /// Without a path, the descriptor itself is meant.
    path: Option<usize>,
    last: Last,
    change: Change,
}

/// A call that is going to fail by the policy.
pub(super) struct Foreseen {
    /// On what.
    pub(super) there: OwnedFd,
    pub(super) operation: Operation,
}

/// Whether `call` is going to fail by the policy.
pub(super) fn foresee(call: Call, caller: &Caller<'_>, mounts: &mut Mounts) -> Option<Foreseen> {
    let form = form(call, caller)?;
    let directory = form.directory.map_or(libc::AT_FDCWD, |number| caller.int(number));
    let path = form.path.map_or(Ok(c"".to_owned()), |number| caller.text(number));
    // What cannot be read or is not there fails by itself.
    path.and_then(|path| look(caller, mounts, (directory, &path), form)).ok()?
}

/// Whether a renaming or linking failed because what it names is mounted by itself.
pub(super) fn held(
    caller: &Caller<'_>,
    (directory, path): (i32, usize),
) -> Result<Option<Foreseen>, Errno> {
    let path = caller.text(path)?;
    if !is_name(&path) {
        return Ok(None);
    }
    let (way, status) = Way::find(caller, (directory, &path), Last::Keep)?;
    if !is_mounted(&status) {
        return Ok(None);
    }
    Ok(Some(Foreseen { there: way.open(Last::Keep)?, operation: Operation::Rename }))
}

fn look(
    caller: &Caller<'_>,
    mounts: &mut Mounts,
    (directory, path): (i32, &CStr),
    form: Form,
) -> Result<Option<Foreseen>, Errno> {
    if form.change == Change::Name && !is_name(path) {
        return Ok(None);
    }
    let last = if path.is_empty() { Last::Follow } else { form.last };
    let (way, status) = Way::find(caller, (directory, path), last)?;
    let kind = FileType::from_raw_mode(status.stx_mode.into());
    let fails = match form.change {
        Change::Name if is_mounted(&status) => true,
        // Devices and pipes are written wherever they stand.
        Change::Content if kind != FileType::RegularFile => false,
        Change::Inside if kind != FileType::Directory => false,
        _ => mounts.is_read_only(&status, || way.open(last))?,
    };
    if !fails {
        return Ok(None);
    }
    let there = way.open(last)?;
    caller.still_waits()?;
    let operation =
        if form.change == Change::Inside { Operation::Create } else { Operation::Write };
    Ok(Some(Foreseen { there, operation }))
}

fn form(call: Call, caller: &Caller<'_>) -> Option<Form> {
    use Change::{Attributes, Content, Name};
    use Last::{Follow, Keep};
    let at =
        |directory, path, last, change| Some(Form { directory, path: Some(path), last, change });
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
            Some(Form { directory: Some(0), path: None, last: Follow, change: Attributes })
        }
        Call::Unlink | Call::Rmdir => at(None, 0, Keep, Name),
        Call::Unlinkat => at(Some(0), 1, Keep, Name),
        _ => None,
    }
}

fn opened(directory: Option<usize>, path: usize, flags: i32) -> Option<Form> {
    if flags & libc::O_PATH != 0 {
        return None;
    }
    let last = if flags & libc::O_NOFOLLOW == 0 { Last::Follow } else { Last::Keep };
    let change =
        if flags & libc::O_TMPFILE == libc::O_TMPFILE { Change::Inside } else { Change::Content };
    Some(Form { directory, path: Some(path), last, change })
}

/// How what a caller names is reached from here.
struct Way<'a> {
    from: From<'a>,
    path: PathBuf,
}

enum From<'a> {
    /// By a path from the host's `/proc`.
    Proc(BorrowedFd<'a>),
    /// Open already; the path is empty.
    Opened(OwnedFd),
}

impl<'a> Way<'a> {
    /// Also says what stands there.
    fn find(
        caller: &Caller<'a>,
        (directory, text): (i32, &CStr),
        last: Last,
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
        let way = Way { from: From::Proc(caller.host_proc), path };
        match way.status(last) {
            // A name that is not there where the path begins leads through no link.
            Err(Errno::NOENT) if last == Last::Keep && !text.to_bytes().contains(&b'/') => {
                Err(Errno::NOENT)
            }
            // A process that hides from its own user, who we are; or a path that leads through a link to
            // the caller's own directory in `/proc`.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => {
                let there = if text.is_empty() {
                    caller.directory(directory)?
                } else {
                    place::open(caller, directory, text, last)?
                };
                let way = Way { from: From::Opened(there), path: PathBuf::new() };
                way.status(last).map(|status| (way, status))
            }
            status => status.map(|status| (way, status)),
        }
    }

    fn start(&self) -> BorrowedFd<'_> {
        match &self.from {
            From::Proc(proc) => *proc,
            From::Opened(directory) => directory.as_fd(),
        }
    }

    fn status(&self, last: Last) -> Result<Statx, Errno> {
        /// As far as the kernel knows: nobody who serves a file system need be asked.
        const AS_KNOWN: AtFlags = AtFlags::from_bits_retain(0x4000);
        /// A number that no other mount ever gets (6.8); older kernels answer the usual one.
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let keep = if last == Last::Keep { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
        let mask =
            StatxFlags::TYPE | StatxFlags::INO | StatxFlags::BTIME | StatxFlags::MNT_ID | UNIQUE;
        let empty =
            if let From::Opened(_) = self.from { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
        rustix::fs::statx(
            self.start(),
            &self.path,
            keep | empty | AtFlags::NO_AUTOMOUNT | AS_KNOWN,
            mask,
        )
    }

    fn open(&self, last: Last) -> Result<OwnedFd, Errno> {
        if let From::Opened(there) = &self.from {
            return rustix::io::fcntl_dupfd_cloexec(there, 3);
        }
        let keep = if last == Last::Keep { OFlags::NOFOLLOW } else { OFlags::empty() };
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
pub(super) struct Mounts {
    known: HashMap<u64, bool>,
}

impl Mounts {
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
