//! Creates sandboxes on demand.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_api::{AskAnswer, Asker, Denial, Permission, QuarantinedFile};
use ringfence_engine::{GrantTarget, PolicyFiles, allow_target_permanent, gather_host_environment};
use ringfence_policy::{AbsPath, Access, HostRule, ProviderSpec};

use crate::oneshot::FairLock;
use crate::permission::{exact_grant_for, grant_for};
use crate::protocol::{GrantAccess, SandboxBackend, SandboxGrant, SandboxInfo, SandboxStatus};
use crate::{
    Command, Confinement, ExecuteResult, SandboxConfig, SandboxError, SandboxProviderRegistry,
    SandboxSpec, SessionProvider, block_on,
};

/// Creates sandboxes on demand, one for each directory, and keeps them.
///
/// - If a sandbox cannot be created, the call fails and nothing runs. Only with the provider `local`
///   a policy can accept that (`fail-if-unavailable = false`).
/// - If the configuration is not `enabled`, commands run unconfined, and each result says so.
/// - A sandbox that died is recreated for the next command: a new shell in the first directory,
///   with all grants kept. So is a sandbox that cannot apply a narrowed policy live; other policy
///   changes are applied while it runs.
/// - A grant that the user gives afterwards applies from the next command on: the sandbox is
///   recreated, and the shell's state is lost. With an asker ([`SandboxManager::with_asker`]) the
///   access waits for the answer and then succeeds in place, and nothing is lost.
pub struct SandboxManager {
    config: SandboxConfig,
    registry: SandboxProviderRegistry,
    provider: SessionProvider,
    asker: Option<Arc<dyn Asker>>,
    state: Mutex<ManagerState>,
    create_lock: FairLock,
}

#[derive(Default)]
struct ManagerState {
    kept: HashMap<PathBuf, ManagedSandbox>,
    granted: Vec<SandboxGrant>,
    /// Grants made in a live sandbox, for the sandbox that replaces it.
    live_grants: HashMap<PathBuf, Vec<SandboxGrant>>,
    /// Files quarantined when an earlier sandbox ended; reported with the next result.
    quarantined: Vec<QuarantinedFile>,
    /// Reported with the first result.
    notes: Vec<String>,
}

struct ManagedSandbox {
    backend: Arc<dyn SandboxBackend>,
    /// The number of grants it was created with; grants are never removed.
    grants: usize,
}

impl SandboxManager {
    /// A manager with the built-in providers; no sandbox is created yet.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        Self::with_registry(config, SandboxProviderRegistry::default())
    }

    /// A manager with the given providers.
    pub fn with_registry(
        config: SandboxConfig,
        registry: SandboxProviderRegistry,
    ) -> Result<Self, SandboxError> {
        // Without a sandbox, commands run on this machine, not at another provider.
        let name = if config.enabled { &config.provider } else { ProviderSpec::LOCAL };
        let provider = registry.get(name)?;
        let state =
            Mutex::new(ManagerState { notes: config.notes.clone(), ..ManagerState::default() });
        Ok(Self {
            config,
            registry,
            provider,
            asker: None,
            state,
            create_lock: FairLock::default(),
        })
    }

    /// Sets the asker that is called while a command waits, if the provider supports it. An allowed
    /// access succeeds in place, and the shell lives on.
    pub fn with_asker(self, asker: Arc<dyn Asker>) -> Self {
        Self { asker: Some(asker), ..self }
    }

    /// Another manager with the same configuration and current grants. Sandboxes and later grants
    /// are not shared.
    pub fn isolated(&self) -> Result<Self, SandboxError> {
        let copy = Self::with_registry(self.config.clone(), self.registry.clone())?;
        copy.state().granted = self.state().granted.clone();
        Ok(Self { asker: self.asker.clone(), ..copy })
    }

    fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox for this directory, created if there is none.
    pub async fn get_sandbox(
        &self,
        cwd: impl AsRef<Path>,
    ) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
        let cwd = key(cwd.as_ref());
        let _guard = self.create_lock.enter().await;
        let (old, (granted, grants)) = {
            let mut state = self.state();
            let grants = state.granted.len();
            match state.kept.get(&cwd) {
                Some(kept) if kept.grants == grants => return Ok(kept.backend.clone()),
                _ => {
                    let live_grants = state.live_grants.get(&cwd).into_iter().flatten();
                    let all = state.granted.iter().chain(live_grants).cloned().collect();
                    (state.kept.remove(&cwd), (all, grants))
                }
            }
        };
        if let Some(old) = old {
            self.dispose_of(old).await?;
        }
        let confinement =
            if self.config.enabled { Confinement::Sandbox } else { Confinement::Unconfined };
        let backend = self.provider.create(self.spec(&cwd, granted, confinement)).await?;
        self.state().kept.insert(cwd, ManagedSandbox { backend: backend.clone(), grants });
        Ok(backend)
    }

    fn spec(
        &self,
        cwd: &Path,
        granted: Vec<SandboxGrant>,
        confinement: Confinement,
    ) -> SandboxSpec {
        SandboxSpec {
            cwd: cwd.to_owned(),
            policy: self.config.policy.clone(),
            granted,
            // A command that could write this file could grant itself any access.
            protected: self.config.file.iter().cloned().collect(),
            asker: self.asker.clone(),
            confinement,
            provider_options: self.config.provider_options.clone(),
        }
    }

    async fn dispose_of(&self, kept: ManagedSandbox) -> Result<(), SandboxError> {
        let moved = kept.backend.dispose().await?;
        self.state().quarantined.extend(moved);
        Ok(())
    }

    /// Runs a command in the sandbox for this directory. Dropping the future interrupts it.
    pub async fn execute(
        &self,
        cwd: impl AsRef<Path>,
        command: impl Into<Command>,
    ) -> Result<ExecuteResult, SandboxError> {
        let (cwd, command) = (key(cwd.as_ref()), command.into());
        let sandbox = self.get_sandbox(&cwd).await?;
        match sandbox.execute(command).await {
            Ok(mut result) => {
                let mut state = self.state();
                result.quarantined.append(&mut state.quarantined);
                result.warnings.append(&mut state.notes);
                let lasting =
                    result.granted.iter().filter(|granted| granted.answer != AskAnswer::AllowOnce);
                state
                    .live_grants
                    .entry(cwd)
                    .or_default()
                    .extend(lasting.filter_map(|granted| exact_grant_for(&granted.denial)));
                Ok(result)
            }
            Err(error @ (SandboxError::Gone { .. } | SandboxError::Narrowed { .. })) => {
                self.drop_sandbox(&cwd, sandbox.id()).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// [`SandboxManager::execute`] for programs without a runtime.
    pub fn execute_blocking(
        &self,
        cwd: impl AsRef<Path>,
        command: impl Into<Command>,
    ) -> Result<ExecuteResult, SandboxError> {
        block_on(self.execute(cwd, command))
    }

    /// Drops a sandbox that died or allows too much; the next command gets a new one.
    async fn drop_sandbox(&self, cwd: &Path, id: &str) {
        let dead = {
            let mut state = self.state();
            let is_same = state.kept.get(cwd).is_some_and(|kept| kept.backend.id() == id);
            if is_same { state.kept.remove(cwd) } else { None }
        };
        if let Some(dead) = dead {
            // The sandbox is of no further use, so an error while ending it changes nothing.
            let _ = self.dispose_of(dead).await;
        }
    }

    /// Opens a directory for reading and writing in all sandboxes, from the next command on.
    pub fn add_runtime_whitelist(&self, path: impl Into<String>) {
        self.grant(SandboxGrant { path: path.into(), access: GrantAccess::Write });
    }

    /// Adds a grant in all sandboxes, from the next command on.
    pub fn grant(&self, grant: SandboxGrant) {
        let mut state = self.state();
        if !state.granted.contains(&grant) {
            state.granted.push(grant);
        }
    }

    /// The permission to ask the user for after a blocked command. Its options are only those that
    /// can take effect.
    pub fn requires_permission(&self, result: &ExecuteResult) -> Option<Permission> {
        let (permission, denial) = (result.permission.clone()?, result.blocked_by.as_ref()?);
        let can_be_opened = grant_for(denial).is_some();
        let is_offered = |answer: &AskAnswer| match answer {
            AskAnswer::AllowOnce => self.config.allow_unsandboxed_commands,
            AskAnswer::AllowSession | AskAnswer::AllowPermanent => can_be_opened,
            AskAnswer::Deny => true,
        };
        let options: Vec<AskAnswer> =
            permission.options.iter().copied().filter(is_offered).collect();
        (options != [AskAnswer::Deny]).then_some(Permission { options, ..permission })
    }

    /// Applies the user's answer: allows the access for the session, or permanently with a line in
    /// the user's own policy file. After [`AskAnswer::AllowOnce`] run the command with
    /// [`SandboxManager::execute_outside`]; after the other allowing answers run it again.
    pub fn answer(
        &self,
        cwd: impl AsRef<Path>,
        result: &ExecuteResult,
        answer: AskAnswer,
    ) -> Result<(), SandboxError> {
        let not_offered = || SandboxError::NotOffered { what: answer.to_string() };
        let permission = self.requires_permission(result).ok_or_else(not_offered)?;
        if !permission.options.contains(&answer) {
            return Err(not_offered());
        }
        if matches!(answer, AskAnswer::AllowOnce | AskAnswer::Deny) {
            return Ok(());
        }
        self.allow(cwd.as_ref(), result.blocked_by.as_ref().ok_or_else(not_offered)?, answer)
    }

    /// Allows a denied access for the session or permanently.
    pub(crate) fn allow(
        &self,
        cwd: &Path,
        denial: &Denial,
        answer: AskAnswer,
    ) -> Result<(), SandboxError> {
        let grant = grant_for(denial)
            .ok_or_else(|| SandboxError::NotOffered { what: answer.to_string() })?;
        if answer == AskAnswer::AllowPermanent {
            save_grant(&key(cwd), &grant)?;
        }
        self.grant(grant);
        Ok(())
    }

    /// Runs one command outside of any sandbox, in a new shell. The configuration must permit it,
    /// and the user must have agreed.
    pub async fn execute_outside(
        &self,
        cwd: impl AsRef<Path>,
        command: impl Into<Command>,
    ) -> Result<ExecuteResult, SandboxError> {
        if !self.config.allow_unsandboxed_commands {
            return Err(SandboxError::NotOffered { what: AskAnswer::AllowOnce.to_string() });
        }
        let (cwd, command) = (key(cwd.as_ref()), command.into());
        let spec = self.spec(&cwd, Vec::new(), Confinement::Unconfined);
        let outside = self.provider.create(spec).await?;
        let result = outside.execute(command).await;
        outside.dispose().await?;
        result
    }

    /// The sandboxes it keeps.
    pub fn list(&self) -> Vec<SandboxInfo> {
        let info = |kept: &ManagedSandbox| SandboxInfo {
            id: kept.backend.id().to_owned(),
            status: SandboxStatus::Running,
        };
        let mut found: Vec<SandboxInfo> = self.state().kept.values().map(info).collect();
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Ends all sandboxes and returns the quarantined files. Grants are kept for later commands.
    pub async fn shutdown(&self) -> Result<Vec<QuarantinedFile>, SandboxError> {
        let _guard = self.create_lock.enter().await;
        let all: Vec<ManagedSandbox> = self.state().kept.drain().map(|(_, kept)| kept).collect();
        let mut failed = None;
        for kept in all {
            failed = self.dispose_of(kept).await.err().or(failed);
        }
        let moved = std::mem::take(&mut self.state().quarantined);
        failed.map_or(Ok(moved), Err)
    }
}

/// Adds one line to the user's own policy file.
fn save_grant(
    cwd: &Path,
    SandboxGrant { path, access: opens }: &SandboxGrant,
) -> Result<(), SandboxError> {
    let absolute = |path: &Path| {
        let why = "not absolute";
        AbsPath::new(path)
            .ok_or_else(|| SandboxError::Path { entry: path.display().to_string(), why })
    };
    let surroundings =
        gather_host_environment(&absolute(cwd)?).map_err(SandboxError::not_created)?;
    let target = match opens {
        GrantAccess::Read => GrantTarget::Path(absolute(Path::new(path))?, Access::Read),
        GrantAccess::Write => GrantTarget::Path(absolute(Path::new(path))?, Access::Write),
        GrantAccess::Connect => {
            let wrong = |_| SandboxError::Path { entry: path.clone(), why: "not a host" };
            GrantTarget::Host(HostRule::parse(path).map_err(wrong)?)
        }
    };
    let written = allow_target_permanent(&target, &PolicyFiles::default(), &surroundings.facts);
    written.map(drop).map_err(|source| SandboxError::NotAllowed { source: Box::new(source) })
}

/// The canonical path: one directory has one sandbox, whichever path names it.
fn key(cwd: &Path) -> PathBuf {
    fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned())
}
