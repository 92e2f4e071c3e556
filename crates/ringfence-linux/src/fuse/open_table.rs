//! Open requests that wait for an answer, and files that were opened.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::fuse::fuse_protocol::FuseReply;
use crate::locks::lock;

/// State shared by the serving thread and those that answer later.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) device: OwnedFd,
    state: Mutex<OpenTableState>,
}

#[derive(Debug, Default)]
struct OpenTableState {
    /// Requests without an answer yet, with the waiting pid.
    waiting: HashMap<u64, u32>,
    opened: HashMap<u64, Arc<OpenedFile>>,
    handles: u64,
}

/// A file of the host that was opened for a process.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    node: u64,
    pub(crate) file: OwnedFd,
    /// Names and types of the entries, if it is a directory.
    pub(crate) names: Vec<(OsString, u32)>,
}

impl OpenTable {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Self { device, state: Mutex::default() }
    }

    /// The file opened under this handle.
    pub(crate) fn opened(&self, handle: u64) -> Option<Arc<OpenedFile>> {
        lock(&self.state).opened.get(&handle).cloned()
    }

    /// An open file of a node, of any process.
    pub(crate) fn find_open(&self, node: u64) -> Option<Arc<OpenedFile>> {
        let state = lock(&self.state);
        if state.opened.is_empty() {
            None
        } else {
            state.opened.values().find(|opened| opened.node == node).cloned()
        }
    }

    pub(crate) fn close(&self, handle: u64) {
        let closed = lock(&self.state).opened.remove(&handle);
        drop(closed);
    }

    /// Handles a signal to the caller of a request. A caller that must end, or handle the signal
    /// first, stops waiting. One that is only stopped goes on waiting and is polled: the kernel
    /// does not report a second signal.
    pub(crate) fn handle_interrupt(self: &Arc<Self>, unique: u64) {
        const POLL_INTERVAL: Duration = Duration::from_millis(25);
        if !self.release_if_signalled(unique) {
            return;
        }
        let table = self.clone();
        let poll_signals = move || {
            while table.release_if_signalled(unique) {
                thread::sleep(POLL_INTERVAL);
            }
        };
        let spawned = thread::Builder::new()
            .name("tripwire".into())
            .stack_size(64 * 1024)
            .spawn(poll_signals);
        if spawned.is_err() {
            self.settle(unique, &FuseReply::error(unique, Errno::INTR.raw_os_error()));
        }
    }

    /// Answers EINTR if the caller must not wait any longer; true if it still waits.
    fn release_if_signalled(&self, unique: u64) -> bool {
        let pid = lock(&self.state).waiting.get(&unique).copied();
        match pid {
            None => false,
            Some(pid) if may_wait(pid) => true,
            Some(_) => {
                self.settle(unique, &FuseReply::error(unique, Errno::INTR.raw_os_error()));
                false
            }
        }
    }

    /// Answers a waiting request; true if it waited and the kernel took the reply.
    fn settle(&self, unique: u64, answer: &[u8]) -> bool {
        lock(&self.state).waiting.remove(&unique).is_some()
            && rustix::io::write(&self.device, answer).is_ok()
    }
}

/// An open that waits for its answer. Dropping it denies the open.
#[derive(Debug)]
pub(crate) struct PendingOpen {
    table: Arc<OpenTable>,
    request: ParkedOpen,
}

/// The request that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedOpen {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// The file type that the kernel knows of the node.
    pub(crate) kind: FileType,
    /// The reply if it is denied.
    pub(crate) refusal: OpenRefusal,
}

/// Reply to a denied open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenRefusal {
    /// Fails with this errno.
    Error(Errno),
    /// Opens as empty.
    Empty,
}

impl OpenRefusal {
    pub(crate) fn reply(self, unique: u64) -> Vec<u8> {
        match self {
            OpenRefusal::Error(error) => FuseReply::error(unique, error.raw_os_error()),
            OpenRefusal::Empty => FuseReply::opened_with_handle(unique, 0),
        }
    }
}

impl PendingOpen {
    /// Registers `pid` as waiting.
    pub(crate) fn begin(table: &Arc<OpenTable>, pid: u32, request: ParkedOpen) -> Self {
        lock(&table.state).waiting.insert(request.unique, pid);
        Self { table: table.clone(), request }
    }

    /// True if the caller still waits.
    pub(crate) fn is_waiting(&self) -> bool {
        lock(&self.table.state).waiting.contains_key(&self.request.unique)
    }

    /// Answers with this file or directory; denied if the type does not match.
    pub(crate) fn open(self, file: OwnedFd) {
        let kind = rustix::fs::fstat(&file).map(|status| FileType::from_raw_mode(status.st_mode));
        let names = match (self.request.kind, kind) {
            (FileType::Directory, Ok(FileType::Directory)) => list_entries(&file).ok(),
            (FileType::RegularFile, Ok(FileType::RegularFile)) => Some(Vec::new()),
            _ => None,
        };
        if let Some(names) = names {
            self.serve(file, names);
        }
    }

    fn serve(self, file: OwnedFd, names: Vec<(OsString, u32)>) {
        let handle = {
            let mut state = lock(&self.table.state);
            state.handles += 1;
            let handle = state.handles;
            state
                .opened
                .insert(handle, Arc::new(OpenedFile { node: self.request.node, file, names }));
            handle
        };
        let unique = self.request.unique;
        if !self.table.settle(unique, &FuseReply::opened_with_handle(unique, handle)) {
            self.table.close(handle);
        }
    }
}

impl Drop for PendingOpen {
    fn drop(&mut self) {
        // An answered request no longer waits.
        let ParkedOpen { unique, refusal, .. } = self.request;
        self.table.settle(unique, &refusal.reply(unique));
    }
}

/// Entries of a directory, up to a limit.
fn list_entries(directory: &OwnedFd) -> rustix::io::Result<Vec<(OsString, u32)>> {
    const MAX_ENTRIES: usize = 1_000_000;
    let entries = Dir::read_from(directory)?.take(MAX_ENTRIES);
    entries
        .map(|entry| {
            entry.map(|entry| {
                (
                    OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                    entry.file_type().as_raw_mode(),
                )
            })
        })
        .collect()
}

/// True if a process with a pending signal may go on waiting: the signal neither ends it nor has a
/// handler.
fn may_wait(pid: u32) -> bool {
    // The name of a process need not be UTF-8.
    std::fs::read(format!("/proc/{pid}/status"))
        .is_ok_and(|status| may_wait_by_status(&String::from_utf8_lossy(&status)))
}

fn may_wait_by_status(status: &str) -> bool {
    /// SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN and SIGTTOU.
    const STOPS: u64 = 0b1_1111 << 17;
    let set = |name: &str| {
        status
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix(name)?.trim(), 16).ok())
            .unwrap_or_default()
    };
    let pending = (set("SigPnd:") | set("ShdPnd:")) & !set("SigBlk:");
    pending & !STOPS == 0 && pending & set("SigCgt:") == 0
}

#[cfg(test)]
mod tests {
    use super::may_wait_by_status;

    #[track_caller]
    fn check(pending: u64, blocked: u64, caught: u64, expect: bool) {
        let status = format!(
            "Name:\tcat\nSigPnd:\t0000000000000000\nShdPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}\nSigCgt:\t{caught:016x}\n"
        );
        assert_eq!(may_wait_by_status(&status), expect, "{status}");
    }

    #[test]
    fn stopped_caller_waits_on_and_killed_caller_does_not() {
        let bit = |number: u32| 1 << (number - 1);
        check(0, 0, 0, true);
        check(bit(19), 0, 0, true);
        check(bit(20) | bit(18), 0, 0, true);
        check(bit(9), 0, 0, false);
        check(bit(15), 0, 0, false);
        check(bit(15), bit(15), 0, true);
        check(bit(2), 0, bit(2), false);
        check(bit(20), 0, bit(20), false);
    }
}
