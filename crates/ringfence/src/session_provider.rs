//! Sandboxes of any provider, as sessions of the engine.

mod open;
mod policy_poller;
mod thread;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringfence_api::{Asker, QuarantinedFile};
use ringfence_engine::ProviderRegistry;
use ringfence_policy::{Mode, OnGap, ProviderSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::protocol::{SandboxBackend, SandboxGrant, SandboxInfo, SandboxStatus};
use crate::{SandboxError, SandboxPolicy, SandboxProviderRegistry};
use policy_poller::PolicyPoller;
use thread::SandboxThread;

/// Creates sandboxes of one provider, with the whole pipeline before it: policy, command rules,
/// gaps, questions, audit log and denials.
pub struct SessionProvider {
    name: String,
    registry: ProviderRegistry,
    sandboxes: Mutex<HashMap<String, Weak<SandboxThread>>>,
    poller: Arc<PolicyPoller>,
}

/// A new sandbox, as a program wants it.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
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
    /// [`CommonOptions`], and options of the provider.
    pub provider_options: Map<String, Value>,
}

impl SandboxSpec {
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

/// The confinement of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// In a sandbox of the provider.
    Sandbox,
    /// None: commands run on this machine and have all rights of the caller.
    Unconfined,
}

/// The `providerOptions` that ringfence takes, whatever the provider. The provider gets the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CommonOptions {
    /// The agent's name, for the audit log. If a definition of this agent exists
    /// (`.ringfence/agents` …), it applies.
    pub agent: Option<String>,
    /// The shell; the default is `bash`.
    pub shell: Option<String>,
    /// The write mode.
    pub mode: Option<Mode>,
    /// The answer to demands of the policy that the provider does not enforce.
    pub on_gap: Option<OnGap>,
    /// Further paths that may be read.
    pub read: Vec<String>,
    /// Tools that this agent may not use. Without the tools that write (`Write`, `Edit`), its
    /// commands cannot write to the project either.
    pub disallowed_tools: Vec<String>,
    /// A policy file used in place of the project's own.
    pub policy_file: Option<PathBuf>,
    /// The options of the provider. It gets a value that is no string as JSON text.
    #[serde(flatten)]
    pub provider: Map<String, Value>,
}

impl Default for SessionProvider {
    /// The provider `local`: sandboxes of this machine's kernel.
    fn default() -> Self {
        Self::new(ProviderSpec::LOCAL, SandboxProviderRegistry::default().0)
    }
}

impl SessionProvider {
    pub(crate) fn new(name: &str, registry: ProviderRegistry) -> Self {
        let (sandboxes, poller) = <_>::default();
        Self { name: name.to_owned(), registry, sandboxes, poller }
    }

    /// Its name in the registry.
    pub fn provider_type(&self) -> &str {
        &self.name
    }

    /// Creates a sandbox. On failure nothing has run, and nothing is left behind.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
        let is_local = self.name == ProviderSpec::LOCAL;
        if is_local && spec.confinement == Confinement::Sandbox && !crate::is_ready() {
            return Err(SandboxError::InitMissing);
        }
        let registry = self.registry.clone();
        let opened = SandboxThread::open(&self.name, registry, spec, self.poller.clone());
        let handle = Arc::new(opened.await?);
        let mut sandboxes = self.sandboxes();
        sandboxes.retain(|_, handle| handle.strong_count() > 0);
        sandboxes.insert(handle.id.clone(), Arc::downgrade(&handle));
        Ok(Arc::new(handle))
    }

    /// Ends the sandbox with this id; an unknown id counts as ended.
    pub async fn destroy(&self, id: &str) -> Result<Vec<QuarantinedFile>, SandboxError> {
        let handle = self.sandboxes().remove(id).and_then(|handle| handle.upgrade());
        match handle {
            Some(handle) => handle.close().await,
            None => Ok(Vec::new()),
        }
    }

    /// The sandboxes it created that have not ended.
    pub fn list(&self) -> Vec<SandboxInfo> {
        let mut found: Vec<SandboxInfo> = self
            .sandboxes()
            .iter()
            .filter(|(_, handle)| handle.upgrade().is_some_and(|handle| handle.is_open()))
            .map(|(id, _)| SandboxInfo { id: id.clone(), status: SandboxStatus::Running })
            .collect();
        // Ids start with the creation time.
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        found
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<String, Weak<SandboxThread>>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
