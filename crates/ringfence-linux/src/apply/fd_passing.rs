//! Messages and fds between ringfence's processes, by `SCM_RIGHTS`.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_plan::seccomp::FD_PASSING_FLAGS;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;

use super::{CONTROL_FD, SandboxMessage};

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
    descriptors: &[BorrowedFd<'_>],
) -> bool {
    send_with_fds(control, report, descriptors).is_ok()
}

/// Sends a serialised value with fds.
pub(super) fn send_with_fds<T: Serialize>(
    to: impl AsFd,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let bytes = postcard::to_stdvec(message).map_err(|_| std::io::ErrorKind::InvalidData)?;
    sendmsg(to, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
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

/// This flag is known to the seccomp filter: init sends the listener itself in this way, when no
/// process serves notifications yet.
const FDS_FLAGS: SendFlags = SendFlags::from_bits_retain(FD_PASSING_FLAGS);

/// Sends fds.
pub(super) fn send_fds<const COUNT: usize>(
    to: &OwnedFd,
    descriptors: [BorrowedFd<'_>; COUNT],
) -> rustix::io::Result<()> {
    send_fds_with_word(to, b'd', &descriptors)
}

/// Sends fds with a one-byte word.
pub(super) fn send_fds_with_word(
    to: &OwnedFd,
    word: u8,
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(to, &[IoSlice::new(&[word])], &mut ancillary, FDS_FLAGS).map(drop)
}

/// Receives fds; `None` if their sender is gone.
pub(super) fn receive_fds<const COUNT: usize>(socket: &OwnedFd) -> Option<[OwnedFd; COUNT]> {
    receive_all_fds(socket)?.try_into().ok()
}

/// Receives any number of fds.
pub(super) fn receive_all_fds(socket: &OwnedFd) -> Option<Vec<OwnedFd>> {
    receive_fds_with_word(socket).map(|(_, descriptors)| descriptors)
}

/// Receives fds with the one-byte word.
pub(super) fn receive_fds_with_word(socket: &OwnedFd) -> Option<(u8, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(5))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .ok()?;
    let descriptors = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors.collect()),
        _ => None,
    })?;
    Some((byte[0], descriptors))
}
