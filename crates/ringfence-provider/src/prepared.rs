//! A prepared sandbox.

use std::sync::Arc;

use ringfence_api::{Asker, CommandRequest, Denial, Enforcement, Gap, Outcome};
use ringfence_policy::AbsPath;

use crate::{ProviderError, Sandbox, SandboxDescription};

/// A prepared sandbox.
pub trait PreparedSandbox {
    /// The protections that it enforces. A run may change them: the host may have changed.
    fn enforced(&self) -> &[Enforcement];

    /// The demands of the policy that it cannot enforce.
    fn gaps(&self) -> &[Gap];

    /// Its paths and protections, for `ringfence plan`, `explain` and `test`.
    fn describe(&self) -> SandboxDescription {
        SandboxDescription::from_enforced(self.enforced())
    }

    /// False if commands run without any confinement. The audit log records it.
    fn is_confined(&self) -> bool {
        true
    }

    /// From now on a denied access waits for the asker's answer, as far as the provider supports
    /// it.
    fn set_asker(&mut self, asker: Arc<dyn Asker>);

    /// Runs one command to its end. May be called many times, one command after the other.
    ///
    /// The command's standard input is that of the caller's process.
    ///
    /// # Errors
    ///
    /// [`ProviderError::NotStarted`] if the sandbox cannot be created, also if the policy denies
    /// the working directory. [`ProviderError::NotExecuted`] if the command cannot be executed.
    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError>;

    /// Starts a sandbox that lives until it is ended, for many commands. It does not depend on the
    /// calling thread.
    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError>;

    /// Takes the denials of a command that failed without an outcome, for the audit log. The number
    /// is that of [`Outcome::denials_dropped`].
    fn take_denials(&mut self) -> (Vec<Denial>, u64);
}
