//! Log of allowed accesses. Repeats become one entry with a count.

use std::collections::HashMap;

use ringfence_api::{Allowance, ObservedAccesses};

/// Accesses that were allowed so far.
#[derive(Debug, Default)]
pub(crate) struct AllowanceLog {
    observed: ObservedAccesses,
    known: HashMap<(String, String, &'static str), usize>,
}

impl AllowanceLog {
    pub(crate) fn note(&mut self, allowance: Allowance) {
        let key = (allowance.target.clone(), allowance.program.clone(), allowance.operation.word());
        match self.known.get(&key) {
            Some(at) => self.observed.allowed[*at].count += allowance.count,
            None => {
                self.known.insert(key, self.observed.allowed.len());
                self.observed.allowed.push(allowance);
            }
        }
    }

    /// Counts `more` accesses that the notify handler did not report one by one.
    pub(crate) fn add_unlisted(&mut self, more: u64) {
        self.observed.dropped += more;
    }

    pub(crate) fn finish(self) -> ObservedAccesses {
        self.observed
    }
}
