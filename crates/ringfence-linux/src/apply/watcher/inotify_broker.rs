//! The inotify broker: one process that watches directories for the watchers of many sandboxes.
//!
//! The kernel grants a user few inotify instances (128 by default), and editors need some as well.
//! So the first eight sandboxes of a program have one each and stay independent; all further ones
//! share the broker's instance, and the watches they have in common. It is a process, not a thread:
//! the watch continues while the program is stopped.

mod server;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, Weak};

use crate::apply::helper_process::{message_sockets, start_helper};
use crate::locks::lock;

use ringfence_sys::process::{self, SpawnIsolation};
use serde::{Deserialize, Serialize};

use super::super::fd_passing::send_fds;
use super::super::handle::{LaunchError, helper_error};
use super::inotify::WatchEvent;
pub(in crate::apply) use server::main;

/// The argument that starts our binary as the broker.
pub(in crate::apply) const BROKER: &str = "--inotify-broker";

/// Number of watchers per program that have their own inotify instance.
const OWN_INSTANCES: usize = 8;

/// The source of a watcher's events, as the launcher sees it.
#[derive(Debug)]
pub(super) enum InotifySource {
    Own,
    /// The broker, which lives as long as a watcher needs it.
    Shared(#[expect(dead_code, reason = "kept for as long as it is needed")] Arc<InotifyBroker>),
}

/// A broker, as the launcher sees it. Dropping it ends it.
#[derive(Debug)]
pub(super) struct InotifyBroker {
    socket: Option<OwnedFd>,
    pid: i32,
}

/// The inotify use of this program's watchers.
struct BrokerRegistry {
    /// Number of watchers with their own instance.
    own: usize,
    broker: Weak<InotifyBroker>,
}

static REGISTRY: Mutex<BrokerRegistry> = Mutex::new(BrokerRegistry { own: 0, broker: Weak::new() });

impl InotifySource {
    /// For one more watcher. Also returns its end of the broker connection, if it shares the
    /// broker.
    pub(super) fn new() -> Result<(Self, Option<OwnedFd>), LaunchError> {
        let mut registry = lock(&REGISTRY);
        if registry.own < OWN_INSTANCES {
            registry.own += 1;
            return Ok((InotifySource::Own, None));
        }
        let (server_end, client_end) = message_sockets().map_err(helper_error("socketpair"))?;
        let is_connected = |broker: &InotifyBroker| {
            broker
                .socket
                .as_ref()
                .is_some_and(|socket| send_fds(socket, [server_end.as_fd()]).is_ok())
        };
        let broker = match registry.broker.upgrade().filter(|broker| is_connected(broker)) {
            Some(broker) => broker,
            // The first broker, or a replacement for one that was killed.
            None => {
                let (socket, pid) = start_helper(BROKER, SpawnIsolation::SameSession, &[])?;
                let broker = Arc::new(InotifyBroker { socket: Some(socket), pid });
                if !is_connected(&broker) {
                    return Err(LaunchError::Silent);
                }
                registry.broker = Arc::downgrade(&broker);
                broker
            }
        };
        Ok((InotifySource::Shared(broker), Some(client_end)))
    }
}

impl Drop for InotifySource {
    fn drop(&mut self) {
        if matches!(self, InotifySource::Own) {
            lock(&REGISTRY).own -= 1;
        }
    }
}

impl Drop for InotifyBroker {
    fn drop(&mut self) {
        // The broker ends by itself when this is closed.
        self.socket = None;
        process::await_end(self.pid);
    }
}

/// A message from the broker to a watcher. A watcher sends the broker directory fds to watch, and
/// watch descriptors to remove.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum BrokerMessage {
    /// The watch descriptor of the directory that was sent last, or the errno.
    Watched(Result<i32, i32>),
    /// Events in watched directories.
    Events(Vec<BrokerEvent>),
}

/// A [`WatchEvent`], in a form that can be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum BrokerEvent {
    Appeared(i32, Vec<u8>, AppearedKind),
    Unwatched(i32),
    Overrun,
}

/// Type of a name that appeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AppearedKind {
    Directory,
    Other,
}

impl BrokerEvent {
    fn from_watch_event(event: &WatchEvent<'_>) -> Self {
        match event {
            WatchEvent::Appeared { number, name, is_directory } => BrokerEvent::Appeared(
                *number,
                name.as_bytes().to_vec(),
                if *is_directory { AppearedKind::Directory } else { AppearedKind::Other },
            ),
            WatchEvent::Unwatched(number) => BrokerEvent::Unwatched(*number),
            WatchEvent::Overrun => BrokerEvent::Overrun,
        }
    }

    pub(super) fn as_watch_event(&self) -> WatchEvent<'_> {
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

/// Maximum length of a message.
pub(super) const MAX_MESSAGE: usize = 8 * 1024;
