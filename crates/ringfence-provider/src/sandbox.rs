//! A live sandbox.

use ringfence_api::{Denial, Enforcement, Gap, PathMap, QuarantinedFile};
use ringfence_policy::{AbsPath, Grants, PolicyChange};

use crate::{ProcessSpec, ProviderError, SandboxShell, SandboxedProcess, ShellSpec, files};

/// A live sandbox for many commands. Dropping it ends it.
///
/// Any thread may call its methods, also while commands run.
pub trait Sandbox: Send + Sync {
    /// The protections enforced at its start; [`Sandbox::apply_policy`] returns later ones.
    fn enforced(&self) -> &[Enforcement];

    /// The gaps at its start; [`Sandbox::apply_policy`] returns later ones.
    fn gaps(&self) -> &[Gap];

    /// Gaps found since its start.
    fn found_gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// As [`PreparedSandbox::is_confined`](crate::PreparedSandbox::is_confined).
    fn is_confined(&self) -> bool {
        true
    }

    /// Translates between paths of the host and of the sandbox.
    fn paths(&self) -> &PathMap;

    /// Writes a file in the sandbox, with the rights of its commands. By default a process in the
    /// sandbox writes it.
    fn put(&self, path: &AbsPath, content: &[u8]) -> Result<(), ProviderError> {
        files::put(self, path, content)
    }

    /// Reads a file in the sandbox, with the rights of its commands. A file of more than `limit`
    /// bytes is an error. By default a process in the sandbox reads it.
    fn get(&self, path: &AbsPath, limit: usize) -> Result<Vec<u8>, ProviderError> {
        files::get(self, path, limit)
    }

    /// Starts a shell in it.
    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError>;

    /// Starts a process outside the shells. By default an error.
    fn start_process(
        &self,
        start: &ProcessSpec,
    ) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        let _ = start;
        Err(ProviderError::NotSupported { what: "processes beside the shell" })
    }

    /// Takes the denials since the last call, of all processes. By default none.
    fn take_denials(&self) -> (Vec<Denial>, u64) {
        (Vec::new(), 0)
    }

    /// False once it is known to have ended: no command can run in it.
    fn is_alive(&self) -> bool {
        true
    }

    /// Removes the programs that an unfinished git operation (such as a rebase) would run, until
    /// the next command starts: the user may continue the operation outside meanwhile. A backend
    /// without a git sweep keeps the default.
    fn suspend_programs(&self) {}

    /// Restores what [`Sandbox::suspend_programs`] removed.
    fn resume_programs(&self) {}

    /// Applies another policy, as far as a live sandbox can. The changes include what could not be
    /// applied, with the reason. By default an error: the caller runs no new command until the
    /// policy is reverted or the sandbox restarted.
    fn apply_policy(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError> {
        let _ = grants;
        Err(ProviderError::NotSupported { what: "policy changes in a live sandbox" })
    }

    /// Ends everything in it, and quarantines planted files.
    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError>;
}

/// The result of a policy change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRevision {
    /// Each added or removed rule.
    pub changes: Vec<PolicyChange>,
    /// The protections enforced now.
    pub enforced: Vec<Enforcement>,
    /// The gaps now.
    pub gaps: Vec<Gap>,
}
