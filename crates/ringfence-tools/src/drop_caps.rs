//! The superuser without power over other people's files, as in a sandbox.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What lets the superuser pass by owners and modes.
const OVER_OTHERS: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE);

/// This thread without those powers, until it is dropped. Others keep theirs.
pub(crate) struct CapabilitiesDropped {
    before: Option<CapabilitySets>,
}

impl CapabilitiesDropped {
    pub(crate) fn become_so() -> Result<CapabilitiesDropped, Errno> {
        let sets = capabilities(None)?;
        if !sets.effective.intersects(OVER_OTHERS) {
            return Ok(CapabilitiesDropped { before: None });
        }
        set_capabilities(None, CapabilitySets { effective: sets.effective - OVER_OTHERS, ..sets })?;
        Ok(CapabilitiesDropped { before: Some(sets) })
    }
}

impl Drop for CapabilitiesDropped {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // They are still permitted, and what is permitted can be taken up.
            let _ = set_capabilities(None, before);
        }
    }
}
