//! Messages and fds between ringfence's processes, by `SCM_RIGHTS`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_plan::seccomp::FD_PASSING_FLAGS;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;

use super::{CONTROL_FD, SandboxMessage};

/// Maximum number of fds in one message.
const MAX_FDS: usize = 16;

/// These flags are known to the seccomp filter: init sends the listener itself in this way, when no
/// process serves notifications yet.
const FDS_FLAGS: SendFlags = SendFlags::from_bits_retain(FD_PASSING_FLAGS);

/// Sends bytes with fds.
pub(super) fn send_bytes_with_fds(
    to: impl AsFd,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    sendmsg(to, &[IoSlice::new(bytes)], &mut ancillary, FDS_FLAGS).map(drop)
}

/// Receives bytes and fds. Returns the number of bytes, which is 0 if the sender is gone.
pub(super) fn receive_bytes_with_fds(
    from: impl AsFd,
    buffer: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let length = recvmsg(from, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?.bytes;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            fds.extend(sent);
        }
    }
    Ok((length, fds))
}

/// Sends a message; a launcher that is gone is ignored.
pub(super) fn send_message(control: impl AsFd, report: &SandboxMessage) {
    if let Ok(bytes) = postcard::to_stdvec(report) {
        let _ = rustix::net::send(control, &bytes, SendFlags::NOSIGNAL);
    }
}

/// Sends a message with fds. True if they could be sent.
pub(super) fn send_message_with_fds(
    control: impl AsFd,
    report: &SandboxMessage,
    fds: &[BorrowedFd<'_>],
) -> bool {
    send_with_fds(control, report, fds).is_ok()
}

/// Sends a serialised value with fds.
pub(super) fn send_with_fds<T: Serialize>(
    to: impl AsFd,
    message: &T,
    fds: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(|_| std::io::ErrorKind::InvalidData)?;
    Ok(send_bytes_with_fds(to, &bytes, fds)?)
}

/// Sends this process's log lines to the launcher, as `message` wraps them. Does nothing while
/// logging is off.
///
/// A line that the launcher is too slow to read is dropped, so that logging never stops a sandbox.
pub(super) fn relay_log<T: Serialize + 'static>(control: &OwnedFd, message: fn(Vec<u8>) -> T) {
    if !ringfence_log::is_on() {
        return;
    }
    // Clear of the fd numbers that a helper process uses.
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(control, CONTROL_FD + 1) else { return };
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    ringfence_log::relay(move |line| {
        postcard::to_stdvec(&message(line.to_vec()))
            .is_ok_and(|bytes| rustix::net::send(&socket, &bytes, flags).is_ok())
    });
}

/// True if the other end of a socket is closed.
pub(super) fn is_peer_gone(socket: impl AsFd) -> bool {
    let mut ends = [PollFd::new(&socket, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok()
        && ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Sends fds.
pub(super) fn send_fds<'a>(
    to: &OwnedFd,
    fds: impl IntoIterator<Item = BorrowedFd<'a>>,
) -> rustix::io::Result<()> {
    send_bytes_with_fds(to, b"d", &fds.into_iter().collect::<Vec<_>>())
}

/// Receives fds; `None` if their sender is gone.
pub(super) fn receive_fds<const COUNT: usize>(socket: &OwnedFd) -> Option<[OwnedFd; COUNT]> {
    receive_all_fds(socket)?.try_into().ok()
}

/// Receives any number of fds.
pub(super) fn receive_all_fds(socket: &OwnedFd) -> Option<Vec<OwnedFd>> {
    receive_bytes_with_fds(socket, &mut [0], RecvFlags::empty()).ok().map(|(_, fds)| fds)
}
