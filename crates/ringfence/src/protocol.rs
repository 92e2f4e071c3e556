//! The protocol between whoever runs commands and the places where they run.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_api::{Asker, Denial, Permission, QuarantinedFile};
use ringfence_tools::FileTools;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Command, ExecuteResult, SandboxError, SandboxPolicy, block_on};

/// A future that any runtime can wait for.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes sandboxes, and ends them.
pub trait SandboxProvider: Send + Sync {
    /// Its name in the registry: `local`.
    fn provider_type(&self) -> &str;

    /// Makes a sandbox. If that fails nothing has run, and nothing is left.
    fn create(
        &self,
        options: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>>;

    /// Ends the sandbox of this id; one that is not there has ended.
    fn destroy<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<QuarantinedFile>, SandboxError>>;

    /// Those that it made and that have not ended.
    fn list(&self) -> BoxFuture<'_, Result<Vec<SandboxInfo>, SandboxError>>;
}

/// A sandbox with a shell in it that lives on from one command to the next.
pub trait SandboxBackend: Send + Sync {
    /// What it is known by, also in the audit log.
    fn id(&self) -> &str;

    /// Runs a command in its shell; commands take turns. Nothing is begun before the future is
    /// awaited, and dropping the future interrupts the command.
    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>>;

    /// Ends the sandbox and everything in it, once the command that runs has ended; answers
    /// what was moved away before anyone could stumble over it. When this has ended nothing is
    /// left. Dropping the last handle ends it too, and does not wait.
    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>>;

    /// Tools in process under this sandbox's policy, as it is by then; they end with it. Not
    /// every place has them: its files may be elsewhere.
    fn tools(&self) -> Result<FileTools, SandboxError> {
        Err(SandboxError::NotOffered { what: "tools".into() })
    }

    /// What a person could be asked about a tool's call that was refused, where the place can
    /// tell.
    fn permission(&self, denial: &Denial) -> Option<Permission> {
        let _ = denial;
        None
    }

    /// [`SandboxBackend::execute`] for programs without a runtime.
    fn execute_blocking(&self, command: Command) -> Result<ExecuteResult, SandboxError> {
        block_on(self.execute(command))
    }
}

/// What a sandbox is to be like.
#[derive(Debug, Clone)]
pub struct SandboxCreateOptions {
    /// Where its shell starts; the project around it is what may be worked on.
    pub cwd: PathBuf,
    /// What is opened and shut beside.
    pub policy: SandboxPolicy,
    /// What a person has opened meanwhile. It goes before what the policy shuts.
    pub granted: Vec<SandboxGrant>,
    /// What stays as it is, whatever is opened around it: the caller's own settings, say.
    pub protected: Vec<PathBuf>,
    /// Who is asked while the command waits, where the place can ask.
    pub asker: Option<Arc<dyn Asker>>,
    /// Whether there is to be a sandbox at all.
    pub confinement: Confinement,
    /// What only this provider knows; see [`LocalOptions`](crate::LocalOptions).
    pub provider_options: Map<String, Value>,
}

impl SandboxCreateOptions {
    /// A sandbox as the policy files have it.
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

/// Something a person opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxGrant {
    /// With all that is below it; `~` is the home directory. A host, where a host is opened.
    pub path: String,
    /// For what.
    pub opens: GrantAccess,
}

/// What a grant is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantAccess {
    /// Reading, and starting programs.
    Reading,
    /// Writing as well.
    Writing,
    /// Connecting; `path` is then `host` or `host:port`.
    Connecting,
}

/// Whether commands are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In a sandbox.
    Sandbox,
    /// Not at all: they can do whatever the caller can.
    Unconfined,
}

/// A sandbox there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SandboxInfo {
    /// What it is known by.
    pub id: String,
    /// How it is.
    pub status: SandboxStatus,
}

/// How a sandbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxStatus {
    /// It takes commands.
    Running,
    /// It does not.
    Stopped,
}
