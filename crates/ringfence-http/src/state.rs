//! The app state: data directory, tenants, policies, and everything that runs.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_audit::{
    AuditError, AuditLog, LogOptions, Record, RecordAction, RecordDetails, RecordResult,
    RecordSubject, now_ms,
};
use ringfence_engine::{
    CachedPolicy, EngineError, HostEnvironment, PolicyFiles, ResolvedPolicy, platform, resolve_in,
};
use ringfence_policy::{AbsPath, Effect, Facts, Flags, Fsync, Grants, Rule};
use ringfence_skills::{SkillId, SkillName, SkillStore};

use crate::asks::AskRegistry;
use crate::error::ApiError;
use crate::events::EventBus;
use crate::executions::{ExecutionRegistry, RunJournal};
use crate::metrics::Metrics;
use crate::sandboxes::SandboxRegistry;
use crate::tenants::{TenantRegistry, lock};
use crate::{ProviderFactory, ServeError, ServiceSettings};

/// The initial policy of a new service, chosen by the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Relies on the operating system alone; no rules on command text.
    #[default]
    Sandbox,
    /// The program list and argument rules of the filesecbox document, in addition to the sandbox.
    Filesecbox,
}

impl Profile {
    /// The text of the policy file.
    pub fn policy(self) -> &'static str {
        match self {
            Profile::Sandbox => include_str!("policy.sandbox.toml"),
            Profile::Filesecbox => include_str!("policy.toml"),
        }
    }
}

/// The initial policy for sandboxes, whose commands are not known in advance.
pub const SANDBOX_POLICY: &str = include_str!("sandboxes.toml");

/// Bytes that `/readyz` tries to write.
const PROBED: usize = 64 << 10;

/// Time for which `/readyz`, which needs no token, reuses its check of all tenants' policies.
const BROKEN_KNOWN: Duration = Duration::from_secs(10);

/// The number of cached policies.
const POLICIES: usize = 64;

pub(crate) struct AppState {
    pub(crate) settings: ServiceSettings,
    /// The canonical data directory.
    pub(crate) data: AbsPath,
    pub(crate) new_provider: ProviderFactory,
    pub(crate) store: SkillStore,
    pub(crate) tenants: TenantRegistry,
    pub(crate) executions: ExecutionRegistry,
    /// The journal of running commands, for the start after this service was killed.
    pub(crate) journal: RunJournal,
    pub(crate) sandboxes: SandboxRegistry,
    pub(crate) events: Arc<EventBus>,
    pub(crate) asks: Arc<AskRegistry>,
    pub(crate) metrics: Metrics,
    /// Policies of skills used recently, by skill directory.
    policies: Mutex<HashMap<AbsPath, CachedPolicy>>,
    /// The last result of `/readyz`, and its time.
    pub(crate) readiness: tokio::sync::Mutex<Option<(Instant, Result<String, ApiError>)>>,
    /// Tenants with an unusable policy, and the time of the check.
    broken: Mutex<Option<(Instant, BTreeSet<String>)>>,
}

impl AppState {
    pub(crate) fn open(
        settings: ServiceSettings,
        new_provider: ProviderFactory,
    ) -> Result<(Self, Option<String>), ServeError> {
        let data = prepare_data_dir(&settings.data)?;
        // The lock is held while the store is open: a second service would replace skills in use.
        let store = SkillStore::open(data.as_path(), settings.bounds.clone())?;
        let profile = settings.profile.unwrap_or_default();
        check_profile(&data.join("policy.toml"), settings.profile)?;
        for (name, text) in [("policy.toml", profile.policy()), ("sandboxes.toml", SANDBOX_POLICY)]
        {
            let policy = data.join(name);
            if !policy.as_path().exists() {
                write_synced(policy.as_path(), text.as_bytes())
                    .map_err(|source| data_error(&policy, source))?;
            }
        }
        let (tenants, made) = TenantRegistry::open(&data, &settings)?;
        let events = Arc::new(EventBus::default());
        let executions = ExecutionRegistry::new(settings.max_concurrent_commands);
        let running = data.join("running.jsonl");
        let journal = RunJournal::open(&running).map_err(|source| data_error(&running, source))?;
        let asks = Arc::new(AskRegistry::new(events.clone()));
        let metrics = Metrics::default();
        let sandboxes = SandboxRegistry::default();
        let app = Self {
            settings,
            data,
            new_provider,
            store,
            tenants,
            executions,
            policies: Mutex::default(),
            journal,
            sandboxes,
            events,
            asks,
            metrics,
            readiness: tokio::sync::Mutex::default(),
            broken: Mutex::default(),
        };
        // A policy error is reported at startup, not to the first tenant.
        app.check_confinement()?;
        Ok((app, made))
    }

    /// Checks that a command could be confined now.
    pub(crate) fn check_confinement(&self) -> Result<(), ServeError> {
        let no_skill = self.data.join("skills");
        for files in [self.skill_policy_files(), self.sandbox_policy_files()] {
            let mut resolved = resolve_in(
                self.skill_environment("-", &no_skill),
                &Flags::none(no_skill.clone()),
                &files,
            )?;
            resolved.grants.sandbox.is_required = true;
            let provider = (self.new_provider)();
            ringfence_engine::plan(provider.as_ref(), &resolved)?;
        }
        Ok(())
    }

    /// Checks that the records of a command could be written.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        let probe =
            self.data.join("staging").join(format!("probe-{}", ringfence_audit::session_id()));
        let written = write_unsynced(probe.as_path(), &[0; PROBED]);
        let _ = fs::remove_file(probe.as_path());
        written
    }

    /// The number of tenants with an unusable policy. The log names each once.
    pub(crate) fn broken_policies(&self) -> usize {
        let mut known = lock(&self.broken);
        if let Some((_, broken)) =
            known.as_ref().filter(|(since, _)| since.elapsed() < BROKEN_KNOWN)
        {
            return broken.len();
        }
        let before = known.take().map(|(_, broken)| broken).unwrap_or_default();
        let Ok(tenants) = fs::read_dir(self.data.join("tenants").as_path()) else { return 0 };
        let names =
            tenants.flatten().filter(|tenant| tenant.path().join("ringfence/policy.toml").exists());
        let names = names.map(|tenant| tenant.file_name().to_string_lossy().into_owned());
        let no_skill = self.data.join("skills");
        let is_broken = |user: &String| {
            let resolved = resolve_in(
                self.skill_environment(user, &no_skill),
                &Flags::none(no_skill.clone()),
                &self.skill_policy_files(),
            );
            let is_new = !before.contains(user);
            resolved
                .inspect_err(|error| {
                    if is_new {
                        crate::server::log::log_failure(error)
                    }
                })
                .is_err()
        };
        let broken: BTreeSet<String> = names.filter(is_broken).collect();
        let count = broken.len();
        *known = Some((Instant::now(), broken));
        count
    }

    /// The policy files of skills: the service's, and the tenant's above it.
    pub(crate) fn skill_policy_files(&self) -> PolicyFiles {
        PolicyFiles { service: Some(self.data.join("policy.toml")), ..PolicyFiles::default() }
    }

    /// The policy files of sandboxes.
    pub(crate) fn sandbox_policy_files(&self) -> PolicyFiles {
        PolicyFiles { service: Some(self.data.join("sandboxes.toml")), ..PolicyFiles::default() }
    }

    /// The directory of a tenant's data that no command sees.
    pub(crate) fn tenant(&self, user: &str) -> AbsPath {
        self.data.join("tenants").join(user)
    }

    /// The environment of a tenant's commands: nothing of the operator's.
    pub(crate) fn skill_environment(&self, user: &str, workspace: &AbsPath) -> HostEnvironment {
        self.tenant_environment(user, workspace, "skill")
    }

    fn tenant_environment(&self, user: &str, workspace: &AbsPath, inside: &str) -> HostEnvironment {
        let own = self.tenant(user);
        let passed = |name: &str| std::env::var_os(name).map(|value| (OsString::from(name), value));
        let mut variables: Vec<(OsString, OsString)> =
            ["LANG", "LC_ALL"].iter().filter_map(|name| passed(name)).collect();
        variables.push(("USER".into(), inside.into()));
        let mut facts = Facts::minimal(workspace.clone(), own.join("home"), own.join("store"));
        facts.user = inside.into();
        facts.platform = platform();
        facts.state = own.clone();
        // The tenant's own policy is found like a user's policy.
        facts.variables.insert("XDG_CONFIG_HOME".into(), own.to_string());
        facts.path_dirs =
            ["/usr/local/bin", "/usr/bin", "/bin"].iter().filter_map(AbsPath::new).collect();
        HostEnvironment::for_other_user(facts, variables)
    }

    /// The policy for a skill before it is narrowed to the skill's needs.
    pub(crate) fn policy(
        &self,
        id: &SkillId,
        directory: &AbsPath,
    ) -> Result<ResolvedPolicy, EngineError> {
        let mut resolved = match self.cached_policy(directory) {
            Some(known) => known,
            None => {
                let surroundings = self.skill_environment(id.user.as_ref(), directory);
                let (resolved, kept) = CachedPolicy::resolve(
                    surroundings,
                    &Flags::none(directory.clone()),
                    &self.skill_policy_files(),
                )?;
                let mut policies = lock(&self.policies);
                if policies.len() >= POLICIES {
                    policies.clear();
                }
                policies.extend(kept.map(|kept| (directory.clone(), kept)));
                resolved
            }
        };
        self.remove_exposed_rules(&mut resolved.grants);
        resolved.grants.sandbox.is_required = true;
        Ok(resolved)
    }

    /// The cached policy for a skill, if its files are unchanged.
    fn cached_policy(&self, directory: &AbsPath) -> Option<ResolvedPolicy> {
        let mut policies = lock(&self.policies);
        let known = policies.get(directory).and_then(|kept| kept.current().cloned());
        if known.is_none() {
            policies.remove(directory);
        }
        known
    }

    /// The policy for a sandbox before it is narrowed to the request.
    pub(crate) fn sandbox_policy(
        &self,
        user: &SkillName,
        workspace: &AbsPath,
    ) -> Result<ResolvedPolicy, EngineError> {
        let surroundings = self.tenant_environment(user.as_ref(), workspace, "sandbox");
        let mut resolved = resolve_in(
            surroundings,
            &Flags::none(workspace.clone()),
            &self.sandbox_policy_files(),
        )?;
        self.remove_exposed_rules(&mut resolved.grants);
        resolved.grants.sandbox.is_required = true;
        Ok(resolved)
    }

    /// Removes rules that would open the service's own data or other tenants' data, or a directory
    /// above them. A deny rule would not do: nothing inside a denied path can be open, and the
    /// workspace is inside.
    fn remove_exposed_rules(&self, grants: &mut Grants) {
        let workspace = grants.workspace.clone();
        let is_exposed = |rule: &Rule| {
            let opens_host = matches!(rule.effect, Effect::Read | Effect::Write);
            opens_host && is_service_data(&rule.root, &self.data, &workspace)
        };
        let (exposed, kept): (Vec<Rule>, Vec<Rule>) =
            std::mem::take(&mut grants.rules).into_iter().partition(is_exposed);
        grants.rules = kept;
        let said = exposed
            .iter()
            .map(|rule| format!("{} stays closed: it holds the service's own data", rule.root));
        grants.warnings.extend(said);
    }

    /// Records an action on a tenant's data, or its denial, in the tenant's log.
    pub(crate) fn record(&self, user: &SkillName, make: impl FnOnce(&RecordSubject) -> Record) {
        self.record_in(&self.tenant(user.as_ref()).join("audit"), Some(user.to_string()), make);
    }

    /// Records in the service's own log.
    pub(crate) fn record_in_service_log(&self, make: impl FnOnce(&RecordSubject) -> Record) {
        self.record_in(&self.data.join("audit"), None, make);
    }

    /// Records a change by an administrator.
    pub(crate) fn record_change(&self, user: Option<&SkillName>, what: &str) {
        let record = |subject: &RecordSubject| Record {
            timestamp: now_ms(),
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Manage,
            target: what.to_owned(),
            result: RecordResult::Allowed,
            policy: "service".into(),
            reason: None,
            details: RecordDetails::None {},
        };
        self.record_in_service_log(record);
        if let Some(user) = user {
            self.record(user, record);
        }
    }

    fn record_in(
        &self,
        directory: &AbsPath,
        agent: Option<String>,
        make: impl FnOnce(&RecordSubject) -> Record,
    ) {
        let subject = RecordSubject { agent, session: "service".into() };
        let record = make(&subject);
        if let Err(error) = append(directory.as_path(), &record) {
            crate::server::log::log_failure(&error);
        }
    }

    /// Creates the directories of a tenant, if missing.
    pub(crate) fn create_tenant_dirs(&self, user: &SkillName) -> io::Result<()> {
        let own = self.tenant(user.as_ref());
        for directory in [own.clone(), own.join("executions"), own.join("ringfence")] {
            make_directory(directory.as_path())?;
        }
        Ok(())
    }
}

/// True if a path is in the service's data or contains it, and is not in the workspace.
pub(crate) fn is_service_data(path: &AbsPath, data: &AbsPath, workspace: &AbsPath) -> bool {
    (path.is_within(data) || data.is_within(path)) && !path.is_within(workspace)
}

pub(crate) fn append(directory: &Path, record: &Record) -> Result<(), AuditError> {
    let options = LogOptions { fsync: Fsync::Never, rotate_bytes: 64 << 20 };
    let mut log = AuditLog::open(directory, options)?;
    log.append(std::slice::from_ref(record))?;
    log.finish()
}

/// Rejects a policy file of another profile: its rules are not those the operator asks for.
fn check_profile(file: &AbsPath, profile: Option<Profile>) -> Result<(), ServeError> {
    let (Some(profile), Ok(text)) = (profile, fs::read_to_string(file.as_path())) else {
        return Ok(());
    };
    let is_other_profile = [Profile::Sandbox, Profile::Filesecbox]
        .iter()
        .any(|other| *other != profile && text == other.policy());
    if is_other_profile {
        Err(ServeError::Profile { path: file.as_path().to_owned() })
    } else {
        Ok(())
    }
}

/// Prepares the data directory: created if missing, writable by no other user.
fn prepare_data_dir(path: &Path) -> Result<AbsPath, ServeError> {
    let fail = |source| ServeError::Data { path: path.to_owned(), source };
    let whole = std::path::absolute(path).map_err(fail)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&whole).map_err(fail)?;
    let real = fs::canonicalize(&whole).map_err(fail)?;
    let metadata = fs::metadata(&real).map_err(fail)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || metadata.mode() & 0o022 != 0 {
        return Err(fail(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users can write to it",
        )));
    }
    let data = AbsPath::new(&real).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
    make_directory(data.join("tenants").as_path()).map_err(fail)?;
    Ok(data)
}

pub(crate) fn data_error(path: &AbsPath, source: io::Error) -> ServeError {
    ServeError::Data { path: path.as_path().to_owned(), source }
}

pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Writes a file atomically, with fsync.
pub(crate) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, bytes, |file| file.sync_all())
}

/// Writes a file atomically, without fsync: for data that has no value after a power failure.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_with(path, bytes, |_| Ok(()))
}

fn write_with(path: &Path, bytes: &[u8], sync: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", ringfence_audit::session_id()));
    let temporary: PathBuf = path.with_file_name(name);
    let written =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary).and_then(
            |mut file| {
                file.write_all(bytes)?;
                sync(&file)?;
                fs::rename(&temporary, path)
            },
        );
    written.inspect_err(|_| drop(fs::remove_file(&temporary)))
}
