//! A program of the sandbox connects to somewhere that is not in it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::handle::SandboxEvent;
use super::parked::{self, CloseOnExec, ParkedNotification, SignalCheck};

/// What the usher tells of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ConnectInfo {
    pub(super) call: parked::NotificationInfo,
    pub(super) to: SocketAddr,
    pub(super) carries: SocketKind,
    pub(super) program: String,
    /// The descriptor that is to be connected, by its number.
    pub(super) number: u32,
    pub(super) on_execute: CloseOnExec,
    /// Whether events of that descriptor are waited for already.
    pub(super) is_watched: bool,
}

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketKind {
    /// A stream of bytes.
    Stream,
    /// Datagrams.
    Datagrams,
}

/// A program that connects, and waits. Dropped, it is refused.
#[derive(Debug)]
pub struct PendingConnect {
    told: Box<ConnectInfo>,
    socket: OwnedFd,
    waiting: ParkedNotification,
}

impl PendingConnect {
    /// The event that a report with this socket means.
    pub(super) fn event(
        told: Box<ConnectInfo>,
        socket: Option<OwnedFd>,
        listener: Option<&Arc<OwnedFd>>,
    ) -> SandboxEvent {
        let Some(listener) = listener else { return SandboxEvent::Closed };
        let waiting = ParkedNotification::of(told.call, listener.clone());
        match socket {
            Some(socket) => SandboxEvent::Connects(Self { told, socket, waiting }),
            // This process has no room for it: that fails one program's call, and no other.
            None => {
                waiting.fail(libc::EAGAIN);
                SandboxEvent::Nothing
            }
        }
    }

    /// Where to.
    pub fn to(&self) -> SocketAddr {
        self.told.to
    }

    /// By what kind of socket.
    pub fn carries(&self) -> SocketKind {
        self.told.carries
    }

    /// Who.
    pub fn pid(&self) -> u32 {
        self.waiting.pid()
    }

    /// Which program that is.
    pub fn program(&self) -> &str {
        &self.told.program
    }

    /// A copy of its socket, which is the sandbox's own.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether it waits for events of its socket, and would not hear of those of another one that
    /// took its place.
    pub fn is_watched(&self) -> bool {
        self.told.is_watched
    }

    /// Whether anybody still waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_waiting()
    }

    /// Lets whoever has a signal to handle go and handle it.
    pub fn mind_signals(&mut self) {
        self.waiting.mind_signals();
    }

    /// For somebody else to do that.
    pub fn minder(&self) -> SignalCheck {
        self.waiting.minder()
    }

    /// Its own socket is connected.
    pub fn done(self) -> io::Result<()> {
        self.waiting.done()
    }

    /// It was not connected, for this reason.
    pub fn fail(self, errno: i32) {
        self.waiting.fail(errno);
    }

    /// It has another socket in the place of its own now, and the call has ended so.
    pub fn replace(self, socket: &OwnedFd, ended: Result<(), i32>) -> io::Result<()> {
        self.waiting.replace(self.told.number, socket, self.told.on_execute, ended)
    }
}
