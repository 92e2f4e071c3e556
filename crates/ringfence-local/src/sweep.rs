//! Placeholder until the sweep is written.
use ringfence_api::Quarantined;
use ringfence_policy::{AbsPath, Grants};
pub(crate) fn sweep(_made: &[AbsPath], _grants: &Grants) -> Vec<Quarantined> { Vec::new() }
