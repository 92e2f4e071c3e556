//! Dials in progress, and their records if the sandbox ends first.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::locks::lock;

use ringfence_api::ConnectionRecord;

use super::gate::EgressGate;

/// Dials in progress. Each is recorded once: by its thread, or when it is given up.
#[derive(Debug, Default)]
pub(super) struct ActiveDials {
    list: Mutex<DialList>,
}

#[derive(Debug, Default)]
struct DialList {
    /// The record of each dial if the sandbox ends now.
    begun: HashMap<u64, ConnectionRecord>,
    last: u64,
    is_closed: bool,
}

impl ActiveDials {
    /// Adds a dial.
    pub(super) fn begin(&self, unfinished: ConnectionRecord) -> DialAttempt<'_> {
        let mut list = lock(&self.list);
        list.last += 1;
        let number = list.last;
        if !list.is_closed {
            list.begun.insert(number, unfinished);
        }
        DialAttempt { dials: self, number }
    }

    /// True once the sandbox has ended.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.list).is_closed
    }

    /// Records all dials as failed when the sandbox has ended; later results are not recorded.
    pub(super) fn close(&self, gate: &EgressGate) {
        let mut list = lock(&self.list);
        list.is_closed = true;
        list.begun.drain().for_each(|(_, unfinished)| gate.record_connection(unfinished));
    }
}

/// A dial in progress. Dropping it records nothing.
#[derive(Debug)]
pub(super) struct DialAttempt<'a> {
    dials: &'a ActiveDials,
    number: u64,
}

impl DialAttempt<'_> {
    /// Records the result with `record`, unless the sandbox has ended meanwhile. The list stays
    /// locked, so a reader after `close` finds all records.
    pub(super) fn settle<T>(self, record: impl FnOnce() -> T) -> Option<T> {
        let mut list = lock(&self.dials.list);
        let result = list.begun.remove(&self.number).map(|_| record());
        drop(list);
        result
    }
}

impl Drop for DialAttempt<'_> {
    fn drop(&mut self) {
        lock(&self.dials.list).begun.remove(&self.number);
    }
}
