//! The relay: one process that watches directories for the lookouts of many sandboxes.
//!
//! The kernel lets a person have few inotify instances, 128 unless that is raised, and editors
//! need them as well. So the first sandboxes of a program have one each, and nothing to do
//! with each other; all further ones share the relay's, and the watches that they have in
//! common. It is no thread of the program's: a program that is stopped is looked out for.

mod server;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ringfence_sys::process;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use serde::{Deserialize, Serialize};

use super::super::handle::{LaunchError, helper};
use super::super::helper::hand_over;
use super::inotify::WatchEvent;
pub(in crate::apply) use server::main;

/// The argument that makes our binary the relay.
pub(in crate::apply) const RELAY: &str = "--relay";

/// So many lookouts of a program have an instance of their own.
const OWN: usize = 8;

/// How a lookout gets to know what happens, as its caller sees it.
#[derive(Debug)]
pub(super) enum InotifySource {
    Own,
    /// By the relay, which lives as long as somebody needs it.
    Shared(#[expect(dead_code, reason = "kept for as long as it is needed")] Arc<InotifyBroker>),
}

/// A relay, as its caller sees it. Dropping it ends it.
#[derive(Debug)]
pub(super) struct InotifyBroker {
    socket: Option<OwnedFd>,
    pid: i32,
}

/// What the lookouts of this program have.
struct BrokerRegistry {
    /// How many have their own.
    own: usize,
    relay: Weak<InotifyBroker>,
}

static HERE: Mutex<BrokerRegistry> = Mutex::new(BrokerRegistry { own: 0, relay: Weak::new() });

impl InotifySource {
    /// For one lookout more, with the end that it is to have if it does not watch by itself.
    pub(super) fn new() -> Result<(Self, Option<OwnedFd>), LaunchError> {
        let mut here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
        if here.own < OWN {
            here.own += 1;
            return Ok((InotifySource::Own, None));
        }
        let (seat, end) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(helper("socketpair"))?;
        let seated = |relay: &InotifyBroker| {
            relay.socket.as_ref().is_some_and(|socket| hand_over(socket, [seat.as_fd()]).is_ok())
        };
        let relay = match here.relay.upgrade().filter(|relay| seated(relay)) {
            Some(relay) => relay,
            // The first, or in the place of one that was killed.
            None => {
                let (socket, pid) = super::spawn(RELAY)?;
                let relay = Arc::new(InotifyBroker { socket: Some(socket), pid });
                if !seated(&relay) {
                    return Err(LaunchError::Silent);
                }
                here.relay = Arc::downgrade(&relay);
                relay
            }
        };
        Ok((InotifySource::Shared(relay), Some(end)))
    }
}

impl Drop for InotifySource {
    fn drop(&mut self) {
        if matches!(self, InotifySource::Own) {
            HERE.lock().unwrap_or_else(PoisonError::into_inner).own -= 1;
        }
    }
}

impl Drop for InotifyBroker {
    fn drop(&mut self) {
        // It ends by itself when this is closed.
        self.socket = None;
        process::await_end(self.pid);
    }
}

/// From the relay to a lookout. A lookout sends directories, which are to be watched, and
/// numbers of those that are not any more.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum BrokerMessage {
    /// The number of the directory that was sent last, or why it is not watched.
    Watched(Result<i32, i32>),
    /// What has happened.
    Happened(Vec<BrokerEvent>),
}

/// [`Happened`], to be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum BrokerEvent {
    Appeared(i32, Vec<u8>, AppearedKind),
    Unwatched(i32),
    Overrun,
}

/// Of a name that appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AppearedKind {
    Directory,
    Other,
}

impl BrokerEvent {
    fn of(happened: &WatchEvent<'_>) -> Self {
        match happened {
            WatchEvent::Appeared { number, name, is_directory } => BrokerEvent::Appeared(
                *number,
                name.as_bytes().to_vec(),
                if *is_directory { AppearedKind::Directory } else { AppearedKind::Other },
            ),
            WatchEvent::Unwatched(number) => BrokerEvent::Unwatched(*number),
            WatchEvent::Overrun => BrokerEvent::Overrun,
        }
    }

    pub(super) fn happened(&self) -> WatchEvent<'_> {
        match self {
            BrokerEvent::Appeared(number, name, kind) => WatchEvent::Appeared {
                number: *number,
                name: OsStr::from_bytes(name),
                is_directory: *kind == AppearedKind::Directory,
            },
            BrokerEvent::Unwatched(number) => WatchEvent::Unwatched(*number),
            BrokerEvent::Overrun => WatchEvent::Overrun,
        }
    }
}

/// No message is longer.
pub(super) const LONGEST: usize = 8 * 1024;
