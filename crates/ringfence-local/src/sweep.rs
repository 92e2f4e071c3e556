//! Placeholder until the sweep is written.
use ringfence_api::Quarantined;
use ringfence_policy::Grants;
pub(crate) fn sweep(_made: &[std::os::fd::OwnedFd], _grants: &Grants) -> Vec<Quarantined> { Vec::new() }
