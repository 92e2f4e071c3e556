//! A kind of sandbox.

use ringfence_api::HostFacts;
use ringfence_policy::Grants;

use crate::{DoctorFinding, PreparedSandbox, ProviderError};

/// A kind of sandbox.
pub trait Provider: Send {
    /// A short, stable name.
    fn name(&self) -> &str;

    /// The features beyond running one command.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Checks the requirements of the provider, without creating a sandbox.
    fn doctor(&self) -> Vec<DoctorFinding> {
        Vec::new()
    }

    /// Prepares a sandbox for `grants`. Nothing runs yet.
    ///
    /// Grants without confinement ([`Grants::is_confined`] is false) go to the provider `process`
    /// only.
    fn prepare(
        &self,
        grants: &Grants,
        host_facts: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError>;
}

/// The features of a provider beyond running one command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Confinement by the policy.
    pub confinement: Support,
    /// Sandboxes with shells for many commands.
    pub shells: Support,
    /// Processes on a terminal.
    pub terminals: Support,
    /// Policy changes in a live sandbox.
    pub live_policy: Support,
    /// Denied accesses that wait for an answer.
    pub asks: Support,
    /// Files in and out of a live sandbox.
    pub files: Support,
}

/// Support of a feature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Support {
    /// Calls fail with [`ProviderError::NotSupported`], or have no effect.
    #[default]
    No,
    /// Supported.
    Yes,
}
