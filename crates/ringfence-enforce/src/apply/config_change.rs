//! A program of the sandbox renames a lock file onto a protected git config, and waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringfence_api::Denial;
use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::handle::SandboxEvent;
use super::parked::{self, ParkedNotification};

/// Beginning of the name of a config that is about to take the place of another. No program of a
/// sandbox can make, write, move or link a file of such a name.
pub const STAGED_CONFIG: &str = ".ringfence-config-";

/// A change as the notify handler reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) call: parked::NotificationInfo,
    pub(super) path: AbsPath,
    pub(super) denial: Denial,
}

/// A rename that waits for the trusted side to replace the file. Dropped, it is refused.
#[derive(Debug)]
pub struct ConfigChange {
    told: Box<Told>,
    directory: OwnedFd,
    lock: OwnedFd,
    waiting: ParkedNotification,
}

impl ConfigChange {
    /// The event that a report with these descriptors means.
    pub(super) fn event(
        told: Box<Told>,
        descriptors: Vec<OwnedFd>,
        listener: Option<&Arc<OwnedFd>>,
    ) -> SandboxEvent {
        let Some(listener) = listener else { return SandboxEvent::Closed };
        let waiting = ParkedNotification::of(told.call, listener.clone());
        match <[OwnedFd; 2]>::try_from(descriptors) {
            Ok([directory, lock]) => {
                SandboxEvent::ReplacesConfig(Self { told, directory, lock, waiting })
            }
            // This process has no room for them.
            Err(_) => {
                waiting.fail(libc::EAGAIN);
                SandboxEvent::Nothing
            }
        }
    }

    /// Path of the config, as the sandbox sees it.
    pub fn path(&self) -> &AbsPath {
        &self.told.path
    }

    /// Its directory, in the sandbox's mounts.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The lock file, open to be read. Programs may still write to it.
    pub fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The denial to record if the config stays as it is.
    pub fn denial(&self) -> &Denial {
        &self.told.denial
    }

    /// Answers that the rename has succeeded; an error if its caller is gone.
    pub fn done(self) -> io::Result<()> {
        self.waiting.done()
    }
}
