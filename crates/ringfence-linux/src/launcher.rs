//! The `local` provider: this machine, confined by its own kernel.

mod allowance_log;
mod asks;
mod cache_dirs;
mod cleanup;
mod command_loop;
mod connection_log;
mod deadline;
mod denial_log;
mod describe;
mod doctor;
mod egress;
mod engine;
mod fd_limit;
mod git_config;
mod git_sweep;
mod guess_denials;
mod limit_monitor;
mod lookups;
mod optional;
mod orphans;
mod process;
mod run_registry;
mod sandbox;
mod sandbox_monitor;
mod shell;
mod system_step;
mod terminal;
mod thread_pool;
mod tripwire_server;
mod unconfined;
mod watcher_thread;
mod zygote_pool;

use std::cell::{OnceCell, RefCell};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::apply::{self, FileIdentity, LaunchSpec, MemoryCounter, PrestartedSandbox};
use crate::fuse_nodes::node_tree;
use ringfence_api::{
    Asker, CommandRequest, Denial, Enforcement, Gap, HostFacts, Outcome, StdioMode, StreamOutput,
};
use ringfence_egress::dial::UpstreamProxies;
use ringfence_plan::landlock::{self, Mediation, Restriction};
use ringfence_plan::linux::plan;
use ringfence_plan::{NetworkNamespace, Plan, Step};
use ringfence_policy::{AbsPath, Access, Grants, ProviderOptions, Verdict};
use ringfence_provider::{
    Capabilities, DoctorFinding, PreparedSandbox, Provider, ProviderError, Sandbox,
    SandboxDescription, Support,
};
use ringfence_survey::{Known, skipped_directory_names, survey_with_known};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::CWD;

use cleanup::PostRunCleanup;
use command_loop::Masked;
pub use doctor::HostDiagnosis;
pub use egress::own_addresses;
use egress::{EgressGate, ReservedPorts, SecretInjector};
pub use engine::EngineChoice;
use fd_limit::OpenFileLimit;
use git_config::KnownConfigs;
use git_sweep::{FsTimestamp, SweepBaseline};
use guess_denials::DenialGuesser;
use orphans::TeardownMode;
pub use orphans::reap_children;
use run_registry::{CreatedRepos, RunRegistry};
use sandbox_monitor::SandboxMonitor;
use tracing::trace_span;
use tripwire_server::TripwireServer;
pub use unconfined::ProcessProvider;
use watcher_thread::WatcherStage;
use zygote_pool::ZygotePool;

/// Provider of sandboxes on this machine.
#[derive(Debug, Default)]
pub struct LocalProvider {
    engine: EngineChoice,
    teardown: TeardownMode,
    prestarted: RefCell<Option<PrestartedSandbox>>,
    files: OpenFileLimit,
    zygotes: ZygotePool,
}

impl LocalProvider {
    /// For a program that runs one command and ends with it. Builds the common part of the sandbox
    /// at once, while the policy is still being read, and does not wait for the kernel to tear the
    /// sandbox down.
    ///
    /// Call it before the program starts threads.
    pub fn for_one_command() -> Self {
        let _stage = trace_span!(target: "stage", "for_one_command").entered();
        // The signal mask of this moment is the one that the command starts with. A failure here
        // occurs again, and is reported, when the command runs.
        let prestarted = signal::block(&SignalSet::from_signals(&[]))
            .ok()
            .and_then(|mask| PrestartedSandbox::start_early(NetworkNamespace::Own, &mask).ok());
        Self {
            engine: EngineChoice::Auto,
            teardown: TeardownMode::Leave,
            prestarted: RefCell::new(prestarted),
            files: OpenFileLimit::own_process(),
            zygotes: ZygotePool::default(),
        }
    }

    /// With the engine that its options choose.
    pub fn with_options(self, options: &ProviderOptions) -> Result<Self, ProviderError> {
        Ok(Self { engine: EngineChoice::from_options(options)?, ..self })
    }

    /// For a program that exists for one sandbox. If hosts may be reached, the limit of open files
    /// is raised, since every relayed connection takes two fds. Commands inside get the limit from
    /// before.
    pub fn for_one_sandbox() -> Self {
        Self { files: OpenFileLimit::own_process(), ..Self::default() }
    }
}

/// Factory of providers for a program with very many concurrent sandboxes. Raises the limit of open
/// files now; commands inside get the limit from before.
pub fn provider_factory() -> impl Fn() -> LocalProvider {
    let files = OpenFileLimit::own_process();
    files.raise();
    let zygotes = ZygotePool::shared();
    thread_pool::enable_reuse();
    limit_monitor::share_cpus();
    move || LocalProvider {
        files: files.clone(),
        zygotes: zygotes.clone(),
        ..LocalProvider::default()
    }
}

impl Provider for LocalProvider {
    fn name(&self) -> &str {
        "local"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            confinement: Support::Yes,
            shells: Support::Yes,
            terminals: Support::Yes,
            live_policy: Support::Yes,
            asks: Support::Yes,
            files: Support::Yes,
        }
    }

    fn doctor(&self) -> Vec<DoctorFinding> {
        HostDiagnosis::detect().findings()
    }

    fn prepare(
        &self,
        grants: &Grants,
        host_facts: &HostFacts,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        let _stage = trace_span!(target: "stage", "prepare").entered();
        if !grants.is_confined() {
            // The engine passes such grants to the provider `process`.
            let source = std::io::ErrorKind::InvalidInput.into();
            return Err(ProviderError::System { what: "confine without a policy", source });
        }
        let mut user = host_facts.clone();
        let injector = SecretInjector::from_grants(grants, &mut user)?;
        let upstream = egress::upstream_proxies(grants, &user)?;
        let grants = Arc::new(grants.clone());
        let support = apply::support();
        let scratch = self
            .engine
            .is_landlock(&support, grants.on_gap)
            .then(|| engine::scratch_path(&support))
            .transpose()?;
        let planned = plan_for_host(&grants, &user, scratch.as_ref());
        let PlannedSandbox { plan, effective, begun, listed } = planned;
        Ok(Box::new(PreparedNamespaceSandbox {
            plan,
            enforced: OnceCell::new(),
            surveyed_at: Some(Instant::now()),
            begun,
            listed,
            scratch,
            grants,
            effective,
            user,
            injector,
            upstream,
            teardown: self.teardown,
            prestarted: self.prestarted.take(),
            files: self.files.clone(),
            zygotes: self.zygotes.clone(),
            asker: None,
            refused: (Vec::new(), 0),
        }))
    }
}

/// A plan, the grants it was made from, and a time before the survey for it.
struct PlannedSandbox {
    plan: Plan,
    effective: Arc<Grants>,
    begun: FsTimestamp,
    /// Repositories that earlier commands created.
    listed: CreatedRepos,
}

/// The plan for the host as it is now; for Landlock with a path for temporary files.
fn plan_for_host(
    grants: &Arc<Grants>,
    user: &HostFacts,
    scratch: Option<&AbsPath>,
) -> PlannedSandbox {
    let begun = FsTimestamp::now();
    let listed =
        RunRegistry::open(&user.quarantine).map(|runs| runs.read_list(grants)).unwrap_or_default();
    // Without a handler, nothing reports what a restricted command creates: every repository is
    // protected.
    let is_reported = scratch.is_none() || engine::mediation() == Mediation::Handler;
    let is_made = |path: &AbsPath| {
        is_reported
            && FileIdentity::from_entry(CWD, path.as_path())
                .is_some_and(|birth| listed.made().contains(&birth))
    };
    let found = survey_with_known(grants, &Known { is_made: &is_made, ..Known::default() });
    let mut effective = grants.clone();
    if !found.tracked.is_empty() {
        Arc::make_mut(&mut effective).tracked.extend(found.tracked.clone());
    }
    if !found.rules.is_empty() {
        Arc::make_mut(&mut effective).rules.extend(found.rules.iter().cloned());
    }
    let support = apply::support();
    let plan = plan(&effective, &found, &support, user);
    let plan = match scratch {
        Some(scratch) => {
            let mediation = engine::mediation();
            landlock::plan(&plan, &effective, &support, Restriction { scratch, mediation })
        }
        None => plan,
    };
    PlannedSandbox { plan, effective, begun, listed }
}

/// Dies by SIGINT like a command interrupted at the terminal, so that a calling script stops too;
/// an exit status of 130 alone would not stop it. Returns only if that fails.
pub fn die_of_interrupt() {
    use ringfence_sys::signal::{self, SignalDisposition};
    let _ = signal::set_disposition(libc::SIGINT, SignalDisposition::Default);
    let _ = signal::raise(libc::SIGINT);
}

/// A sandbox made of namespaces.
struct PreparedNamespaceSandbox {
    plan: Plan,
    /// The steps of `plan` in plain words, made when first asked for.
    enforced: OnceCell<Vec<Enforcement>>,
    /// Time of the survey for `plan`, if no command has run since.
    surveyed_at: Option<Instant>,
    begun: FsTimestamp,
    listed: CreatedRepos,
    /// The path for temporary files, without namespaces.
    scratch: Option<AbsPath>,
    grants: Arc<Grants>,
    /// The grants, with the additions of the host's own settings.
    effective: Arc<Grants>,
    user: HostFacts,
    injector: Option<Arc<SecretInjector>>,
    /// The upstream proxies, if hosts are reached through them.
    upstream: UpstreamProxies,
    teardown: TeardownMode,
    prestarted: Option<PrestartedSandbox>,
    files: OpenFileLimit,
    zygotes: ZygotePool,
    asker: Option<Arc<dyn Asker>>,
    /// Denials of a command that ended in an error.
    refused: (Vec<Denial>, u64),
}

/// Age up to which a survey of the host is reused.
const SURVEY_MAX_AGE: Duration = Duration::from_millis(50);

impl PreparedSandbox for PreparedNamespaceSandbox {
    fn enforced(&self) -> &[Enforcement] {
        self.enforced.get_or_init(|| describe::enforcements(&self.plan))
    }

    fn gaps(&self) -> &[Gap] {
        &self.plan.gaps
    }

    fn describe(&self) -> SandboxDescription {
        describe::describe(&self.plan)
    }

    fn set_asker(&mut self, asker: Arc<dyn Asker>) {
        self.asker = Some(asker);
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        let _stage = trace_span!(target: "stage", "run").entered();
        refuse_directory_streams()?;
        self.check_restricted_cwd(request)?;
        let ports = self.reserve_ports()?;
        // Held until the git sweep is done.
        let masked = Masked::begin()?;
        let command = request.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (mut launch, cleanup) =
            self.prepare(command, pack_environment(&self.variables(request)), &request.cwd);
        ports.report_gaps(&mut launch.plan.gaps);
        let network = launch.plan.network();
        let mut prestarted = self
            .prestarted
            .take()
            .filter(|early| early.network() == network && !launch.plan.is_restricted());
        let mut seen = self.new_monitor(&launch.plan, ports, &cleanup);
        // Without a handler, nothing reports the names that a restricted command creates.
        seen.has_unknown |= launch.plan.is_restricted() && !launch.plan.is_mediated();
        seen.is_guessed = DenialGuesser::is_needed(&launch.plan, &self.effective);
        let supervised =
            command_loop::run(request, self.teardown, &mut seen, &masked, |streams, mask| {
                let prestarted = match prestarted.take() {
                    Some(prestarted) => prestarted,
                    None if launch.plan.is_restricted() => {
                        PrestartedSandbox::start_restricted(mask)?
                    }
                    None => self.zygotes.start(&launch.plan, &self.user.quarantine, mask)?.0,
                };
                let lock = cleanup.open_lock();
                prestarted
                    .launch(&launch, streams, lock.as_ref().map(AsFd::as_fd))
                    .map(|running| Box::new(running) as Box<dyn command_loop::SupervisedCommand>)
            });
        self.plan = launch.plan;
        seen.foreign = seen.watcher.foreign_markers();
        let unseen = std::mem::take(&mut seen.watcher).end(self.teardown);
        seen.correct_plan(&mut self.plan);
        if supervised.is_err() {
            self.refused = seen.take_denials();
        }
        let observed = self
            .plan
            .steps
            .contains(&Step::Observe)
            .then(|| std::mem::take(&mut seen.observed).finish());
        // Also after an error: the command may have created files by then.
        let quarantined = cleanup.finish(&mut seen, supervised.is_ok());
        drop(masked);
        if let Some(scratch) = &self.scratch {
            apply::remove_scratch(scratch);
        }
        Ok(Outcome { quarantined, observed, ..self.with_report(request, supervised?, unseen?) })
    }

    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        if self.scratch.is_some() {
            let what = "sessions with the engine `landlock`";
            return Err(ProviderError::NotSupported { what });
        }
        Ok(Box::new(sandbox::NamespaceSandbox::build(self, cwd)?))
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        std::mem::take(&mut self.refused)
    }
}

impl PreparedNamespaceSandbox {
    /// Refuses a working directory that the policy does not show: without namespaces it exists.
    fn check_restricted_cwd(&self, request: &CommandRequest) -> Result<(), ProviderError> {
        let is_shown = || {
            let real = std::fs::canonicalize(request.cwd.as_path()).ok().and_then(AbsPath::new);
            real.is_some_and(|real| {
                let verdict = self.effective.verdict(&real, Access::Read);
                matches!(verdict, Verdict::Allowed | Verdict::ReadOnly)
            })
        };
        if self.scratch.is_none() || is_shown() {
            return Ok(());
        }
        Err(ProviderError::NotStarted {
            command: request.command[0].to_string_lossy().into_owned(),
            hint: format!("`ringfence explain read {}` shows the rule", request.cwd),
            source: "the policy does not allow the working directory".into(),
        })
    }

    /// The environment of a command, with its directory for temporary files.
    fn variables(&self, request: &CommandRequest) -> Vec<(OsString, OsString)> {
        let mut variables = request.variables.clone();
        if let Some(scratch) = &self.scratch {
            variables.retain(|(name, _)| name != "TMPDIR" && name != "GIT_CONFIG_GLOBAL");
            let config = match &self.user.git_config {
                Some(_) => scratch.join(".gitconfig"),
                None => AbsPath::root().join("dev/null"),
            };
            for (name, path) in [("TMPDIR", scratch), ("GIT_CONFIG_GLOBAL", &config)] {
                variables.push((name.into(), path.as_path().into()));
            }
        }
        variables
    }

    /// The launch spec for the host as it is now, and the cleanup after it.
    fn prepare(
        &mut self,
        command: Vec<Vec<u8>>,
        variables: Vec<Vec<u8>>,
        cwd: &AbsPath,
    ) -> (LaunchSpec, PostRunCleanup) {
        // Before the survey, which would otherwise protect the files that a killed run planted.
        let runs = RunRegistry::open_or_create(&self.user.quarantine);
        let left_over = runs.as_ref().and_then(RunRegistry::sweep_killed_runs);
        // A secret that appeared since is masked like those before.
        let surveyed_at = self.surveyed_at.take().filter(|_| left_over.is_none());
        if surveyed_at.is_none_or(|surveyed_at| surveyed_at.elapsed() > SURVEY_MAX_AGE) {
            PlannedSandbox {
                plan: self.plan,
                effective: self.effective,
                begun: self.begun,
                listed: self.listed,
            } = plan_for_host(&self.grants, &self.user, self.scratch.as_ref());
        }
        let stores = cache_dirs::create_stores(&mut self.plan);
        let plan = std::mem::take(&mut self.plan);
        self.enforced.take();
        let baseline = SweepBaseline::new(
            &plan,
            self.begun,
            self.listed.heads(),
            skipped_directory_names(&self.effective),
        )
        .with_created(self.listed.made());
        let mark = runs.as_ref().and_then(|runs| runs.create_marker(&baseline).ok());
        let listed = std::mem::take(&mut self.listed);
        let cleanup = PostRunCleanup {
            runs,
            left_over,
            mark,
            baseline,
            listed,
            quarantine: self.user.quarantine.clone(),
            stores,
        };
        // Without mounts, no question is asked.
        let can_ask = self.asker.is_some() && self.scratch.is_none();
        let asker = if can_ask { apply::ApprovalMode::Ask } else { apply::ApprovalMode::Deny };
        let open_files = plan.steps.contains(&Step::Egress).then(|| self.files.raise()).flatten();
        (
            LaunchSpec {
                plan,
                grants: apply::serialize_grants(&self.effective),
                command,
                variables,
                cwd: cwd.clone(),
                asker,
                open_files,
                memory: MemoryCounter::Complete,
            },
            cleanup,
        )
    }

    /// The host's ports to publish, while this sandbox has them.
    fn reserve_ports(&self) -> Result<ReservedPorts, ProviderError> {
        let network = &self.grants.network;
        if network.needs_egress() {
            ReservedPorts::bind(&network.bind)
        } else {
            Ok(ReservedPorts::default())
        }
    }

    fn new_monitor(
        &self,
        plan: &Plan,
        ports: ReservedPorts,
        cleanup: &PostRunCleanup,
    ) -> SandboxMonitor {
        let policy = Arc::new(asks::LivePolicy::new(
            self.effective.clone(),
            plan.has_tripwire().then(|| node_tree(plan)),
        ));
        let tripwire = TripwireServer::new(plan, &policy, self.asker.as_ref());
        let gate = plan.steps.contains(&Step::Egress).then(|| {
            let asks = tripwire.as_ref().and_then(TripwireServer::asks);
            Arc::new(EgressGate::new(
                policy.clone(),
                asks,
                self.injector.clone(),
                self.upstream.clone(),
            ))
        });
        SandboxMonitor {
            limits: self.grants.limits,
            tripwire,
            gate,
            ports,
            policy: Some(policy),
            watcher: WatcherStage::new(plan, cleanup.listed.made()),
            configs: KnownConfigs::at_start(
                plan,
                cleanup.runs.as_ref().map(|_| cleanup.quarantine.clone()),
            ),
            ..SandboxMonitor::default()
        }
    }

    /// The outcome with the enforced steps, the gaps, and guessed denials.
    fn with_report(
        &self,
        request: &CommandRequest,
        mut outcome: Outcome,
        unseen: Vec<Gap>,
    ) -> Outcome {
        outcome.enforced = self.plan.steps.iter().map(ToString::to_string).collect();
        outcome.gaps = self.plan.gaps.iter().cloned().chain(unseen).collect();
        if DenialGuesser::is_needed(&self.plan, &self.effective) && outcome.exit_code() != 0 {
            let guess = DenialGuesser::new(&self.plan, &self.effective, &request.cwd);
            outcome.denials.extend(guess.guess(&outcome.stderr, &outcome.denials));
        }
        if request.stdio == StdioMode::Inherit {
            // The caller has read it already.
            outcome.stderr = StreamOutput::default();
        }
        outcome
    }
}

/// Environment variables in the form that the supervisor takes.
fn pack_environment(variables: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// Refuses a directory as a standard stream, which would lead out: `openat(0, "..")`.
fn refuse_directory_streams() -> Result<(), ProviderError> {
    let streams = [
        ("input", rustix::stdio::stdin()),
        ("output", rustix::stdio::stdout()),
        ("error", rustix::stdio::stderr()),
    ];
    for (stream, descriptor) in streams {
        let status = rustix::fs::fstat(descriptor.as_fd());
        if status.is_ok_and(|status| rustix::fs::FileType::from_raw_mode(status.st_mode).is_dir()) {
            return Err(ProviderError::StreamIsDirectory { stream });
        }
    }
    Ok(())
}
