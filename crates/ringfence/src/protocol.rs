//! Traits between the code that runs commands and the sandbox providers.

use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_api::{Asker, Denial, Permission, QuarantinedFile};
use ringfence_policy::Grants;
use ringfence_provider::PolicyDemand;
use ringfence_tools::FileTools;
use serde::Serialize;

use crate::{Command, ExecuteResult, SandboxError, block_on};

/// A future that any runtime can await.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A kind of sandbox that a program brings itself, and that offers commands only.
///
/// [`SandboxProviderRegistry::register`](crate::SandboxProviderRegistry::register) puts it behind
/// the whole pipeline: a command arrives here only if the policy accepts it and all gaps, and after
/// its audit record is written. Providers that offer more implement
/// [`Provider`](crate::provider::Provider).
///
/// Futures are polled on the sandbox's own thread, outside of any runtime: spawn on a handle of
/// your runtime what needs one.
pub trait SandboxProvider: Send + Sync {
    /// Its name in gaps and errors.
    fn provider_type(&self) -> &str;

    /// The demands of a policy that its sandboxes enforce. Each other demand is a gap, and refuses
    /// every command unless the policy accepts gaps. By default it enforces nothing.
    ///
    /// Its sandboxes count as confined if they enforce [`PolicyDemand::Filesystem`].
    fn enforces(&self) -> &[PolicyDemand] {
        &[]
    }

    /// Creates a sandbox. On failure nothing is left behind.
    fn create(
        &self,
        options: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>>;
}

/// A sandbox with a shell in it that lives on from one command to the next.
pub trait SandboxBackend: Send + Sync {
    /// Its id. That of a manager's sandbox is also in the audit log.
    fn id(&self) -> &str;

    /// Runs a command in its shell; commands run one at a time. Nothing starts before the future is
    /// polled, and dropping the future interrupts the command.
    ///
    /// A provider keeps to [`Command::line`], and streams with [`Command::emit_output`]. ringfence
    /// takes the output, the status, time, usage, breaches, denials, grants and the shell's state
    /// from its result, and sets all other fields itself. After a command that leaves the shell
    /// alive, `shell` is [`ShellState::Alive`](crate::ShellState::Alive).
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>>;

    /// Ends the sandbox and everything in it after the running command, and returns the quarantined
    /// files. When this returns nothing is left. Dropping the last handle ends the sandbox too,
    /// without waiting.
    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>>;

    /// In-process tools under this sandbox's current policy; they end with it. A manager's sandbox
    /// has them if its commands see the files of this machine at the same paths.
    fn tools(&self) -> Result<FileTools, SandboxError> {
        Err(SandboxError::NotOffered { what: "tools".into() })
    }

    /// The permission the user could be asked for after a denied tool call, if it is known.
    fn permission(&self, denial: &Denial) -> Option<Permission> {
        let _ = denial;
        None
    }

    /// [`SandboxBackend::execute`] for programs without a runtime.
    fn execute_blocking(&self, command: Command) -> Result<ExecuteResult, SandboxError> {
        block_on(self.execute(command))
    }
}

/// A new sandbox of a [`SandboxProvider`], with the resolved policy.
#[derive(Debug, Clone)]
pub struct SandboxCreateOptions {
    /// The shell's first directory.
    pub cwd: PathBuf,
    /// The shell. Rules on commands have read their text as this shell reads it.
    pub shell: OsString,
    /// All environment variables of the shell.
    pub environment: Vec<(OsString, OsString)>,
    /// The resolved policy, which the sandbox enforces as far as [`SandboxProvider::enforces`]
    /// says.
    pub grants: Arc<Grants>,
    /// Asks the user while the command waits, and records the answer.
    pub asker: Option<Arc<dyn Asker>>,
}

/// An access that the user allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxGrant {
    /// A path with everything below it (`~` is the home directory), or a host.
    pub path: String,
    /// The kind of access.
    pub access: GrantAccess,
}

/// The kind of access of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantAccess {
    /// Read, and run programs.
    Read,
    /// Read and write.
    Write,
    /// Connect; `path` is then `host` or `host:port`.
    Connect,
}

/// An existing sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxInfo {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: SandboxStatus,
}

/// The status of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxStatus {
    /// It accepts commands.
    Running,
    /// It accepts no commands.
    Stopped,
}
