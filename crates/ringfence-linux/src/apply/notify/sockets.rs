//! Unix sockets by their paths.
//!
//! A command may connect to sockets that were bound inside the sandbox (every `bind` raises a
//! notification) and to those that the policy opens. The survey masks the host's sockets in opened
//! trees. A socket that the host binds there later, or that lies in a mount that is not walked, has
//! no mask; it is recognised because it is neither of the two.
//!
//! If `NetworkRules::needs_egress` is false, the kernel continues the syscall and reads the path
//! again: a thread that exchanges the path in between is not stopped here.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_api::{Denial, Operation};
use ringfence_plan::seccomp::calls::{Arch, Call};
use ringfence_policy::Grants;
use ringfence_sys::seccomp::Notification;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, getsockname};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of_directory};
use super::predict::{PredictedDenial, is_mounted};
use super::resolve::{self, FinalSymlink};

/// Seconds by which a file system's clock may lag.
const SKEW: i64 = 2;

/// Sockets that were bound inside the sandbox.
#[derive(Default)]
pub(super) struct Sockets {
    own: HashSet<SocketInode>,
}

/// A socket's file. The kernel reuses inodes of removed files; the birth time tells them apart.
#[derive(PartialEq, Eq, Hash)]
struct SocketInode {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
}

impl SocketInode {
    fn from_statx(status: &Statx) -> Self {
        let is_known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
        let born = is_known.then_some((status.stx_btime.tv_sec, status.stx_btime.tv_nsec));
        Self { device: (status.stx_dev_major, status.stx_dev_minor), inode: status.stx_ino, born }
    }
}

/// The time that new files get.
pub(super) fn now() -> Timespec {
    clock_gettime(ClockId::RealtimeCoarse)
}

impl Sockets {
    /// Notes a socket that was just bound at a path relative to our working directory. A file older
    /// than the start of the syscall (`began`) was put there by another process and is ignored.
    /// True if the socket has a path.
    pub(super) fn note(&mut self, call: Call, caller: &NotifyCaller<'_>, began: Timespec) -> bool {
        let number = match call {
            Call::Socketcall => caller
                .read_bytes(caller.raw_arg(1), 4)
                .map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]])),
            _ => Ok(caller.int_arg(0)),
        };
        let socket = number.and_then(|number| caller.copy_fd(number)).ok();
        let Some(status) = socket.and_then(|socket| bound(&socket)) else { return false };
        let identity = SocketInode::from_statx(&status);
        if identity.born.is_none_or(|(seconds, _)| seconds + SKEW >= began.tv_sec) {
            self.own.insert(identity);
        }
        true
    }

    fn has(&self, status: &Statx) -> bool {
        self.own.contains(&SocketInode::from_statx(status))
    }
}

impl CreationRules {
    /// Checks the socket that `connect` or `sendto` names by a path, and opens it with `O_PATH`;
    /// `None` if the syscall names no path. An error is the syscall's own: `ENOENT` if the path is
    /// absent.
    pub(super) fn unix_target(
        &mut self,
        call: Call,
        caller: &NotifyCaller<'_>,
    ) -> Result<Option<OwnedFd>, Errno> {
        let Some(path) = target_path(call, caller)? else { return Ok(None) };
        let there = resolve::open(caller, libc::AT_FDCWD, &path, FinalSymlink::Follow)?;
        let status = status_of(&there)?;
        if !is_socket(&status) {
            // Probably a mask. The kernel rejects everything that is not a socket.
            if is_mounted(&status) {
                let there = rustix::io::fcntl_dupfd_cloexec(&there, 3)?;
                self.report_predicted(
                    caller,
                    &PredictedDenial { there, operation: Operation::Connect },
                );
            }
        } else if !self.sockets.has(&status) && !is_opened(&status, &self.grants) {
            let path = path_of_directory(caller.host_proc, there.as_fd())?;
            self.refuse_since(caller, Operation::Connect, &path, Denial::HOST_SOCKET);
            return Err(Errno::CONNREFUSED);
        }
        Ok(Some(there))
    }
}

/// True if the syscall connects to a unix socket whose path is absent.
pub(super) fn is_connect_to_absent(caller: &NotifyCaller<'_>) -> bool {
    match target_path(Call::Connect, caller) {
        Ok(Some(path)) => {
            resolve::open(caller, libc::AT_FDCWD, &path, FinalSymlink::Follow).err()
                == Some(Errno::NOENT)
        }
        _ => false,
    }
}

/// The path in the syscall's address, if it is a unix socket address with a path.
fn target_path(call: Call, caller: &NotifyCaller<'_>) -> Result<Option<CString>, Errno> {
    const LONGEST: u32 = 128;
    let (address, length) = match call {
        Call::Connect => (caller.raw_arg(1), caller.raw_arg(2)),
        _ => (caller.raw_arg(4), caller.raw_arg(5)),
    };
    // The kernel takes the length as an `int`.
    let length = length as u32;
    if address == 0 || !(2..=LONGEST).contains(&length) {
        return Ok(None);
    }
    let address = caller.read_bytes(address, length as usize)?;
    let (family, path) = address.split_at(2);
    let path = CString::new(path.split(|byte| *byte == 0).next().unwrap_or_default())
        .map_err(|_| Errno::INVAL)?;
    Ok((family == (libc::AF_UNIX as u16).to_ne_bytes() && !path.is_empty()).then_some(path))
}

/// The status of the socket file at the address to which `socket` is bound.
fn bound(socket: &OwnedFd) -> Option<Statx> {
    let address = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let status = status(address.path()?.as_ref())?;
    is_socket(&status).then_some(status)
}

fn is_opened(status: &Statx, grants: &Grants) -> bool {
    let is_same = |other: Statx| SocketInode::from_statx(&other) == SocketInode::from_statx(status);
    grants.network.unix_sockets.iter().any(|path| self::status(path.as_path()).is_some_and(is_same))
}

const STATX_MASK: StatxFlags = StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::BTIME);

fn status(path: impl rustix::path::Arg) -> Option<Statx> {
    rustix::fs::statx(CWD, path, AtFlags::NO_AUTOMOUNT, STATX_MASK).ok()
}

fn status_of(opened: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(opened, "", AtFlags::EMPTY_PATH, STATX_MASK)
}

fn is_socket(status: &Statx) -> bool {
    FileType::from_raw_mode(status.stx_mode.into()) == FileType::Socket
}

/// Unpacks `socketcall`: `connect`, `sendto` and `sendmmsg` of 32-bit programs have their arguments
/// in memory.
pub(super) fn unpacked(caller: &NotifyCaller<'_>) -> Notification {
    const WORD: usize = 4;
    let packed = *caller.notification;
    if super::called(&packed) != Some(Call::Socketcall) {
        return packed;
    }
    let (call, count) = match caller.int_arg(0) {
        3 => (Call::Connect, 3),
        11 => (Call::Sendto, 6),
        20 => (Call::Sendmmsg, 4),
        _ => return packed,
    };
    // Memory that cannot be read gives EFAULT later.
    let (Some(number), Ok(words)) =
        (call.number(Arch::X86), caller.read_bytes(caller.raw_arg(1), count * WORD))
    else {
        return packed;
    };
    let mut arguments = [0; 6];
    for (argument, word) in arguments.iter_mut().zip(words.chunks_exact(WORD)) {
        *argument = word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    }
    let mut call = packed;
    (call.call, call.arguments) = (number as i32, arguments);
    call
}
