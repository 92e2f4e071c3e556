//! The lock shared by the notify handlers of all runs of one project.
//!
//! A notify handler checks a name and then acts on it, in two syscalls. The notify handler of
//! another run could exchange a file for a symlink in between, or put a secret into a directory
//! that is about to move. So each holds the lock from before the check until it has acted:
//! exclusively for a rename or a link, shared for a new name.
//!
//! The lock is a `flock` on a file in the project's store, which no command can reach. It is not
//! held while a path is resolved, while the user is asked, or while a pipe waits for its other end.
//! A file whose name matters to no rule is created without the lock: neither its name nor its type
//! changes a verdict.

use std::os::fd::OwnedFd;

use ringfence_plan::seccomp::calls::Call;
use rustix::fs::FlockOperation;

/// Lock mode for a syscall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockMode {
    Shared,
    Exclusive,
}

impl LockMode {
    pub(super) fn for_call(call: Call) -> Self {
        match call {
            Call::Rename
            | Call::Renameat
            | Call::Renameat2
            | Call::Link
            | Call::Linkat
            | Call::Symlink
            | Call::Symlinkat => LockMode::Exclusive,
            _ => LockMode::Shared,
        }
    }
}

pub(super) struct ProjectLock {
    /// `None` if the project has no store (home directory missing or read-only). Then two
    /// concurrent runs are not serialised.
    file: Option<OwnedFd>,
    is_held: bool,
}

impl ProjectLock {
    pub(super) fn new(file: Option<OwnedFd>) -> Self {
        Self { file, is_held: false }
    }

    /// Waits for the lock, unless this call holds it already.
    pub(super) fn take(&mut self, hold: LockMode) {
        let Some(file) = self.file.as_ref().filter(|_| !self.is_held) else { return };
        let operation = match hold {
            LockMode::Shared => FlockOperation::LockShared,
            LockMode::Exclusive => FlockOperation::LockExclusive,
        };
        // On a file system without locks, runs are not serialised; the check itself is unchanged.
        self.is_held = rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)).is_ok();
    }

    pub(super) fn release(&mut self) {
        if let Some(file) = self.file.as_ref().filter(|_| self.is_held) {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            self.is_held = false;
        }
    }
}
