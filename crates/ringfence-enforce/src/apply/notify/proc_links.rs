//! Paths that lead to what a process has open: links of `/proc`, and what is offered to a shell.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::caller::{NotifyCaller, raised};
use crate::apply::{CloseOnExec, OFFERED};
use crate::seccomp::calls::Call;

const PASS: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// What the link `name` in `directory` leads to, as the caller would have got it.
///
/// A process can pass through its own also where it hides from us. A pipe is open only to who could
/// write to it anyway: the outputs of two commands of a session are two pipes, and what one of them
/// left running has no business in the other's.
pub(super) fn pass(
    caller: &NotifyCaller<'_>,
    directory: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<OwnedFd, Errno> {
    let open = || rustix::fs::openat(directory, name, PASS, Mode::empty());
    let is_own = is_of(caller, directory)?;
    let through =
        open().or_else(
            |error| if is_own && error == Errno::ACCESS { hidden(open) } else { Err(error) },
        )?;
    // Also of its own: it may have got that one from another, to read from it, or to look at it.
    if is_pipe(&through)? && !writes_to(caller, &rustix::fs::fstat(&through)?)? {
        return Err(Errno::ACCESS);
    }
    Ok(through)
}

/// Whether these are the caller's own descriptors.
fn is_of(caller: &NotifyCaller<'_>, directory: BorrowedFd<'_>) -> Result<bool, Errno> {
    let ids = caller.ids().ok_or(Errno::SRCH)?;
    let here = rustix::fs::fstat(directory)?;
    let (process, thread) = (&ids.leader_inside, &ids.thread_inside);
    let own = [format!("/proc/{process}"), format!("/proc/{process}/task/{thread}")];
    let mut places =
        own.iter().flat_map(|own| [own.clone(), format!("{own}/fd"), format!("{own}/ns")]);
    Ok(places.any(|place| rustix::fs::stat(place).is_ok_and(|there| is_same(&there, &here))))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// Whether it is a pipe without a name.
fn is_pipe(opened: &OwnedFd) -> Result<bool, Errno> {
    const PIPEFS_MAGIC: i64 = 0x5049_5045;
    Ok(rustix::fs::fstatfs(opened)?.f_type as i64 == PIPEFS_MAGIC)
}

/// Answers whether the caller has this file or pipe open for writing.
pub(super) fn writes_to(caller: &NotifyCaller<'_>, file: &Stat) -> Result<bool, Errno> {
    let found = || {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = rustix::fs::openat(
            caller.host_proc,
            format!("{}/fd", caller.pid()),
            flags,
            Mode::empty(),
        )?;
        for entry in Dir::read_from(&descriptors)? {
            let entry = entry?;
            let leads_there = rustix::fs::statat(&descriptors, entry.file_name(), AtFlags::empty())
                .is_ok_and(|there| is_same(&there, file));
            // The link's own mode says what it is open for.
            let is_to_write = || {
                let link =
                    rustix::fs::statat(&descriptors, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                link.is_ok_and(|link| Mode::from_raw_mode(link.st_mode).contains(Mode::WUSR))
            };
            if leads_there && is_to_write() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    // Of one that hides, nothing is found at first.
    if found() == Ok(true) { Ok(true) } else { hidden(found) }
}

/// With the right to look into processes that hide.
fn hidden<T>(look: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    raised(|| look().map_err(std::io::Error::from))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::ACCESS))
}

/// Which of the streams that are offered to a shell is wanted, if one is.
pub(super) fn takes(call: Call, caller: &NotifyCaller<'_>) -> Option<(u32, CloseOnExec)> {
    let (path, flags) = match call {
        Call::Open => (0, caller.int(1)),
        Call::Openat => (1, caller.int(2)),
        _ => return None,
    };
    let path = caller.text(path).ok()?;
    let number = path.to_bytes().strip_prefix(OFFERED.as_bytes())?;
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, CloseOnExec::of(flags)))
}
