//! The place called `local`: this machine, confined by its own kernel.

#![forbid(unsafe_code)]

mod allowance_log;
mod asks;
mod cache_dirs;
mod command_loop;
mod connection_log;
mod deadline;
mod denial_log;
mod egress;
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
mod shell;
mod thread_pool;
mod tripwire_server;
mod unconfined;
mod watcher_thread;
mod zygote_pool;

use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringfence_api::{
    Asker, CommandRequest, Denial, Gap, Outcome, QuarantinedFile, StdioMode, StreamOutput,
};
use ringfence_egress::dial::UpstreamProxies;
use ringfence_enforce::apply::{self, Birth, LaunchSpec, MemoryCounter, PrestartedSandbox};
use ringfence_enforce::{
    Known, NetworkNamespace, Plan, SandboxUser, Step, plan, scene, survey_beside, vendored,
};
use ringfence_policy::{AbsPath, Grants};
use ringfence_provider::{PreparedSandbox, Provider, ProviderError, Sandbox};
use ringfence_sys::signal::{self, SignalSet};
use rustix::fs::CWD;

use command_loop::Masked;
pub use egress::own_addresses;
use egress::{EgressGate, ReservedPorts, SecretInjector};
use fd_limit::OpenFileLimit;
use git_config::KnownConfigs;
use git_sweep::{FsTimestamp, SweepBaseline, SweepScope};
use guess_denials::DenialGuesser;
use orphans::Farewell;
pub use orphans::reap_children;
use run_registry::{CreatedRepos, RunMarker, RunRegistry};
use tripwire_server::TripwireServer;
use watcher_thread::WatcherStage;
use zygote_pool::ZygotePool;

/// This machine's own sandbox.
#[derive(Debug, Default)]
pub struct LocalProvider {
    farewell: Farewell,
    ahead: RefCell<Option<PrestartedSandbox>>,
    files: OpenFileLimit,
    cradle: ZygotePool,
}

impl LocalProvider {
    /// For a program that runs one command and ends with it: what every sandbox needs is
    /// begun at once, while the policy is still being read, and nobody waits for the
    /// kernel to take the sandbox down.
    ///
    /// To be called before the program starts threads.
    pub fn for_one_command() -> Self {
        // The mask of this moment is the one the command is to start with. What fails
        // here fails again, and is told, when the command is run.
        let ahead = signal::block(&SignalSet::of(&[]))
            .ok()
            .and_then(|mask| PrestartedSandbox::start_early(NetworkNamespace::Own, &mask).ok());
        Self {
            farewell: Farewell::Leave,
            ahead: RefCell::new(ahead),
            files: OpenFileLimit::ours(),
            cradle: ZygotePool::default(),
        }
    }

    /// For a program that is there for a sandbox and for nothing else: where hosts may be reached,
    /// its limit of open files is raised, since every connection that is carried takes two. What
    /// runs inside has the limit that the program had.
    pub fn for_one_sandbox() -> Self {
        Self { files: OpenFileLimit::ours(), ..Self::default() }
    }
}

/// For a program that has very many sandboxes at the same time: makes the places of all of them.
/// Its limit of open files is raised now; what runs inside has the limit that the program had.
pub fn places() -> impl Fn() -> LocalProvider {
    let files = OpenFileLimit::ours();
    files.raise();
    let cradle = ZygotePool::shared();
    thread_pool::keep();
    limit_monitor::share_cpus();
    move || LocalProvider {
        files: files.clone(),
        cradle: cradle.clone(),
        ..LocalProvider::default()
    }
}

impl Provider for LocalProvider {
    fn name(&self) -> &'static str {
        "local"
    }

    fn open(
        &self,
        grants: &Grants,
        person: &SandboxUser,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError> {
        if !grants.is_confined() {
            return Ok(Box::new(unconfined::PreparedUnconfined::new(grants)));
        }
        let mut person = person.clone();
        let seal = SecretInjector::of(grants, &mut person)?;
        let outer = egress::outer(grants, &person)?;
        let grants = Arc::new(grants.clone());
        let PlannedSandbox { plan, held, begun, listed } = planned(&grants, &person);
        Ok(Box::new(PreparedNamespaceSandbox {
            plan,
            looked: Some(Instant::now()),
            begun,
            listed,
            grants,
            held,
            person,
            seal,
            outer,
            farewell: self.farewell,
            ahead: self.ahead.take(),
            files: self.files.clone(),
            cradle: self.cradle.clone(),
            asker: None,
            refused: (Vec::new(), 0),
        }))
    }
}

/// A plan, the grants it holds by, and a moment before the host was looked at for it.
struct PlannedSandbox {
    plan: Plan,
    held: Arc<Grants>,
    begun: FsTimestamp,
    /// What commands had made.
    listed: CreatedRepos,
}

/// The plan for the host as it is now.
fn planned(grants: &Arc<Grants>, person: &SandboxUser) -> PlannedSandbox {
    let begun = FsTimestamp::now();
    let listed =
        RunRegistry::open(&person.quarantine).map(|runs| runs.listed(grants)).unwrap_or_default();
    let is_made = |path: &AbsPath| {
        Birth::of(CWD, path.as_path()).is_some_and(|birth| listed.made().contains(&birth))
    };
    let found = survey_beside(grants, &Known { is_made: &is_made, ..Known::default() });
    let mut held = grants.clone();
    if !found.tracked.is_empty() {
        Arc::make_mut(&mut held).tracked.extend(found.tracked.clone());
    }
    if !found.rules.is_empty() {
        Arc::make_mut(&mut held).rules.extend(found.rules.iter().cloned());
    }
    PlannedSandbox { plan: plan(&held, &found, &apply::support(), person), held, begun, listed }
}

/// Dies as a command dies that was interrupted at the terminal, so that a script around it
/// stops too; a status of 130 alone would let it go on. Returns only if that is impossible.
pub fn die_of_interrupt() {
    use ringfence_sys::signal::{self, SignalDisposition};
    let _ = signal::set_disposition(libc::SIGINT, SignalDisposition::Default);
    let _ = signal::raise(libc::SIGINT);
}

/// A sandbox made of namespaces.
struct PreparedNamespaceSandbox {
    plan: Plan,
    /// When the host was looked at for `plan`, if no command has run since.
    looked: Option<Instant>,
    begun: FsTimestamp,
    listed: CreatedRepos,
    grants: Arc<Grants>,
    /// The same with what the host's own settings add.
    held: Arc<Grants>,
    person: SandboxUser,
    seal: Option<Arc<SecretInjector>>,
    /// The proxy by which hosts are reached, where that takes one.
    outer: UpstreamProxies,
    farewell: Farewell,
    ahead: Option<PrestartedSandbox>,
    files: OpenFileLimit,
    cradle: ZygotePool,
    asker: Option<Arc<dyn Asker>>,
    /// What was refused to a command that ended in an error.
    refused: (Vec<Denial>, u64),
}

/// For so long the host is taken to be as it was when it was looked at.
const FRESH: Duration = Duration::from_millis(50);

impl PreparedSandbox for PreparedNamespaceSandbox {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn ask(&mut self, asker: Arc<dyn Asker>) {
        self.asker = Some(asker);
    }

    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError> {
        refuse_directories()?;
        let ports = self.ports()?;
        // Until what was planted is moved away.
        let masked = Masked::begin()?;
        let command = request.command.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (mut launch, campaign) =
            self.prepare(command, packed(&request.variables), &request.cwd);
        ports.tell(&mut launch.plan.gaps);
        let network = launch.plan.network();
        let mut ahead = self.ahead.take().filter(|ahead| ahead.network() == network);
        let mut seen = self.seen(&launch.plan, ports, &campaign);
        seen.is_guessed = DenialGuesser::is_needed(&launch.plan, &self.held);
        let attended =
            command_loop::run(request, self.farewell, &mut seen, &masked, |streams, mask| {
                let ahead = ahead.take().map_or_else(
                    || {
                        self.cradle
                            .start(&launch.plan, &self.person.quarantine, mask)
                            .map(|(ahead, _)| ahead)
                    },
                    Ok,
                )?;
                let lock = campaign.lock();
                ahead
                    .launch(&launch, streams, lock.as_ref().map(AsFd::as_fd))
                    .map(|running| Box::new(running) as Box<dyn command_loop::SupervisedCommand>)
            });
        self.plan = launch.plan;
        seen.foreign = seen.live.foreign();
        let unseen = std::mem::take(&mut seen.live).end(self.farewell);
        seen.own_up(&mut self.plan);
        if attended.is_err() {
            self.refused = seen.refused();
        }
        let observed = self
            .plan
            .steps
            .contains(&Step::Observe)
            .then(|| std::mem::take(&mut seen.observed).finish());
        // Also after an error: by then the command may have made what it wanted.
        let quarantined = campaign.conclude(&mut seen, attended.is_ok());
        drop(masked);
        Ok(Outcome { quarantined, observed, ..self.told(request, attended?, unseen?) })
    }

    fn raise(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError> {
        Ok(Box::new(sandbox::NamespaceSandbox::raise(self, cwd)?))
    }

    fn refused(&mut self) -> (Vec<Denial>, u64) {
        std::mem::take(&mut self.refused)
    }
}

impl PreparedNamespaceSandbox {
    /// What to launch, with the host as it is now, and what is to be done about it later.
    fn prepare(
        &mut self,
        command: Vec<Vec<u8>>,
        variables: Vec<Vec<u8>>,
        cwd: &AbsPath,
    ) -> (LaunchSpec, PostRunCleanup) {
        // What a killed run planted must not be found by the survey: it would be protected.
        let runs = RunRegistry::make(&self.person.quarantine);
        let left_over = runs.as_ref().and_then(RunRegistry::sweep_for_the_killed);
        // A secret that appeared since is covered like those that stood there before.
        let looked = self.looked.take().filter(|_| left_over.is_none());
        if looked.is_none_or(|looked| looked.elapsed() > FRESH) {
            PlannedSandbox {
                plan: self.plan,
                held: self.held,
                begun: self.begun,
                listed: self.listed,
            } = planned(&self.grants, &self.person);
        }
        let stores = cache_dirs::make(&mut self.plan);
        let plan = std::mem::take(&mut self.plan);
        let ground =
            SweepBaseline::of(&plan, self.begun, self.listed.heads(), vendored(&self.held))
                .beside(self.listed.made());
        let mark = runs.as_ref().and_then(|runs| runs.mark(&ground).ok());
        let listed = std::mem::take(&mut self.listed);
        let campaign = PostRunCleanup {
            runs,
            left_over,
            mark,
            ground,
            listed,
            quarantine: self.person.quarantine.clone(),
            stores,
        };
        let asker = if self.asker.is_some() {
            apply::ApprovalMode::Somebody
        } else {
            apply::ApprovalMode::Nobody
        };
        let open_files = plan.steps.contains(&Step::Egress).then(|| self.files.raise()).flatten();
        (
            LaunchSpec {
                plan,
                grants: apply::pack(&self.held),
                command,
                variables,
                cwd: cwd.clone(),
                asker,
                open_files,
                memory: MemoryCounter::Complete,
            },
            campaign,
        )
    }

    /// The host's ports that are to lead into the sandbox, as long as this one has them.
    fn ports(&self) -> Result<ReservedPorts, ProviderError> {
        let network = &self.grants.network;
        if network.has_a_border() {
            ReservedPorts::of(&network.bind)
        } else {
            Ok(ReservedPorts::default())
        }
    }

    fn seen(
        &self,
        plan: &Plan,
        ports: ReservedPorts,
        campaign: &PostRunCleanup,
    ) -> command_loop::SandboxMonitor {
        let ground = Arc::new(asks::LivePolicy::new(
            self.held.clone(),
            plan.is_wired().then(|| scene(plan)),
        ));
        let watch = TripwireServer::over(plan, &ground, self.asker.as_ref());
        let gate = plan.steps.contains(&Step::Egress).then(|| {
            let asks = watch.as_ref().and_then(TripwireServer::asks);
            Arc::new(EgressGate::new(ground.clone(), asks, self.seal.clone(), self.outer.clone()))
        });
        command_loop::SandboxMonitor {
            limits: self.grants.limits,
            watch,
            gate,
            ports,
            ground: Some(ground),
            live: WatcherStage::over(plan, campaign.listed.made()),
            configs: KnownConfigs::at_start(
                plan,
                campaign.runs.as_ref().map(|_| campaign.quarantine.clone()),
            ),
            ..command_loop::SandboxMonitor::default()
        }
    }

    /// With what held, what did not, and what was refused and nobody told of.
    fn told(&self, request: &CommandRequest, mut outcome: Outcome, unseen: Vec<Gap>) -> Outcome {
        outcome.enforced = self.plan.steps.iter().map(ToString::to_string).collect();
        outcome.gaps = self.plan.gaps.iter().cloned().chain(unseen).collect();
        if DenialGuesser::is_needed(&self.plan, &self.held) && outcome.exit_code() != 0 {
            let guess = DenialGuesser::new(&self.plan, &self.held, &request.cwd);
            outcome.denials.extend(guess.at(&outcome.stderr, &outcome.denials));
        }
        if request.stdio == StdioMode::Inherit {
            // The caller has it.
            outcome.stderr = StreamOutput::default();
        }
        outcome
    }
}

/// What is to be done when a sandbox has ended.
struct PostRunCleanup {
    runs: Option<RunRegistry>,
    left_over: Option<Vec<QuarantinedFile>>,
    mark: Option<RunMarker>,
    ground: SweepBaseline,
    listed: CreatedRepos,
    quarantine: AbsPath,
    /// Held until the sandbox has ended.
    stores: cache_dirs::Locks,
}

impl PostRunCleanup {
    /// The project's lock for a sandbox. It ends with that sandbox, so that the caller must not
    /// keep it.
    fn lock(&self) -> Option<OwnedFd> {
        self.runs.as_ref().and_then(RunRegistry::lock)
    }

    /// Moves away what was planted. Unless `is_known`, more may have been made than was told.
    fn conclude(
        self,
        seen: &mut command_loop::SandboxMonitor,
        is_known: bool,
    ) -> Vec<QuarantinedFile> {
        let Self { runs, left_over, mark, mut ground, listed, quarantine, stores } = self;
        drop(stores);
        let is_all_known = is_known && !seen.has_unknown;
        if is_all_known {
            ground.foreign = std::mem::take(&mut seen.foreign);
        }
        // Also what other commands made, now or before: unless the survey found it, this one
        // could write to it.
        let (mut others, moved) = runs.as_ref().map(|runs| runs.made(&listed)).unwrap_or_default();
        others.retain(|made| !ground.is_covered(made));
        ground.forget_foreign(&others);
        let are_others = runs.as_ref().is_some_and(|runs| runs.others_go_on(mark.as_ref()));
        let mut made = std::mem::take(&mut seen.made);
        let mut more = std::mem::take(&mut seen.more);
        made.extend(others);
        more.extend(moved);
        let look = match (is_all_known || !seen.is_started, more.is_empty()) {
            (false, _) => SweepScope::Everywhere,
            (true, false) => SweepScope::Known(more),
            (true, true) => SweepScope::Made,
        };
        // Somebody impatient would leave the rest unseen; the work is bounded.
        let masked = Masked::begin();
        let mut quarantined = left_over.unwrap_or_default();
        let swept = git_sweep::sweep(made, look, &ground, &quarantine);
        quarantined.extend(swept.moved);
        if let Some(runs) = runs {
            runs.note(swept.spotted, &listed, mark.as_ref());
            if !seen.own_files.is_empty() {
                runs.remember(&std::mem::take(&mut seen.own_files), seen.left_contents.as_ref());
            }
            if are_others {
                // One that ended before this was told may have written to it after it was swept.
                let (mut again, _) = runs.made(&listed);
                again.retain(|made| !ground.is_covered(made));
                ground.forget_foreign(&again);
                let swept = git_sweep::sweep(again, SweepScope::Made, &ground, &quarantine);
                if !swept.moved.is_empty() {
                    runs.note(swept.spotted, &listed, mark.as_ref());
                }
                quarantined.extend(swept.moved);
            }
        }
        if let Some(mark) = mark {
            mark.remove();
        }
        drop(masked);
        quarantined
    }
}

/// Variables as the helper takes them.
fn packed(variables: &[(OsString, OsString)]) -> Vec<Vec<u8>> {
    variables
        .iter()
        .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
        .collect()
}

/// A directory handed over as a standard stream leads out: `openat(0, "..")`.
fn refuse_directories() -> Result<(), ProviderError> {
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
