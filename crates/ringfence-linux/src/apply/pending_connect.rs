//! A program in the sandbox connects to an address outside it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};

use super::parked::{self, CloseOnExec, ParkedNotification, SignalCheck};

/// A connect, as the notify handler reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConnectInfo {
    pub(super) call: parked::NotificationInfo,
    pub(super) to: SocketAddr,
    pub(super) carries: SocketKind,
    pub(super) program: String,
    /// The number of the fd to be connected.
    pub(super) number: u32,
    pub(super) on_execute: CloseOnExec,
    /// True if an epoll instance already watches that fd.
    pub(super) is_watched: bool,
    /// True if the sandbox's own loopback is the destination, and nothing in the sandbox listens
    /// at that port of it.
    pub(super) is_unserved: bool,
}

/// The kind of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SocketKind {
    /// A byte stream.
    Stream,
    /// Datagrams, or a raw socket.
    NotStream,
}

/// A program that connects, and waits. Dropping it denies the connect.
#[derive(Debug)]
pub(crate) struct PendingConnect {
    info: Box<ConnectInfo>,
    socket: OwnedFd,
    waiting: ParkedNotification,
}

impl PendingConnect {
    /// From a report and its socket. Without a socket this process has no free fd: only this
    /// syscall fails.
    pub(crate) fn new(
        info: Box<ConnectInfo>,
        socket: Option<OwnedFd>,
        waiting: Option<ParkedNotification>,
    ) -> Option<Self> {
        match (socket, waiting?) {
            (Some(socket), waiting) => Some(Self { info, socket, waiting }),
            (None, waiting) => {
                waiting.fail(libc::EAGAIN);
                None
            }
        }
    }

    /// The destination.
    pub(crate) fn destination(&self) -> SocketAddr {
        self.info.to
    }

    /// True if nothing in the sandbox listened at that port of its loopback.
    pub(crate) fn is_unserved(&self) -> bool {
        self.info.is_unserved
    }

    /// The kind of socket.
    pub(crate) fn socket_kind(&self) -> SocketKind {
        self.info.carries
    }

    /// The connecting process.
    pub(crate) fn pid(&self) -> u32 {
        self.waiting.pid()
    }

    /// Its program.
    pub(crate) fn program(&self) -> &str {
        &self.info.program
    }

    /// A copy of its socket, which belongs to the sandbox's network.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// True if an epoll instance watches the socket, and would miss the events of a replacement.
    pub(crate) fn is_watched(&self) -> bool {
        self.info.is_watched
    }

    /// True if the caller still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_waiting()
    }

    /// Lets a caller with a pending signal handle it.
    pub(crate) fn check_signals(&mut self) {
        self.waiting.check_signals();
    }

    /// A handle for another thread that checks signals.
    pub(crate) fn signal_check(&self) -> SignalCheck {
        self.waiting.signal_check()
    }

    /// Succeeds: its own socket is connected.
    pub(crate) fn succeed(self) -> io::Result<()> {
        self.waiting.succeed()
    }

    /// Fails with this errno.
    pub(crate) fn fail(self, errno: i32) {
        self.waiting.fail(errno);
    }

    /// Replaces the caller's socket and ends the syscall with `ended`.
    pub(crate) fn replace(self, socket: &OwnedFd, ended: Result<(), i32>) -> io::Result<()> {
        self.waiting.replace(self.info.number, socket, self.info.on_execute, ended)
    }
}
