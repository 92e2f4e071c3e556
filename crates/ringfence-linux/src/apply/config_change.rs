//! A program in the sandbox renames a lock file onto a protected git config, and waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_api::Denial;
use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::parked::{self, ParkedNotification};

/// Prefix of the name of a config that is about to replace another. No program in a sandbox can
/// create, write, move or link a file of such a name.
pub(crate) const STAGED_CONFIG: &str = ".ringfence-config-";

/// A change as the notify handler reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConfigChangeInfo {
    pub(super) call: parked::NotificationInfo,
    pub(super) path: AbsPath,
    pub(super) denial: Denial,
}

/// A rename that waits for the launcher to replace the file. Dropping it fails the rename.
#[derive(Debug)]
pub(crate) struct ConfigChange {
    info: Box<ConfigChangeInfo>,
    directory: OwnedFd,
    lock: OwnedFd,
    waiting: ParkedNotification,
}

impl ConfigChange {
    /// From a report and its fds. Without them this process has no free fds: only this rename
    /// fails.
    pub(crate) fn new(
        info: Box<ConfigChangeInfo>,
        fds: Vec<OwnedFd>,
        waiting: Option<ParkedNotification>,
    ) -> Option<Self> {
        match (<[OwnedFd; 2]>::try_from(fds), waiting?) {
            (Ok([directory, lock]), waiting) => Some(Self { info, directory, lock, waiting }),
            (Err(_), waiting) => {
                waiting.fail(libc::EAGAIN);
                None
            }
        }
    }

    /// Path of the config, as the sandbox sees it.
    pub(crate) fn path(&self) -> &AbsPath {
        &self.info.path
    }

    /// Its directory, in the sandbox's mounts.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The lock file, open for reading. Programs may still write to it.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The denial to record if the config stays unchanged.
    pub(crate) fn denial(&self) -> &Denial {
        &self.info.denial
    }

    /// Reports success to the program; an error if it is gone.
    pub(crate) fn succeed(self) -> io::Result<()> {
        self.waiting.succeed()
    }
}
