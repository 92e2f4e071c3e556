//! The place called `local`: this machine's own sandbox.

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

/// Sandboxes of this machine's own kernel.
#[derive(Default)]
pub struct LocalSandboxProvider {
    made: Mutex<HashMap<String, Weak<SandboxThread>>>,
    followers: Arc<PolicyPoller>,
}

/// What `providerOptions` may hold for `local`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct LocalOptions {
    /// On whose behalf, for the audit log. Where an agent of this name is described
    /// (`.ringfence/agents` …), its definition holds.
    pub agent: Option<String>,
    /// The shell; `bash` unless said.
    pub shell: Option<String>,
    /// How much may be written.
    pub mode: Option<Mode>,
    /// What may be read beside.
    pub read: Vec<String>,
    /// Tools that this agent may not use. Without those that write (`Write`, `Edit`), nothing of
    /// the project is written by its commands either.
    pub disallowed_tools: Vec<String>,
    /// A policy file that stands in for the project's own.
    pub policy_file: Option<PathBuf>,
}

impl LocalSandboxProvider {
    /// Its name in the registry.
    pub const NAME: &str = "local";

    fn made(&self) -> MutexGuard<'_, HashMap<String, Weak<SandboxThread>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
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
            let desk = Arc::new(SandboxThread::open(options, self.followers.clone()).await?);
            let mut made = self.made();
            made.retain(|_, desk| desk.strong_count() > 0);
            made.insert(desk.id().to_owned(), Arc::downgrade(&desk));
            Ok(Arc::new(LocalBackend { desk }) as Arc<dyn SandboxBackend>)
        })
    }

    fn destroy<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Vec<QuarantinedFile>, SandboxError>> {
        Box::pin(async move {
            let desk = self.made().remove(id).and_then(|desk| desk.upgrade());
            match desk {
                Some(desk) => desk.close().await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<SandboxInfo>, SandboxError>> {
        let mut found: Vec<SandboxInfo> = self
            .made()
            .iter()
            .filter(|(_, desk)| desk.upgrade().is_some_and(|desk| desk.is_open()))
            .map(|(id, _)| SandboxInfo { id: id.clone(), status: SandboxStatus::Running })
            .collect();
        // Ids begin with the time.
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Box::pin(std::future::ready(Ok(found)))
    }
}

struct LocalBackend {
    desk: Arc<SandboxThread>,
}

impl SandboxBackend for LocalBackend {
    fn id(&self) -> &str {
        self.desk.id()
    }

    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>> {
        let desk = self.desk.clone();
        Box::pin(async move { desk.execute(command).await })
    }

    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>> {
        Box::pin(self.desk.close())
    }

    fn tools(&self) -> Result<FileTools, SandboxError> {
        self.desk.tools()
    }

    fn permission(&self, denial: &Denial) -> Option<Permission> {
        self.desk.permission(denial)
    }
}
