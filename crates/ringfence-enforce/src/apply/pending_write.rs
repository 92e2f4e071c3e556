//! A call that would be refused, and waits for what somebody says to it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_api::Denial;
use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

use super::parked::{self, CloseOnExec, ParkedNotification};

/// What a call that waits would have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteIntent {
    /// Open a file to write, and perhaps make it.
    Open {
        /// As they are written in the call, but for those that say nothing about the file.
        flags: u32,
        /// What a new file is to have, with the caller's mask taken off.
        mode: u32,
        /// Whether the next program gets it as well.
        on_execute: CloseOnExec,
    },
    /// Make a directory.
    MakeDirectory {
        /// What it is to have, with the caller's mask taken off.
        mode: u32,
    },
}

/// A plea as the usher tells of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PendingWriteInfo {
    pub(super) call: parked::NotificationInfo,
    pub(super) denial: Denial,
    pub(super) path: AbsPath,
    pub(super) deed: WriteIntent,
}

/// A call that waits for an answer. Dropped, it is refused.
#[derive(Debug)]
pub struct PendingWrite {
    told: Box<PendingWriteInfo>,
    waiting: ParkedNotification,
}

impl PendingWrite {
    pub(super) fn of(told: Box<PendingWriteInfo>, listener: Arc<OwnedFd>) -> Self {
        Self { waiting: ParkedNotification::of(told.call, listener), told }
    }

    /// What is about to be refused.
    pub fn denial(&self) -> &Denial {
        &self.told.denial
    }

    /// On what, as the sandbox sees it. The host may have links on the way.
    pub fn path(&self) -> &AbsPath {
        &self.told.path
    }

    /// What is wanted.
    pub fn deed(&self) -> WriteIntent {
        self.told.deed
    }

    /// Whether anybody still waits.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_waiting()
    }

    /// Lets whoever has a signal to handle go and handle it.
    pub fn mind_signals(&mut self) {
        self.waiting.mind_signals();
    }

    /// The call has succeeded with this descriptor; an error if its caller never heard of it.
    pub fn give(self, descriptor: OwnedFd) -> io::Result<()> {
        let WriteIntent::Open { on_execute, .. } = self.told.deed else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.waiting.give_away(descriptor, on_execute)
    }

    /// The call has succeeded; an error if its caller never heard of it.
    pub fn done(self) -> io::Result<()> {
        self.waiting.done()
    }
}
