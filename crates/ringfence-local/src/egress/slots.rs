//! Room for those who are about to connect: each has a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many at once.
const MOST: usize = 1024;

/// How many have taken one.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: Arc<AtomicUsize>,
}

/// One that somebody has. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct Slot {
    taken: Arc<AtomicUsize>,
}

impl Slots {
    /// One, if there is one.
    pub(super) fn take(&self) -> Option<Slot> {
        let slot = Slot { taken: self.taken.clone() };
        (self.taken.fetch_add(1, Ordering::Relaxed) < MOST).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
