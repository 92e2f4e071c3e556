//! What all requests share: where things are kept, who may do what, and what is going on.

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

/// The policy of a new service, as its operator chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// Relies on the operating system alone; no rules on the text of commands.
    #[default]
    Sandbox,
    /// The list of programs and the rules on arguments of the source document, before the sandbox.
    Filesecbox,
}

impl Profile {
    /// Text of the policy file.
    pub fn policy(self) -> &'static str {
        match self {
            Profile::Sandbox => include_str!("policy.sandbox.toml"),
            Profile::Filesecbox => include_str!("policy.toml"),
        }
    }
}

/// The same for sandboxes, whose commands nobody chose beforehand.
pub const SANDBOX_POLICY: &str = include_str!("sandboxes.toml");

/// Bytes that `/readyz` tries to write.
const PROBED: usize = 64 << 10;

/// For so long `/readyz`, which needs no token, does not resolve the policies of all tenants again.
const BROKEN_KNOWN: Duration = Duration::from_secs(10);

/// So many are kept.
const POLICIES: usize = 64;

pub(crate) struct AppState {
    pub(crate) settings: ServiceSettings,
    /// Canonical.
    pub(crate) data: AbsPath,
    pub(crate) place: ProviderFactory,
    pub(crate) store: SkillStore,
    pub(crate) tenants: TenantRegistry,
    pub(crate) executions: ExecutionRegistry,
    /// What runs, for whoever starts after this service was killed.
    pub(crate) journal: RunJournal,
    pub(crate) sandboxes: SandboxRegistry,
    pub(crate) events: Arc<EventBus>,
    pub(crate) asks: Arc<AskRegistry>,
    pub(crate) metrics: Metrics,
    /// Those of skills whose commands ran lately, by their directories.
    policies: Mutex<HashMap<AbsPath, CachedPolicy>>,
    /// The last time that `/readyz` looked, and its answer.
    pub(crate) looked: tokio::sync::Mutex<Option<(Instant, Result<String, ApiError>)>>,
    /// Tenants whose policy could not be used, and since when that is known.
    broken: Mutex<Option<(Instant, BTreeSet<String>)>>,
}

impl AppState {
    pub(crate) fn open(
        settings: ServiceSettings,
        place: ProviderFactory,
    ) -> Result<(Self, Option<String>), ServeError> {
        let data = prepared(&settings.data)?;
        // Locked for as long as it is open: two services would replace what the other one runs.
        let store = SkillStore::open(data.as_path(), settings.bounds.clone())?;
        let profile = settings.profile.unwrap_or_default();
        must_be_of(&data.join("policy.toml"), settings.profile)?;
        for (name, text) in [("policy.toml", profile.policy()), ("sandboxes.toml", SANDBOX_POLICY)]
        {
            let policy = data.join(name);
            if !policy.as_path().exists() {
                put(policy.as_path(), text.as_bytes()).map_err(|source| of(&policy, source))?;
            }
        }
        let (tenants, made) = TenantRegistry::open(&data, &settings)?;
        let events = Arc::new(EventBus::default());
        let executions = ExecutionRegistry::new(settings.at_once);
        let running = data.join("running.jsonl");
        let journal = RunJournal::open(&running).map_err(|source| of(&running, source))?;
        let asks = Arc::new(AskRegistry::new(events.clone()));
        let metrics = Metrics::default();
        let sandboxes = SandboxRegistry::default();
        let house = Self {
            settings,
            data,
            place,
            store,
            tenants,
            executions,
            policies: Mutex::default(),
            journal,
            sandboxes,
            events,
            asks,
            metrics,
            looked: tokio::sync::Mutex::default(),
            broken: Mutex::default(),
        };
        // What is wrong with the policy is said now, and not to the first tenant.
        house.trial()?;
        Ok((house, made))
    }

    /// Whether a command could be confined now.
    pub(crate) fn trial(&self) -> Result<(), ServeError> {
        let no_skill = self.data.join("skills");
        for files in [self.files(), self.sandbox_files()] {
            let resolved = resolve_in(
                self.surroundings("-", &no_skill),
                &Flags::none(no_skill.clone()),
                &files,
            )?;
            let provider = (self.place)();
            ringfence_engine::plan(provider.as_ref(), &resolved)?;
        }
        Ok(())
    }

    /// Tries to write as much data as the records of a command need.
    pub(crate) fn has_room(&self) -> io::Result<()> {
        let probe =
            self.data.join("staging").join(format!("probe-{}", ringfence_audit::session_id()));
        let written = put_lightly(probe.as_path(), &[0; PROBED]);
        let _ = fs::remove_file(probe.as_path());
        written
    }

    /// Number of tenants whose policy cannot be used. The log names each once.
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
                self.surroundings(user, &no_skill),
                &Flags::none(no_skill.clone()),
                &self.files(),
            );
            let is_new = !before.contains(user);
            resolved
                .inspect_err(|error| {
                    if is_new {
                        crate::server::log::failed(error)
                    }
                })
                .is_err()
        };
        let broken: BTreeSet<String> = names.filter(is_broken).collect();
        let count = broken.len();
        *known = Some((Instant::now(), broken));
        count
    }

    /// Which policies hold: the service's, and above it the tenant's.
    pub(crate) fn files(&self) -> PolicyFiles {
        PolicyFiles { service: Some(self.data.join("policy.toml")), ..PolicyFiles::default() }
    }

    /// The same for sandboxes.
    pub(crate) fn sandbox_files(&self) -> PolicyFiles {
        PolicyFiles { service: Some(self.data.join("sandboxes.toml")), ..PolicyFiles::default() }
    }

    /// Where things of a tenant are that no command sees.
    pub(crate) fn tenant(&self, user: &str) -> AbsPath {
        self.data.join("tenants").join(user)
    }

    /// What commands of a tenant find around them: nothing of whoever runs the service.
    pub(crate) fn surroundings(&self, user: &str, workspace: &AbsPath) -> HostEnvironment {
        self.around(user, workspace, "skill")
    }

    fn around(&self, user: &str, workspace: &AbsPath, inside: &str) -> HostEnvironment {
        let own = self.tenant(user);
        let passed = |name: &str| std::env::var_os(name).map(|value| (OsString::from(name), value));
        let mut variables: Vec<(OsString, OsString)> =
            ["LANG", "LC_ALL"].iter().filter_map(|name| passed(name)).collect();
        variables.push(("USER".into(), inside.into()));
        let mut facts = Facts::plain(workspace.clone(), own.join("home"), own.join("store"));
        facts.user = inside.into();
        facts.platform = platform();
        facts.state = own.clone();
        // The tenant's own policy is found where a person's would be.
        facts.variables.insert("XDG_CONFIG_HOME".into(), own.to_string());
        facts.path_dirs =
            ["/usr/local/bin", "/usr/bin", "/bin"].iter().filter_map(AbsPath::new).collect();
        HostEnvironment::of_somebody(facts, variables)
    }

    /// The policy for a skill: the tenant's, before anything of it is taken away.
    pub(crate) fn policy(
        &self,
        id: &SkillId,
        directory: &AbsPath,
    ) -> Result<ResolvedPolicy, EngineError> {
        let mut resolved = match self.known_policy(directory) {
            Some(known) => known,
            None => {
                let surroundings = self.surroundings(id.user.as_ref(), directory);
                let (resolved, kept) = CachedPolicy::resolve(
                    surroundings,
                    &Flags::none(directory.clone()),
                    &self.files(),
                )?;
                let mut policies = lock(&self.policies);
                if policies.len() >= POLICIES {
                    policies.clear();
                }
                policies.extend(kept.map(|kept| (directory.clone(), kept)));
                resolved
            }
        };
        self.fence(&mut resolved.grants);
        Ok(resolved)
    }

    /// The same, if it was asked for before and says what it said.
    fn known_policy(&self, directory: &AbsPath) -> Option<ResolvedPolicy> {
        let mut policies = lock(&self.policies);
        let known = policies.get(directory).and_then(|kept| kept.current().cloned());
        if known.is_none() {
            policies.remove(directory);
        }
        known
    }

    /// The policy for a sandbox: the tenant's, before anything of it is taken away.
    pub(crate) fn sandbox_policy(
        &self,
        user: &SkillName,
        workspace: &AbsPath,
    ) -> Result<ResolvedPolicy, EngineError> {
        let surroundings = self.around(user.as_ref(), workspace, "sandbox");
        let mut resolved =
            resolve_in(surroundings, &Flags::none(workspace.clone()), &self.sandbox_files())?;
        self.fence(&mut resolved.grants);
        Ok(resolved)
    }

    /// Takes back whatever would open what is the service's and other tenants', be it the whole of
    /// it or something around it. It cannot be denied instead: what is denied has nothing open in
    /// it.
    fn fence(&self, grants: &mut Grants) {
        let workspace = grants.workspace.clone();
        let is_exposed = |rule: &Rule| {
            let opens_host = matches!(rule.effect, Effect::Read | Effect::Write);
            opens_host && is_ours(&rule.root, &self.data, &workspace)
        };
        let (exposed, kept): (Vec<Rule>, Vec<Rule>) =
            std::mem::take(&mut grants.rules).into_iter().partition(is_exposed);
        grants.rules = kept;
        let said = exposed
            .iter()
            .map(|rule| format!("{} is not opened: the service's own data lies there", rule.root));
        grants.warnings.extend(said);
    }

    /// Records what was done with a tenant's things, or refused, in the tenant's log.
    pub(crate) fn record(&self, user: &SkillName, make: impl FnOnce(&RecordSubject) -> Record) {
        self.record_in(&self.tenant(user.as_ref()).join("audit"), Some(user.to_string()), make);
    }

    /// The same in the service's own log.
    pub(crate) fn record_own(&self, make: impl FnOnce(&RecordSubject) -> Record) {
        self.record_in(&self.data.join("audit"), None, make);
    }

    /// Records that something was changed by an administrator.
    pub(crate) fn managed(&self, user: Option<&SkillName>, what: &str) {
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
        self.record_own(record);
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
            crate::server::log::failed(&error);
        }
    }

    /// Makes the places of a tenant, if they are not there.
    pub(crate) fn settle(&self, user: &SkillName) -> io::Result<()> {
        let own = self.tenant(user.as_ref());
        for directory in [own.clone(), own.join("executions"), own.join("ringfence")] {
            make_directory(directory.as_path())?;
        }
        Ok(())
    }
}

/// Whether a path is the service's own or holds that, and not what a command is for.
pub(crate) fn is_ours(path: &AbsPath, data: &AbsPath, workspace: &AbsPath) -> bool {
    (path.is_within(data) || data.is_within(path)) && !path.is_within(workspace)
}

pub(crate) fn append(directory: &Path, record: &Record) -> Result<(), AuditError> {
    let options = LogOptions { fsync: Fsync::Never, rotate_bytes: 64 << 20 };
    let mut log = AuditLog::open(directory, options)?;
    log.append(std::slice::from_ref(record))?;
    log.finish()
}

/// Refuses a policy file that another profile wrote: its rules are not those that the operator asks
/// for.
fn must_be_of(file: &AbsPath, profile: Option<Profile>) -> Result<(), ServeError> {
    let (Some(profile), Ok(text)) = (profile, fs::read_to_string(file.as_path())) else {
        return Ok(());
    };
    let is_others = [Profile::Sandbox, Profile::Filesecbox]
        .iter()
        .any(|other| *other != profile && text == other.policy());
    if is_others { Err(ServeError::Profile { path: file.as_path().to_owned() }) } else { Ok(()) }
}

/// The directory of everything: made if it is not there, and nobody else's.
fn prepared(path: &Path) -> Result<AbsPath, ServeError> {
    let fail = |source| ServeError::Data { path: path.to_owned(), source };
    let whole = std::path::absolute(path).map_err(fail)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&whole).map_err(fail)?;
    let real = fs::canonicalize(&whole).map_err(fail)?;
    let metadata = fs::metadata(&real).map_err(fail)?;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || metadata.mode() & 0o022 != 0 {
        return Err(fail(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "others can write there",
        )));
    }
    let data = AbsPath::new(&real).ok_or_else(|| fail(io::ErrorKind::InvalidInput.into()))?;
    make_directory(data.join("tenants").as_path()).map_err(fail)?;
    Ok(data)
}

pub(crate) fn of(path: &AbsPath, source: io::Error) -> ServeError {
    ServeError::Data { path: path.as_path().to_owned(), source }
}

pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Puts a file in place, whole or not at all, and onto the disk.
pub(crate) fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_by(path, bytes, |file| file.sync_all())
}

/// The same for what is worth nothing after the machine has failed.
pub(crate) fn put_lightly(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put_by(path, bytes, |_| Ok(()))
}

fn put_by(path: &Path, bytes: &[u8], settle: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", ringfence_audit::session_id()));
    let beside: PathBuf = path.with_file_name(name);
    let written =
        OpenOptions::new().create_new(true).write(true).mode(0o600).open(&beside).and_then(
            |mut file| {
                file.write_all(bytes)?;
                settle(&file)?;
                fs::rename(&beside, path)
            },
        );
    written.inspect_err(|_| drop(fs::remove_file(&beside)))
}
