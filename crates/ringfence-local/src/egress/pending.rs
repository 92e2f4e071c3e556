//! Connections that are being made, and what becomes of them if the sandbox ends first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_api::ConnectionRecord;

use super::gate::EgressGate;

/// Those that are being made. Each is told of once: by whoever makes it, or when it is given up.
#[derive(Debug, Default)]
pub(super) struct PendingDials {
    list: Mutex<PendingList>,
}

#[derive(Debug, Default)]
struct PendingList {
    /// What is told of each if the sandbox ends now.
    begun: HashMap<u64, ConnectionRecord>,
    last: u64,
    is_closed: bool,
}

impl PendingDials {
    /// One more is being made.
    pub(super) fn begin(&self, unfinished: ConnectionRecord) -> DialAttempt<'_> {
        let mut list = self.list();
        list.last += 1;
        let number = list.last;
        if !list.is_closed {
            list.begun.insert(number, unfinished);
        }
        DialAttempt { pending: self, number }
    }

    /// Whether the sandbox has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.list().is_closed
    }

    /// The sandbox has ended: whatever is being made has failed, and nothing is told of it later.
    pub(super) fn close(&self, gate: &EgressGate) {
        let mut list = self.list();
        list.is_closed = true;
        list.begun.drain().for_each(|(_, unfinished)| gate.connected(unfinished));
    }

    fn list(&self) -> MutexGuard<'_, PendingList> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is being made. Dropped, nothing is told of it.
#[derive(Debug)]
pub(super) struct DialAttempt<'a> {
    pending: &'a PendingDials,
    number: u64,
}

impl DialAttempt<'_> {
    /// It is known what became of it, and `tell` tells; not if the sandbox has ended meanwhile.
    /// Nobody ends it in between, so whoever reads the records then finds all of them.
    pub(super) fn settle<T>(self, tell: impl FnOnce() -> T) -> Option<T> {
        let mut list = self.pending.list();
        let told = list.begun.remove(&self.number).map(|_| tell());
        drop(list);
        told
    }
}

impl Drop for DialAttempt<'_> {
    fn drop(&mut self) {
        self.pending.list().begun.remove(&self.number);
    }
}
