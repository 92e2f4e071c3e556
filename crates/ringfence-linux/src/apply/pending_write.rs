//! A write that would be denied, and waits for the user's answer.

use std::io;
use std::os::fd::OwnedFd;

use ringfence_api::Denial;
use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::parked::{self, CloseOnExec, ParkedNotification};

/// The effect of the waiting syscall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WriteIntent {
    /// Opens a file for writing, and perhaps creates it.
    Open {
        /// Flags of the syscall, without those that do not concern the file.
        flags: u32,
        /// Mode of a new file, with the caller's umask applied.
        mode: u32,
        /// Close-on-exec flag of the new fd.
        on_execute: CloseOnExec,
    },
    /// Creates a directory.
    MakeDirectory {
        /// Mode of the directory, with the caller's umask applied.
        mode: u32,
    },
}

/// A pending write, as the notify handler reports it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PendingWriteInfo {
    pub(super) call: parked::NotificationInfo,
    pub(crate) denial: Denial,
    pub(super) path: AbsPath,
    pub(super) intent: WriteIntent,
}

/// A write that waits for an answer. Dropping it denies the write.
#[derive(Debug)]
pub(crate) struct PendingWrite {
    info: Box<PendingWriteInfo>,
    waiting: ParkedNotification,
}

impl PendingWrite {
    /// From a report and its waiting syscall.
    pub(crate) fn new(info: Box<PendingWriteInfo>, waiting: ParkedNotification) -> Self {
        Self { info, waiting }
    }

    /// The denial that is about to be reported.
    pub(crate) fn denial(&self) -> &Denial {
        &self.info.denial
    }

    /// The path, as the sandbox sees it. The host may have symlinks in it.
    pub(crate) fn path(&self) -> &AbsPath {
        &self.info.path
    }

    /// The effect of the write.
    pub(crate) fn intent(&self) -> WriteIntent {
        self.info.intent
    }

    /// True if the caller still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_waiting()
    }

    /// Lets a caller with a pending signal handle it.
    pub(crate) fn check_signals(&mut self) {
        self.waiting.check_signals();
    }

    /// Succeeds with this fd; an error if the caller did not get it.
    pub(crate) fn succeed_with_fd(self, descriptor: OwnedFd) -> io::Result<()> {
        let WriteIntent::Open { on_execute, .. } = self.info.intent else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.waiting.succeed_with_owned_fd(descriptor, on_execute)
    }

    /// Succeeds; an error if the caller did not get the answer.
    pub(crate) fn succeed(self) -> io::Result<()> {
        self.waiting.succeed()
    }
}
