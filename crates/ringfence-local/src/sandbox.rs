//! A sandbox that stands until it is ended, and runs many commands.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{
    ConnectionRecord, Denial, ExitStatus, Gap, GrantedAccess, LimitBreach, QuarantinedFile,
    ResourceUsage, StreamOutput,
};
use ringfence_enforce::apply::{
    ExecEvent, ExecId, ExecSpec, LaunchError, OFFERED, SandboxEvent, SandboxHandle,
};
use ringfence_enforce::{Plan, Step};
use ringfence_policy::{AbsPath, Grants, Limits};
use ringfence_provider::{
    PolicyRevision, ProcessSpec, ProviderError, Sandbox, SandboxShell, SandboxedProcess, ShellSpec,
};
use ringfence_shell::{RUNNER, RUNNER_TEXT};
use ringfence_sys::signal::{self, SignalSet};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::time::Timespec;

use crate::asks::ActivePolicy;
use crate::command_loop::SandboxMonitor;
use crate::fd_limit;
use crate::git_sweep::Suspension;
use crate::guess_denials::DenialGuesser;
use crate::limit_monitor::LimitMonitor;
use crate::orphans::Farewell;
use crate::process::SandboxProcess;
use crate::shell::{PersistentShell, ShellHost, StartedProcess};
use crate::thread_pool::{self, PoolHandle};
use crate::{PostRunCleanup, PreparedNamespaceSandbox};

/// How long a sandbox may take to be made, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A sandbox made of namespaces that stands.
pub(crate) struct NamespaceSandbox {
    plan: Plan,
    ground: Arc<SandboxShared>,
    keeper: Option<PoolHandle>,
    campaign: Option<PostRunCleanup>,
    /// Programs in unfinished operations that were taken away until the next command begins.
    suspension: Mutex<Suspension>,
    /// The policy that holds in it.
    policy: Mutex<ActivePolicy>,
}

/// What those know of it who run something in it.
pub(crate) struct SandboxShared {
    state: Mutex<SandboxState>,
    changed: Condvar,
    next: AtomicU64,
}

struct SandboxState {
    running: SandboxHandle,
    seen: SandboxMonitor,
    is_standing: bool,
    /// Where nobody tells of refused reads: the plan that they are guessed by.
    blind: Option<Arc<Plan>>,
    jobs: HashMap<ExecId, ExecState>,
    /// What a shell may open, by its number.
    offered: HashMap<i32, Vec<OwnedFd>>,
    /// Why there is none any more.
    over: Option<ProviderError>,
    is_over: bool,
}

/// What is known of a process.
#[derive(Default)]
struct ExecState {
    started: Option<Result<StartedProcess, i32>>,
    ended: Option<(ExitStatus, ResourceUsage)>,
}

impl NamespaceSandbox {
    pub(crate) fn raise(
        confined: &mut PreparedNamespaceSandbox,
        cwd: &AbsPath,
    ) -> Result<Self, ProviderError> {
        let ports = confined.ports()?;
        let (mut launch, campaign) = confined.prepare(Vec::new(), Vec::new(), cwd);
        ports.tell(&mut launch.plan.gaps);
        furnish(&mut launch.plan);
        let mut seen = confined.seen(&launch.plan, ports, &campaign);
        let network = launch.plan.network();
        let system = |what| move |source| ProviderError::System { what, source };
        let mask = signal::block(&SignalSet::of(&[])).map_err(system("read the signal mask"))?;
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = null.map_err(|error| system("open /dev/null")(error.into()))?;
        fd_limit::make_sure(&null)?;
        let ahead = confined.ahead.take().filter(|ahead| ahead.network() == network);
        let started = ahead.map_or_else(
            || confined.cradle.start(&launch.plan, &confined.person.quarantine, &mask),
            |ahead| Ok((ahead, None)),
        );
        let (ahead, seat) = started.map_err(not_raised)?;
        let lock = campaign.lock();
        let running = ahead.launch(
            &launch,
            [null.as_fd(), null.as_fd(), null.as_fd()],
            lock.as_ref().map(AsFd::as_fd),
        );
        let running = running.map_err(not_raised)?;
        drop(lock);
        seen.keep_account(&running);
        let control = running.shared_descriptor();
        let state = SandboxState {
            running,
            seen,
            is_standing: false,
            blind: None,
            jobs: HashMap::new(),
            offered: HashMap::new(),
            over: None,
            is_over: false,
        };
        let ground = Arc::new(SandboxShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            next: AtomicU64::new(1),
        });
        let (kept, processor) =
            (ground.clone(), ground.lock().running.processor().filter(|_| seat.is_some()));
        let keeper = thread_pool::lend("keeper", processor, move || kept.keep(&control));
        let keeper = keeper.map_err(system("start a thread"))?;
        let policy = ActivePolicy::of(confined.grants.clone(), confined.person.clone());
        let (keeper, campaign, policy) = (Some(keeper), Some(campaign), Mutex::new(policy));
        let mut sandbox = Self {
            plan: launch.plan,
            ground,
            keeper,
            campaign,
            suspension: Mutex::default(),
            policy,
        };
        sandbox
            .ground
            .wait(PATIENCE, |state| state.is_standing.then_some(()))
            .ok_or_else(|| sandbox.ground.why())?;
        drop(seat);
        let mut state = sandbox.ground.lock();
        state.seen.own_up(&mut sandbox.plan);
        sandbox.policy.lock().unwrap_or_else(PoisonError::into_inner).by(&sandbox.plan);
        if DenialGuesser::is_needed(&sandbox.plan, &confined.held) {
            state.blind = Some(Arc::new(sandbox.plan.clone()));
        }
        drop(state);
        Ok(sandbox)
    }

    /// Ends it; answers what was moved away.
    fn close(&mut self) -> Result<Vec<QuarantinedFile>, ProviderError> {
        let Some(campaign) = self.campaign.take() else { return Ok(Vec::new()) };
        self.ground.lock().running.end();
        let ended =
            self.ground.wait_until(Instant::now() + PATIENCE, |state| state.is_over.then_some(()));
        let mut state = self.ground.lock();
        if ended.is_none() {
            state.running.kill();
        }
        state.running.wait();
        state.seen.foreign = state.seen.live.foreign();
        let unseen = std::mem::take(&mut state.seen.live).end(Farewell::Wait);
        // Whoever still knows of the sandbox keeps no port of it.
        let ways = (state.seen.egress.take(), std::mem::take(&mut state.seen.ports));
        drop(state);
        drop(ways);
        let _ = self.keeper.take().map(PoolHandle::join);
        // What was suspended is moved to quarantine with all else.
        self.suspension.get_mut().unwrap_or_else(PoisonError::into_inner).end(&campaign.ground);
        let quarantined = campaign.conclude(&mut self.ground.lock().seen, ended.is_some());
        unseen.map(|_| quarantined)
    }
}

/// A file that every command of a shell goes through.
fn furnish(plan: &mut Plan) {
    let at = AbsPath::new(RUNNER).expect("an absolute path");
    let behind = plan
        .steps
        .iter()
        .position(|step| matches!(step, Step::Directory { path } if at.is_within(path)));
    plan.steps.insert(
        behind.map_or(0, |behind| behind + 1),
        Step::File { path: at, content: RUNNER_TEXT.into() },
    );
}

impl Sandbox for NamespaceSandbox {
    fn plan(&self) -> &Plan {
        &self.plan
    }

    fn shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError> {
        Ok(Box::new(PersistentShell::start(self.ground.clone(), start)?))
    }

    fn start(&self, start: &ProcessSpec) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        Ok(Box::new(SandboxProcess::start(self.ground.clone(), start)?))
    }

    fn refused(&self) -> (Vec<Denial>, u64) {
        ShellHost::refused(&*self.ground)
    }

    fn gaps(&self) -> Vec<Gap> {
        self.ground.lock().seen.live.gaps()
    }

    fn is_alive(&self) -> bool {
        let mut state = self.ground.lock();
        state.catch_up();
        !state.is_over
    }

    fn suspend_programs(&self) {
        // A process beside the shell may be about to use them.
        let mut state = self.ground.lock();
        let is_idle = state.jobs.len() <= 1;
        state.catch_up();
        if is_idle {
            state.seen.note_contents();
        }
        drop(state);
        if let Some(campaign) = self.campaign.as_ref().filter(|_| is_idle) {
            self.suspension.lock().unwrap_or_else(PoisonError::into_inner).begin(&campaign.ground);
        }
    }

    fn resume_programs(&self) {
        let mut state = self.ground.lock();
        let (changed, ground) = (state.seen.disown_changed(), state.seen.ground.clone());
        drop(state);
        if let Some(Err(error)) =
            ground.filter(|_| !changed.is_empty()).map(|ground| ground.mask_changed(changed))
        {
            // No command may read them.
            let mut state = self.ground.lock();
            state.over = Some(error);
            state.is_over = true;
            state.running.end();
        }
        if let Some(campaign) = &self.campaign {
            self.suspension.lock().unwrap_or_else(PoisonError::into_inner).end(&campaign.ground);
        }
    }

    fn revise(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError> {
        let ground = self
            .ground
            .wait(PATIENCE, |state| state.seen.inside.as_ref().and(state.seen.ground.clone()));
        let ground = ground.ok_or_else(|| self.ground.why())?;
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, mut plan) = ground.revise(&mut policy, grants)?;
        furnish(&mut plan);
        self.ground.lock().seen.limits.output = grants.limits.output;
        Ok(PolicyRevision { changes, plan })
    }

    fn end(mut self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError> {
        self.close()
    }
}

impl Drop for NamespaceSandbox {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl ShellHost for SandboxShared {
    fn runner(&self) -> &str {
        RUNNER
    }

    fn start(
        &self,
        start: &ExecSpec,
        descriptors: &[std::os::fd::BorrowedFd<'_>],
    ) -> Result<(ExecId, StartedProcess), ProviderError> {
        let job = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.seen.starts()?;
        state.jobs.insert(job, ExecState::default());
        let told = state.running.start(job, start, descriptors);
        drop(state);
        told.map_err(|_| self.why())?;
        let started = self
            .wait(PATIENCE, |state| state.jobs.get_mut(&job)?.started.take())
            .ok_or_else(|| self.why())?;
        match started {
            Ok(started) => Ok((job, started)),
            Err(errno) => {
                self.lock().jobs.remove(&job);
                let command =
                    String::from_utf8_lossy(start.command.first().map_or(b"", Vec::as_slice))
                        .into_owned();
                Err(ProviderError::NotExecuted {
                    command,
                    source: std::io::Error::from_raw_os_error(errno),
                })
            }
        }
    }

    fn offer(&self, pid: i32, given: &[OwnedFd]) -> Result<Option<&str>, ProviderError> {
        let copies = given.iter().map(OwnedFd::try_clone).collect::<Result<Vec<_>, _>>();
        let copies =
            copies.map_err(|source| ProviderError::System { what: "copy a descriptor", source })?;
        self.lock().offered.insert(pid, copies);
        Ok(Some(OFFERED))
    }

    fn take_back(&self, pid: i32) {
        self.lock().offered.remove(&pid);
    }

    fn ended(&self, job: ExecId) -> Option<(ExitStatus, ResourceUsage)> {
        self.wait(Duration::from_secs(2), |state| state.jobs.get_mut(&job)?.ended.take())
    }

    fn forget(&self, job: ExecId) {
        self.lock().jobs.remove(&job);
    }

    fn refused(&self) -> (Vec<Denial>, u64) {
        let mut state = self.lock();
        state.catch_up();
        state.seen.refused()
    }

    fn granted(&self) -> Vec<GrantedAccess> {
        self.lock().seen.granted()
    }

    fn connections(&self) -> (Vec<ConnectionRecord>, u64) {
        self.lock().seen.connections()
    }

    fn limits(&self) -> Limits {
        self.lock().seen.limits
    }

    fn begin(&self) {
        self.lock().seen.steward.iter().for_each(LimitMonitor::begin);
    }

    fn breaches(&self) -> Vec<LimitBreach> {
        self.lock().seen.steward.as_ref().map(LimitMonitor::breaches).unwrap_or_default()
    }

    fn guess(&self, cwd: &AbsPath, stderr: &StreamOutput, told: &[Denial]) -> Vec<Denial> {
        let state = self.lock();
        let (Some(plan), Some(ground)) = (state.blind.clone(), state.seen.ground.clone()) else {
            return Vec::new();
        };
        drop(state);
        ground.read(|held| DenialGuesser::new(&plan, held, cwd).at(stderr, told))
    }
}

impl SandboxShared {
    fn lock(&self) -> MutexGuard<'_, SandboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until `is` answers something; `None` if it takes too long or the sandbox is gone.
    fn wait<T>(
        &self,
        long: Duration,
        mut is: impl FnMut(&mut SandboxState) -> Option<T>,
    ) -> Option<T> {
        self.wait_until(Instant::now() + long, |state| match is(state) {
            Some(found) => Some(Some(found)),
            None if state.is_over => Some(None),
            None => None,
        })?
    }

    fn wait_until<T>(
        &self,
        end: Instant,
        mut is: impl FnMut(&mut SandboxState) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(found) = is(&mut state) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Hears what the sandbox says until it is gone.
    fn keep(&self, control: &OwnedFd) {
        loop {
            match poll(&mut [PollFd::new(control, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let mut state = self.lock();
            state.catch_up();
            self.changed.notify_all();
            if state.is_over {
                return;
            }
        }
    }

    /// Why the sandbox does not do what it was told.
    fn why(&self) -> ProviderError {
        self.lock().over.take().unwrap_or(ProviderError::Gone { what: "sandbox" })
    }
}

impl SandboxState {
    /// Takes note of all that was said and not yet heard.
    fn catch_up(&mut self) {
        while !self.is_over && self.is_heard() {
            let heard = self.running.next().map_err(not_raised).and_then(|event| {
                self.seen.is_started |= matches!(event, SandboxEvent::Standing);
                self.seen.heed(event, &self.running)
            });
            match heard {
                Ok(Some(SandboxEvent::Standing)) => self.is_standing = true,
                Ok(Some(SandboxEvent::Of(job, what))) => self.note(job, what),
                Ok(Some(SandboxEvent::Takes { number, on_execute, call })) => {
                    let offered = self
                        .offered
                        .get(&(call.pid() as i32))
                        .and_then(|offered| offered.get(number as usize));
                    // Whoever is gone by now takes nothing.
                    let _ = offered.map(|offered| call.give(offered, on_execute));
                }
                Ok(Some(SandboxEvent::Closed | SandboxEvent::Ended(..))) => self.is_over = true,
                Ok(_) => {}
                Err(error) => {
                    self.over = Some(error);
                    self.is_over = true;
                    self.running.end();
                }
            }
        }
    }

    fn is_heard(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(self.running.descriptor(), PollFlags::IN)], Some(&now))
            .is_ok_and(|ready| ready > 0)
    }

    fn note(&mut self, job: ExecId, what: ExecEvent) {
        let Some(known) = self.jobs.get_mut(&job) else { return };
        match what {
            ExecEvent::Started { pidfd, terminal } => {
                known.started = Some(Ok(StartedProcess { pidfd, terminal }))
            }
            ExecEvent::NotExecuted(errno) => known.started = Some(Err(errno)),
            ExecEvent::Ended(status, usage) => known.ended = Some((status, usage)),
        }
    }
}

fn not_raised(error: LaunchError) -> ProviderError {
    ProviderError::NotStarted {
        command: "a shell".into(),
        hint: error.hint().into(),
        source: Box::new(error),
    }
}
