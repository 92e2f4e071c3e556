//! The `local` provider: sandboxes on this machine.

mod open;
mod policy_poller;
mod thread;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringfence_api::{Denial, Permission, QuarantinedFile};
use ringfence_policy::Mode;
use ringfence_tools::FileTools;
use serde::{Deserialize, Serialize};

use crate::protocol::{
    BoxFuture, Confinement, SandboxBackend, SandboxCreateOptions, SandboxInfo, SandboxProvider,
    SandboxStatus,
};
use crate::{Command, ExecuteResult, SandboxError};
use policy_poller::PolicyPoller;
use thread::SandboxThread;

/// Creates sandboxes with this machine's kernel.
#[derive(Default)]
pub struct LocalSandboxProvider {
    sandboxes: Mutex<HashMap<String, Weak<SandboxThread>>>,
    poller: Arc<PolicyPoller>,
}

/// The `providerOptions` of `local`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LocalOptions {
    /// The agent's name, for the audit log. If a definition of this agent exists
    /// (`.ringfence/agents` …), it applies.
    pub agent: Option<String>,
    /// The shell; the default is `bash`.
    pub shell: Option<String>,
    /// The write mode.
    pub mode: Option<Mode>,
    /// Further paths that may be read.
    pub read: Vec<String>,
    /// Tools that this agent may not use. Without the tools that write (`Write`, `Edit`), its
    /// commands cannot write to the project either.
    pub disallowed_tools: Vec<String>,
    /// A policy file used in place of the project's own.
    pub policy_file: Option<PathBuf>,
}

impl LocalSandboxProvider {
    /// Its name in the registry.
    pub const NAME: &str = "local";

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<String, Weak<SandboxThread>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SandboxProvider for LocalSandboxProvider {
    fn provider_type(&self) -> &str {
        Self::NAME
    }

    fn create(
        &self,
        options: SandboxCreateOptions,
    ) -> BoxFuture<'_, Result<Arc<dyn SandboxBackend>, SandboxError>> {
        Box::pin(async move {
            if options.confinement == Confinement::Sandbox && !crate::is_ready() {
                return Err(SandboxError::InitMissing);
            }
            let handle = Arc::new(SandboxThread::open(options, self.poller.clone()).await?);
            let mut sandboxes = self.sandboxes();
            sandboxes.retain(|_, handle| handle.strong_count() > 0);
            sandboxes.insert(handle.id().to_owned(), Arc::downgrade(&handle));
            Ok(Arc::new(LocalBackend { handle }) as Arc<dyn SandboxBackend>)
        })
    }

    fn destroy<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<QuarantinedFile>, SandboxError>> {
        Box::pin(async move {
            let handle = self.sandboxes().remove(id).and_then(|handle| handle.upgrade());
            match handle {
                Some(handle) => handle.close().await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SandboxInfo>, SandboxError>> {
        let mut found: Vec<SandboxInfo> = self
            .sandboxes()
            .iter()
            .filter(|(_, handle)| handle.upgrade().is_some_and(|handle| handle.is_open()))
            .map(|(id, _)| SandboxInfo { id: id.clone(), status: SandboxStatus::Running })
            .collect();
        // Ids start with the creation time.
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Box::pin(std::future::ready(Ok(found)))
    }
}

struct LocalBackend {
    handle: Arc<SandboxThread>,
}

impl SandboxBackend for LocalBackend {
    fn id(&self) -> &str {
        self.handle.id()
    }

    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>> {
        let handle = self.handle.clone();
        Box::pin(async move { handle.execute(command).await })
    }

    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>> {
        Box::pin(self.handle.close())
    }

    fn tools(&self) -> Result<FileTools, SandboxError> {
        self.handle.tools()
    }

    fn permission(&self, denial: &Denial) -> Option<Permission> {
        self.handle.permission(denial)
    }
}
