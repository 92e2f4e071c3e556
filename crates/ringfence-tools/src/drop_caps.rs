//! Drops root's power over files of other users, as in a sandbox.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The capabilities that bypass owners and modes.
const FILE_CAPABILITIES: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE);

/// This thread without these capabilities, until dropped. Other threads keep theirs.
pub(crate) struct CapabilitiesDropped {
    before: Option<CapabilitySets>,
}

impl CapabilitiesDropped {
    pub(crate) fn drop_now() -> Result<CapabilitiesDropped, Errno> {
        let sets = capabilities(None)?;
        if !sets.effective.intersects(FILE_CAPABILITIES) {
            return Ok(CapabilitiesDropped { before: None });
        }
        set_capabilities(
            None,
            CapabilitySets { effective: sets.effective - FILE_CAPABILITIES, ..sets },
        )?;
        Ok(CapabilitiesDropped { before: Some(sets) })
    }
}

impl Drop for CapabilitiesDropped {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            // They are still permitted, so they can be made effective again.
            let _ = set_capabilities(None, before);
        }
    }
}
