//! Room for those who are about to connect: each has a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many at once.
const MOST: usize = 1024;

/// How many have taken one.
#[derive(Debug, Default)]
pub(super) struct ConnectSlots {
    taken: Arc<AtomicUsize>,
}

/// One that somebody has. Dropped, it is free again.
#[derive(Debug)]
pub(super) struct ConnectSlot {
    taken: Arc<AtomicUsize>,
}

impl ConnectSlots {
    /// One, if there is one.
    pub(super) fn take(&self) -> Option<ConnectSlot> {
        let slot = ConnectSlot { taken: self.taken.clone() };
        (self.taken.fetch_add(1, Ordering::Relaxed) < MOST).then_some(slot)
    }
}

impl Drop for ConnectSlot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
