//! The lock that the notify handlers of all runs of one project share.
//!
//! A handler judges a name and then acts on it, one call after the other. The handler of another
//! run could exchange a file for a symbolic link in between, or put a secret into a directory that
//! is about to move. So each holds the lock from before it judges until it has acted: alone where a
//! name moves or a link is made, together with others where a new name is made.
//!
//! The lock is on a file of the project's store (`flock`), which no command can reach. It is not
//! held while a path is resolved, nor while a user is asked or a pipe waits for its other end. A
//! file whose name matters to no rule is made without it: neither its name nor its kind changes a
//! verdict.

use std::os::fd::OwnedFd;

use rustix::fs::FlockOperation;

use crate::seccomp::calls::Call;

/// How a call holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    Shared,
    Exclusive,
}

impl Hold {
    pub(super) fn of(call: Call) -> Self {
        match call {
            Call::Rename
            | Call::Renameat
            | Call::Renameat2
            | Call::Link
            | Call::Linkat
            | Call::Symlink
            | Call::Symlinkat => Hold::Exclusive,
            _ => Hold::Shared,
        }
    }
}

pub(super) struct ProjectLock {
    /// `None` where the project has no store: a home that is missing or read-only. Then two runs at
    /// once are not kept apart.
    file: Option<OwnedFd>,
    is_held: bool,
}

impl ProjectLock {
    pub(super) fn new(file: Option<OwnedFd>) -> Self {
        Self { file, is_held: false }
    }

    /// Waits for the lock, unless this call holds it already.
    pub(super) fn take(&mut self, hold: Hold) {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_held) else { return };
        let how = match hold {
            Hold::Shared => FlockOperation::LockShared,
            Hold::Exclusive => FlockOperation::LockExclusive,
        };
        // A file system without locks keeps no two runs apart; the call itself is judged as ever.
        self.is_held = rustix::io::retry_on_intr(|| rustix::fs::flock(file, how)).is_ok();
    }

    pub(super) fn release(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.is_held) {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            self.is_held = false;
        }
    }
}
