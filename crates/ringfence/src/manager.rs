//! Sandboxes that are there when they are needed.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringfence_api::{AskAnswer, Asker, Denial, Permission, QuarantinedFile};
use ringfence_engine::{GrantTarget, PolicyFiles, gather, open_for_good};
use ringfence_policy::{AbsPath, Access, HostRule};

use crate::oneshot::FairLock;
use crate::permission::{what_opens, what_was_opened};
use crate::protocol::{
    Confinement, GrantAccess, SandboxBackend, SandboxCreateOptions, SandboxGrant, SandboxInfo,
    SandboxProvider, SandboxStatus,
};
use crate::{
    Command, ExecuteResult, LocalSandboxProvider, SandboxConfig, SandboxError,
    SandboxProviderRegistry, block_on,
};

/// Makes sandboxes when they are needed, one for each directory, and keeps them.
///
/// - A sandbox that cannot be made is an error, and nothing runs.
/// - Where the configuration is not `enabled`, commands run unconfined, and each result says so.
/// - A sandbox that died is made anew for the next command: a fresh shell in the first
///   directory, with all grants kept. So is one that cannot be made to allow as little as a
///   policy file that was changed; other changes are taken over while it runs.
/// - What a person grants afterwards holds from the next command on: the sandbox is made anew
///   for it, and what its shell held is lost. With an asker ([`SandboxManager::with_asker`])
///   the access itself waits, goes through in place, and nothing is lost.
pub struct SandboxManager {
    config: SandboxConfig,
    registry: SandboxProviderRegistry,
    provider: Arc<dyn SandboxProvider>,
    asker: Option<Arc<dyn Asker>>,
    state: Mutex<ManagerState>,
    making: FairLock,
}

#[derive(Default)]
struct ManagerState {
    kept: HashMap<PathBuf, ManagedSandbox>,
    granted: Vec<SandboxGrant>,
    /// What was opened in a sandbox that stands: for the one that takes its place.
    in_place: HashMap<PathBuf, Vec<SandboxGrant>>,
    /// Moved away when a sandbox before this one ended; for the next result.
    quarantined: Vec<QuarantinedFile>,
    /// For the first result.
    notes: Vec<String>,
}

struct ManagedSandbox {
    backend: Arc<dyn SandboxBackend>,
    /// How many grants it was made with: there are only ever more.
    grants: usize,
}

impl SandboxManager {
    /// With the providers there are; nothing is made yet.
    pub fn new(config: SandboxConfig) -> Result<Self, SandboxError> {
        Self::with_registry(config, SandboxProviderRegistry::default())
    }

    /// With these providers.
    pub fn with_registry(
        config: SandboxConfig,
        registry: SandboxProviderRegistry,
    ) -> Result<Self, SandboxError> {
        // Whoever switches the sandbox off runs commands here, not in some other place.
        let provider = registry.get(if config.enabled {
            &config.provider
        } else {
            LocalSandboxProvider::NAME
        })?;
        let state =
            Mutex::new(ManagerState { notes: config.notes.clone(), ..ManagerState::default() });
        Ok(Self { config, registry, provider, asker: None, state, making: FairLock::default() })
    }

    /// With somebody who is asked while a command waits, where the place can ask: what they
    /// allow goes through in place, and the shell lives on.
    pub fn with_asker(self, asker: Arc<dyn Asker>) -> Self {
        Self { asker: Some(asker), ..self }
    }

    /// Another manager with the same configuration and the grants so far, for a part of the
    /// program that is to share nothing else: sandboxes and later grants are its own.
    pub fn isolated(&self) -> Result<Self, SandboxError> {
        let copy = Self::with_registry(self.config.clone(), self.registry.clone())?;
        copy.state().granted = self.state().granted.clone();
        Ok(Self { asker: self.asker.clone(), ..copy })
    }

    fn state(&self) -> MutexGuard<'_, ManagerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sandbox for this directory, made if there is none.
    pub async fn get_sandbox(
        &self,
        cwd: impl AsRef<Path>,
    ) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
        let cwd = key(cwd.as_ref());
        let _pass = self.making.enter().await;
        let (old, (granted, grants)) = {
            let mut state = self.state();
            let grants = state.granted.len();
            match state.kept.get(&cwd) {
                Some(kept) if kept.grants == grants => return Ok(kept.backend.clone()),
                _ => {
                    let in_place = state.in_place.get(&cwd).into_iter().flatten();
                    let all = state.granted.iter().chain(in_place).cloned().collect();
                    (state.kept.remove(&cwd), (all, grants))
                }
            }
        };
        if let Some(old) = old {
            self.put_away(old).await?;
        }
        let confinement =
            if self.config.enabled { Confinement::Sandbox } else { Confinement::Unconfined };
        let backend = self.provider.create(self.options(&cwd, granted, confinement)).await?;
        self.state().kept.insert(cwd, ManagedSandbox { backend: backend.clone(), grants });
        Ok(backend)
    }

    fn options(
        &self,
        cwd: &Path,
        granted: Vec<SandboxGrant>,
        confinement: Confinement,
    ) -> SandboxCreateOptions {
        SandboxCreateOptions {
            cwd: cwd.to_owned(),
            policy: self.config.policy.clone(),
            granted,
            // Whoever could write there would grant themselves what they like.
            protected: self.config.file.iter().cloned().collect(),
            asker: self.asker.clone(),
            confinement,
            provider_options: self.config.provider_options.clone(),
        }
    }

    async fn put_away(&self, kept: ManagedSandbox) -> Result<(), SandboxError> {
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
                    .in_place
                    .entry(cwd)
                    .or_default()
                    .extend(lasting.filter_map(|granted| what_was_opened(&granted.denial)));
                Ok(result)
            }
            Err(error @ (SandboxError::Gone { .. } | SandboxError::Narrowed { .. })) => {
                self.forget(&cwd, sandbox.id()).await;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The same for programs without a runtime.
    pub fn execute_blocking(
        &self,
        cwd: impl AsRef<Path>,
        command: impl Into<Command>,
    ) -> Result<ExecuteResult, SandboxError> {
        block_on(self.execute(cwd, command))
    }

    /// The next command gets another sandbox than the one that died, or allows too much.
    async fn forget(&self, cwd: &Path, id: &str) {
        let dead = {
            let mut state = self.state();
            let is_it = state.kept.get(cwd).is_some_and(|kept| kept.backend.id() == id);
            if is_it { state.kept.remove(cwd) } else { None }
        };
        if let Some(dead) = dead {
            // It is of no more use: what can still go wrong does not change that.
            let _ = self.put_away(dead).await;
        }
    }

    /// Opens a directory for reading and writing in all sandboxes, from the next command on.
    pub fn add_runtime_whitelist(&self, path: impl Into<String>) {
        self.grant(SandboxGrant { path: path.into(), opens: GrantAccess::Writing });
    }

    /// The same for what a grant says.
    pub fn grant(&self, grant: SandboxGrant) {
        let mut state = self.state();
        if !state.granted.contains(&grant) {
            state.granted.push(grant);
        }
    }

    /// What to ask a person about a command that was blocked, with what they may answer. Only
    /// what can be had is offered.
    pub fn requires_permission(&self, result: &ExecuteResult) -> Option<Permission> {
        let (permission, denial) = (result.permission.clone()?, result.blocked_by.as_ref()?);
        let can_be_opened = what_opens(denial).is_some();
        let is_offered = |answer: &AskAnswer| match answer {
            AskAnswer::AllowOnce => self.config.allow_unsandboxed_commands,
            AskAnswer::AllowSession | AskAnswer::AllowPermanent => can_be_opened,
            AskAnswer::Deny => true,
        };
        let options: Vec<AskAnswer> =
            permission.options.iter().copied().filter(is_offered).collect();
        (options != [AskAnswer::Deny]).then_some(Permission { options, ..permission })
    }

    /// Does what a person answered: opens what was wanted, for as long as they said; for good
    /// is a line in their own policy file. After [`Answer::AllowOnce`] run the command with
    /// [`SandboxManager::execute_outside`], after other consent run it again.
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

    /// Opens what was refused, for the session or for good.
    pub(crate) fn allow(
        &self,
        cwd: &Path,
        denial: &Denial,
        answer: AskAnswer,
    ) -> Result<(), SandboxError> {
        let grant = what_opens(denial)
            .ok_or_else(|| SandboxError::NotOffered { what: answer.to_string() })?;
        if answer == AskAnswer::AllowPermanent {
            write_down(&key(cwd), &grant)?;
        }
        self.grant(grant);
        Ok(())
    }

    /// Runs one command outside of any sandbox, in a shell of its own: only where the
    /// configuration allows it, and only for a person who said so.
    pub async fn execute_outside(
        &self,
        cwd: impl AsRef<Path>,
        command: impl Into<Command>,
    ) -> Result<ExecuteResult, SandboxError> {
        if !self.config.allow_unsandboxed_commands {
            return Err(SandboxError::NotOffered { what: AskAnswer::AllowOnce.to_string() });
        }
        let (cwd, command) = (key(cwd.as_ref()), command.into());
        let local = self.registry.get(LocalSandboxProvider::NAME)?;
        let outside = local.create(self.options(&cwd, Vec::new(), Confinement::Unconfined)).await?;
        let result = outside.execute(command).await;
        outside.dispose().await?;
        result
    }

    /// The sandboxes that it keeps.
    pub fn list(&self) -> Vec<SandboxInfo> {
        let info = |kept: &ManagedSandbox| SandboxInfo {
            id: kept.backend.id().to_owned(),
            status: SandboxStatus::Running,
        };
        let mut found: Vec<SandboxInfo> = self.state().kept.values().map(info).collect();
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        found
    }

    /// Ends all of them; grants are kept, should there be another command. Answers what was
    /// moved away before anyone could stumble over it.
    pub async fn shutdown(&self) -> Result<Vec<QuarantinedFile>, SandboxError> {
        let _pass = self.making.enter().await;
        let all: Vec<ManagedSandbox> = self.state().kept.drain().map(|(_, kept)| kept).collect();
        let mut failed = None;
        for kept in all {
            failed = self.put_away(kept).await.err().or(failed);
        }
        let moved = std::mem::take(&mut self.state().quarantined);
        failed.map_or(Ok(moved), Err)
    }
}

/// One more line in the person's own policy file.
fn write_down(cwd: &Path, SandboxGrant { path, opens }: &SandboxGrant) -> Result<(), SandboxError> {
    let absolute = |path: &Path| {
        let why = "it is not absolute";
        AbsPath::new(path)
            .ok_or_else(|| SandboxError::Path { entry: path.display().to_string(), why })
    };
    let surroundings = gather(&absolute(cwd)?).map_err(SandboxError::not_created)?;
    let opening = match opens {
        GrantAccess::Reading => GrantTarget::Path(absolute(Path::new(path))?, Access::Read),
        GrantAccess::Writing => GrantTarget::Path(absolute(Path::new(path))?, Access::Write),
        GrantAccess::Connecting => {
            let wrong = |_| SandboxError::Path { entry: path.clone(), why: "it is no host" };
            GrantTarget::Host(HostRule::parse(path).map_err(wrong)?)
        }
    };
    let written = open_for_good(&opening, &PolicyFiles::default(), &surroundings.facts);
    written.map(drop).map_err(|source| SandboxError::NotAllowed { source: Box::new(source) })
}

/// One directory has one sandbox, by whatever name.
fn key(cwd: &Path) -> PathBuf {
    fs::canonicalize(cwd).unwrap_or_else(|_| cwd.to_owned())
}
