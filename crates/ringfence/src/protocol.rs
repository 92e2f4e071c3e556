//! Traits between the code that runs commands and the sandbox providers.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_api::{Asker, Denial, Permission, QuarantinedFile};
use ringfence_tools::FileTools;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Command, ExecuteResult, SandboxError, SandboxPolicy, block_on};

/// A future that any runtime can await.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Creates and destroys sandboxes.
pub trait SandboxProvider: Send + Sync {
    /// Its name in the registry: `local`.
    fn provider_type(&self) -> &str;

    /// Creates a sandbox. On failure nothing has run, and nothing is left behind.
    fn create(
        &self,
        options: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>>;

    /// Ends the sandbox with this id; an unknown id counts as ended.
    fn destroy<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<QuarantinedFile>, SandboxError>>;

    /// The sandboxes it created that have not ended.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SandboxInfo>, SandboxError>>;
}

/// A sandbox with a shell in it that lives on from one command to the next.
pub trait SandboxBackend: Send + Sync {
    /// Its id, also used in the audit log.
    fn id(&self) -> &str;

    /// Runs a command in its shell; commands run one at a time. Nothing starts before the future is
    /// polled, and dropping the future interrupts the command.
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>>;

    /// Ends the sandbox and everything in it after the running command, and returns the quarantined
    /// files. When this returns nothing is left. Dropping the last handle ends the sandbox too,
    /// without waiting.
    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>>;

    /// In-process tools under this sandbox's current policy; they end with it. Not every provider
    /// has them: its files may be on another machine.
    fn tools(&self) -> Result<FileTools, SandboxError> {
        Err(SandboxError::NotOffered { what: "tools".into() })
    }

    /// The permission the user could be asked for after a denied tool call, if the provider knows
    /// it.
    fn permission(&self, denial: &Denial) -> Option<Permission> {
        let _ = denial;
        None
    }

    /// [`SandboxBackend::execute`] for programs without a runtime.
    fn execute_blocking(&self, command: Command) -> Result<ExecuteResult, SandboxError> {
        block_on(self.execute(command))
    }
}

/// Options for a new sandbox.
#[derive(Debug, Clone)]
pub struct SandboxCreateOptions {
    /// The shell's first directory; the project around it is writable.
    pub cwd: PathBuf,
    /// Additional paths to allow and deny.
    pub policy: SandboxPolicy,
    /// The user's grants. They take precedence over the policy's denials.
    pub granted: Vec<SandboxGrant>,
    /// Paths that stay read-only whatever is allowed around them: the caller's own settings, say.
    pub protected: Vec<PathBuf>,
    /// Asks the user while the command waits, if the provider supports it.
    pub asker: Option<Arc<dyn Asker>>,
    /// Runs commands in a sandbox or unconfined.
    pub confinement: Confinement,
    /// Provider-specific options; see [`LocalOptions`](crate::LocalOptions).
    pub provider_options: Map<String, Value>,
}

impl SandboxCreateOptions {
    /// A sandbox as the policy files define it.
    pub fn new(cwd: impl Into<PathBuf>) -> Self {
        Self {
            cwd: cwd.into(),
            policy: SandboxPolicy::default(),
            granted: Vec::new(),
            protected: Vec::new(),
            asker: None,
            confinement: Confinement::Sandbox,
            provider_options: Map::new(),
        }
    }
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

/// The confinement of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In a sandbox.
    Sandbox,
    /// None: commands have all rights of the caller.
    Unconfined,
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
