//! Paths that lead to open files of a process: links in `/proc`, and streams offered to a shell.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use ringfence_plan::seccomp::calls::Call;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::NotifyReply;
use super::caller::{NotifyCaller, with_ptrace};
use crate::apply::fd_passing::send_message_with_fds;
use crate::apply::parked::NotificationInfo;
use crate::apply::{CloseOnExec, OFFERED_STREAMS, SandboxMessage};
use crate::inode::inode_id;
use crate::open::open_at;

const PATH_FLAGS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens the target of the link `name` in `directory`, as the caller would.
///
/// A process can follow its own links even if it is not dumpable. A pipe is opened only for a
/// caller that already has it open for writing: the outputs of two commands of a session are two
/// pipes, and a background process of one command must not write to the other's.
pub(super) fn open_magic_link(
    caller: &NotifyCaller<'_>,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat(directory, name, PATH_FLAGS, Mode::empty());
    let is_own = is_own_proc_dir(caller, directory)?;
    let through = open().or_else(|error| {
        if is_own && error == Errno::ACCESS { open_with_ptrace(open) } else { Err(error) }
    })?;
    // Also for its own links: the caller may have received the pipe from another process only to
    // read it.
    if is_pipe(&through)? && !writes_to(caller, &rustix::fs::fstat(&through)?)? {
        return Err(Errno::ACCESS);
    }
    Ok(through)
}

/// True if `directory` is the caller's own `/proc/PID`, `fd` or `ns` directory.
fn is_own_proc_dir(caller: &NotifyCaller<'_>, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let ids = caller.ids().ok_or(Errno::SRCH)?;
    let here = rustix::fs::fstat(directory)?;
    let (process, thread) = (&ids.leader_inside, &ids.thread_inside);
    let own = [format!("/proc/{process}"), format!("/proc/{process}/task/{thread}")];
    let mut places =
        own.iter().flat_map(|own| [own.clone(), format!("{own}/fd"), format!("{own}/ns")]);
    Ok(places.any(|place| rustix::fs::stat(place).is_ok_and(|there| is_same(&there, &here))))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    inode_id(one) == inode_id(other)
}

/// True if it is an anonymous pipe.
fn is_pipe(opened: &OwnedFd) -> Result<bool, Errno> {
    const PIPEFS_MAGIC: i64 = 0x5049_5045;
    Ok(rustix::fs::fstatfs(opened)?.f_type as i64 == PIPEFS_MAGIC)
}

/// True if the caller has this file or pipe open for writing.
pub(super) fn writes_to(caller: &NotifyCaller<'_>, file: &Stat) -> Result<bool, Errno> {
    finds_fd(caller, file, |mode| mode.contains(Mode::WUSR))
}

/// True if the caller has this file or pipe open, with the access `mode`. An fd that only names a
/// file has none.
pub(super) fn has_open(caller: &NotifyCaller<'_>, file: &Stat, mode: Mode) -> Result<bool, Errno> {
    finds_fd(caller, file, |own| own.contains(mode))
}

/// True if an fd of the caller leads to `file` and the mode of its link, which is the access mode of
/// the fd, is as wanted.
fn finds_fd(
    caller: &NotifyCaller<'_>,
    file: &Stat,
    is_wanted: impl Fn(Mode) -> bool,
) -> Result<bool, Errno> {
    let found = || {
        let descriptors = open_at(
            caller.host_proc,
            format!("{}/fd", caller.pid()),
            OFlags::RDONLY | OFlags::DIRECTORY,
        )?;
        for entry in Dir::read_from(&descriptors)? {
            let entry = entry?;
            let leads_there = rustix::fs::statat(&descriptors, entry.file_name(), AtFlags::empty())
                .is_ok_and(|there| is_same(&there, file));
            let has_mode = || {
                let link =
                    rustix::fs::statat(&descriptors, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                link.is_ok_and(|link| is_wanted(Mode::from_raw_mode(link.st_mode)))
            };
            if leads_there && has_mode() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // For a caller that is not dumpable the first search finds nothing.
    if found() == Ok(true) { Ok(true) } else { open_with_ptrace(found) }
}

/// Runs `look` with CAP_SYS_PTRACE raised, for callers that are not dumpable.
fn open_with_ptrace<T>(look: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    with_ptrace(|| look().map_err(std::io::Error::from))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))
}

/// The number of the offered stream that the syscall opens, if it opens one.
pub(super) fn offered_stream(call: Call, caller: &NotifyCaller<'_>) -> Option<(u32, CloseOnExec)> {
    let (path, flags) = match call {
        Call::Open => (0, caller.int_arg(1)),
        Call::Openat => (1, caller.int_arg(2)),
        _ => return None,
    };
    let path = caller.string_arg(path).ok()?;
    let number = path.to_bytes().strip_prefix(OFFERED_STREAMS.as_bytes())?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, CloseOnExec::from_flags(flags)))
}

/// Asks the launcher for an offered stream; the launcher replies to the caller.
pub(super) fn request_stream(
    caller: &NotifyCaller<'_>,
    number: u32,
    on_execute: CloseOnExec,
    control: &OwnedFd,
) -> NotifyReply {
    let (id, pid) = (caller.notification.id, caller.notification.pid);
    let info = NotificationInfo { id, pid, errno: libc::ENOENT };
    let message = SandboxMessage::StreamRequested(number, on_execute, info);
    if send_message_with_fds(control, &message, &[]) {
        NotifyReply::Later
    } else {
        NotifyReply::Error(libc::ENOENT)
    }
}
