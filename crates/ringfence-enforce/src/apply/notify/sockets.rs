//! Unix sockets by their paths.
//!
//! A command may connect to sockets that were bound inside, all of which come by here, and to those
//! that the policy opens. The survey covers the host's sockets in opened trees; one that the host
//! binds there later, or mounts in a tree that is not walked, has no cover, and is known by being
//! neither.
//!
//! Where no host is listed the call goes on to the kernel, which reads the path anew: a thread that
//! exchanges it in between is not stopped by this.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use ringfence_api::{Denial, Operation};
use ringfence_policy::Grants;
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, getsockname};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::caller::NotifyCaller;
use super::creation_rules::{CreationRules, path_of_directory};
use super::predict::{PredictedDenial, is_mounted};
use super::resolve::{self, FinalSymlink};
use crate::seccomp::calls::Call;

/// Seconds by which a file system's clock may be behind.
const SKEW: i64 = 2;

/// Sockets that were bound inside.
#[derive(Default)]
pub(super) struct Sockets {
    own: HashSet<Identity>,
}

/// A socket's file. The kernel gives numbers of removed files to new ones, born later.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    born: Option<(i64, u32)>,
}

impl Identity {
    fn of(status: &Statx) -> Self {
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
    /// Notes a socket that was bound just now, at a path from our working directory. Something
    /// older than the call `began` was put in its place meanwhile. Answers whether it has a path.
    pub(super) fn note(&mut self, call: Call, caller: &NotifyCaller<'_>, began: Timespec) -> bool {
        let number = match call {
            Call::Socketcall => caller
                .bytes(caller.raw(1), 4)
                .map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]])),
            _ => Ok(caller.int(0)),
        };
        let socket = number.and_then(|number| caller.descriptor(number)).ok();
        let Some(status) = socket.and_then(|socket| bound(&socket)) else { return false };
        let identity = Identity::of(&status);
        if identity.born.is_none_or(|(seconds, _)| seconds + SKEW >= began.tv_sec) {
            self.own.insert(identity);
        }
        true
    }

    fn has(&self, status: &Statx) -> bool {
        self.own.contains(&Identity::of(status))
    }
}

impl CreationRules {
    /// Judges the socket that `connect` or `sendto` names by a path, and opens it to be looked at;
    /// `None` if the call names no path. An error is the call's own: `ENOENT` if nothing is there.
    pub(super) fn unix_target(
        &mut self,
        call: Call,
        caller: &NotifyCaller<'_>,
    ) -> Result<Option<OwnedFd>, Errno> {
        let Some(path) = target_path(call, caller)? else { return Ok(None) };
        let there = resolve::open(caller, libc::AT_FDCWD, &path, FinalSymlink::Follow)?;
        let status = status_of(&there)?;
        if !is_socket(&status) {
            // A cover, as it seems. The kernel refuses all that is no socket.
            if is_mounted(&status) {
                let there = rustix::io::fcntl_dupfd_cloexec(&there, 3)?;
                self.foreseen(caller, &PredictedDenial { there, operation: Operation::Connect });
            }
        } else if !self.sockets.has(&status) && !is_opened(&status, &self.grants) {
            let path = path_of_directory(caller.host_proc, there.as_fd())?;
            self.refuse_since(caller, Operation::Connect, &path, Denial::HOST_SOCKET);
            return Err(Errno::CONNREFUSED);
        }
        Ok(Some(there))
    }
}

/// Whether a connection is to a unix socket, and nothing stands at its path.
pub(super) fn is_vain_connect(caller: &NotifyCaller<'_>) -> bool {
    match target_path(Call::Connect, caller) {
        Ok(Some(path)) => {
            resolve::open(caller, libc::AT_FDCWD, &path, FinalSymlink::Follow).err()
                == Some(Errno::NOENT)
        }
        _ => false,
    }
}

/// The path in the address of a call, if that is one of a unix socket and has one.
fn target_path(call: Call, caller: &NotifyCaller<'_>) -> Result<Option<CString>, Errno> {
    const LONGEST: u32 = 128;
    let (address, length) = match call {
        Call::Connect => (caller.raw(1), caller.raw(2)),
        _ => (caller.raw(4), caller.raw(5)),
    };
    // As the kernel takes it: an `int`.
    let length = length as u32;
    if address == 0 || !(2..=LONGEST).contains(&length) {
        return Ok(None);
    }
    let address = caller.bytes(address, length as usize)?;
    let (family, path) = address.split_at(2);
    let path = CString::new(path.split(|byte| *byte == 0).next().unwrap_or_default())
        .map_err(|_| Errno::INVAL)?;
    Ok((family == (libc::AF_UNIX as u16).to_ne_bytes() && !path.is_empty()).then_some(path))
}

/// What stands where a socket was bound.
fn bound(socket: &OwnedFd) -> Option<Statx> {
    let address = SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?;
    let status = status(address.path()?.as_ref())?;
    is_socket(&status).then_some(status)
}

fn is_opened(status: &Statx, grants: &Grants) -> bool {
    let is_same = |other: Statx| Identity::of(&other) == Identity::of(status);
    grants.network.unix_sockets.iter().any(|path| self::status(path.as_path()).is_some_and(is_same))
}

const WANTED: StatxFlags = StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::BTIME);

fn status(path: impl rustix::path::Arg) -> Option<Statx> {
    rustix::fs::statx(CWD, path, AtFlags::NO_AUTOMOUNT, WANTED).ok()
}

fn status_of(opened: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(opened, "", AtFlags::EMPTY_PATH, WANTED)
}

fn is_socket(status: &Statx) -> bool {
    FileType::from_raw_mode(status.stx_mode.into()) == FileType::Socket
}
