//! Slots for concurrent connects: each has a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most connects at once.
const MAX_CONNECTS: usize = 1024;

/// Counter of slots in use.
#[derive(Debug, Default)]
pub(super) struct ConnectSlots {
    taken: Arc<AtomicUsize>,
}

/// A slot in use, freed on drop.
#[derive(Debug)]
pub(super) struct ConnectSlot {
    taken: Arc<AtomicUsize>,
}

impl ConnectSlots {
    /// A slot, if one is free.
    pub(super) fn take(&self) -> Option<ConnectSlot> {
        let slot = ConnectSlot { taken: self.taken.clone() };
        (self.taken.fetch_add(1, Ordering::Relaxed) < MAX_CONNECTS).then_some(slot)
    }
}

impl Drop for ConnectSlot {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
