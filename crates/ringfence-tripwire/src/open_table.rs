//! Requests that wait for an answer, and what was opened for those who got one.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

use crate::fuse_protocol::FuseReply;

/// What the serving thread shares with those who answer later.
#[derive(Debug)]
pub(crate) struct OpenTable {
    pub(crate) device: OwnedFd,
    books: Mutex<OpenTableState>,
}

#[derive(Debug, Default)]
struct OpenTableState {
    /// Requests that nobody has answered yet, and who waits.
    waiting: HashMap<u64, u32>,
    opened: HashMap<u64, Arc<OpenedFile>>,
    handles: u64,
}

/// Something of the host that was opened for somebody.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    node: u64,
    pub(crate) file: OwnedFd,
    /// What is in it, if it is a directory: names and kinds.
    pub(crate) names: Vec<(OsString, u32)>,
}

impl OpenTable {
    pub(crate) fn new(device: OwnedFd) -> Self {
        Self { device, books: Mutex::default() }
    }

    fn books(&self) -> MutexGuard<'_, OpenTableState> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was opened under this number.
    pub(crate) fn opened(&self, handle: u64) -> Option<Arc<OpenedFile>> {
        self.books().opened.get(&handle).cloned()
    }

    /// What is open of a node, by anybody.
    pub(crate) fn open_of(&self, node: u64) -> Option<Arc<OpenedFile>> {
        let books = self.books();
        if books.opened.is_empty() {
            None
        } else {
            books.opened.values().find(|opened| opened.node == node).cloned()
        }
    }

    pub(crate) fn close(&self, handle: u64) {
        let closed = self.books().opened.remove(&handle);
        drop(closed);
    }

    /// Whoever waits for the answer to a request has been sent a signal. One that is to end, or
    /// to do something else first, does not wait any longer; one that is only to stop goes on
    /// waiting, and is looked after: the kernel does not tell a second time.
    pub(crate) fn interrupted(self: &Arc<Self>, unique: u64) {
        const AGAIN: Duration = Duration::from_millis(25);
        if !self.let_go(unique) {
            return;
        }
        let desk = self.clone();
        let look_after = move || {
            while desk.let_go(unique) {
                thread::sleep(AGAIN);
            }
        };
        let begun =
            thread::Builder::new().name("tripwire".into()).stack_size(64 * 1024).spawn(look_after);
        if begun.is_err() {
            self.settle(unique, &FuseReply::error(unique, Errno::INTR.raw_os_error()));
        }
    }

    /// Answers whoever must not wait any longer; `true` if it still does.
    fn let_go(&self, unique: u64) -> bool {
        let pid = self.books().waiting.get(&unique).copied();
        match pid {
            None => false,
            Some(pid) if may_wait(pid) => true,
            Some(_) => {
                self.settle(unique, &FuseReply::error(unique, Errno::INTR.raw_os_error()));
                false
            }
        }
    }

    /// Answers a request that waits; answers whether it did, and the kernel took it.
    fn settle(&self, unique: u64, answer: &[u8]) -> bool {
        self.books().waiting.remove(&unique).is_some()
            && rustix::io::write(&self.device, answer).is_ok()
    }
}

/// An open that waits for its answer. Dropped, it is refused.
#[derive(Debug)]
pub struct PendingOpen {
    desk: Arc<OpenTable>,
    request: ParkedOpen,
}

/// What waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkedOpen {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// What the kernel takes the node for.
    pub(crate) kind: FileType,
    /// The answer if it is refused.
    pub(crate) refusal: Refusal,
}

/// Answer to an open that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It fails.
    Error(Errno),
    /// It opens something empty.
    Empty,
}

impl Refusal {
    pub(crate) fn answer(self, unique: u64) -> Vec<u8> {
        match self {
            Refusal::Error(error) => FuseReply::error(unique, error.raw_os_error()),
            Refusal::Empty => FuseReply::opened_as(unique, 0),
        }
    }
}

impl PendingOpen {
    /// From now on `pid` waits.
    pub(crate) fn begin(desk: &Arc<OpenTable>, pid: u32, request: ParkedOpen) -> Self {
        desk.books().waiting.insert(request.unique, pid);
        Self { desk: desk.clone(), request }
    }

    /// Whether anybody still waits.
    pub fn is_waiting(&self) -> bool {
        self.desk.books().waiting.contains_key(&self.request.unique)
    }

    /// It is this file, or this directory; refused if it is neither of what was wanted.
    pub fn open(self, file: OwnedFd) {
        let kind = rustix::fs::fstat(&file).map(|status| FileType::from_raw_mode(status.st_mode));
        let names = match (self.request.kind, kind) {
            (FileType::Directory, Ok(FileType::Directory)) => names(&file).ok(),
            (FileType::RegularFile, Ok(FileType::RegularFile)) => Some(Vec::new()),
            _ => None,
        };
        if let Some(names) = names {
            self.serve(file, names);
        }
    }

    fn serve(self, file: OwnedFd, names: Vec<(OsString, u32)>) {
        let handle = {
            let mut books = self.desk.books();
            books.handles += 1;
            let handle = books.handles;
            books
                .opened
                .insert(handle, Arc::new(OpenedFile { node: self.request.node, file, names }));
            handle
        };
        let unique = self.request.unique;
        if !self.desk.settle(unique, &FuseReply::opened_as(unique, handle)) {
            self.desk.close(handle);
        }
    }
}

impl Drop for PendingOpen {
    fn drop(&mut self) {
        // Nothing waits any more once it was answered.
        let ParkedOpen { unique, refusal, .. } = self.request;
        self.desk.settle(unique, &refusal.answer(unique));
    }
}

/// What is in a directory, as much of it as anybody lists.
fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<(OsString, u32)>> {
    const MANY: usize = 1_000_000;
    let entries = Dir::read_from(directory)?.take(MANY);
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

/// Whether a process that has been sent a signal may go on waiting: it is neither to end nor
/// to handle one.
fn may_wait(pid: u32) -> bool {
    // It may have called itself what is no text.
    std::fs::read(format!("/proc/{pid}/status"))
        .is_ok_and(|status| may_wait_by(&String::from_utf8_lossy(&status)))
}

fn may_wait_by(status: &str) -> bool {
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
    use super::may_wait_by;

    #[track_caller]
    fn check(pending: u64, blocked: u64, caught: u64, expect: bool) {
        let status = format!(
            "Name:\tcat\nSigPnd:\t0000000000000000\nShdPnd:\t{pending:016x}\nSigBlk:\t{blocked:016x}\nSigCgt:\t{caught:016x}\n"
        );
        assert_eq!(may_wait_by(&status), expect, "{status}");
    }

    #[test]
    fn who_is_stopped_goes_on_waiting_and_who_is_killed_does_not() {
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
