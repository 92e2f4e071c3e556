//! A prepared sandbox.

use std::sync::Arc;

use ringfence_api::{Asker, CommandRequest, Denial, Enforcement, Gap, Outcome, PathMap};
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

    /// Translates between paths of the host and of the sandbox. Paths in requests and reports are
    /// the host's; commands and their output have the sandbox's.
    fn paths(&self) -> PathMap {
        PathMap::identity()
    }

    /// From now on a denied access waits for the asker's answer. By default no question is asked:
    /// the access stays denied.
    fn set_asker(&mut self, asker: Arc<dyn Asker>) {
        let _ = asker;
    }

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
    /// calling thread. By default an error.
    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        let _ = cwd;
        Err(ProviderError::NotSupported { what: "sandboxes for several commands" })
    }

    /// Takes the denials of a command that failed without an outcome, for the audit log. The number
    /// is that of [`Outcome::denials_dropped`]. By default none.
    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        (Vec::new(), 0)
    }
}
