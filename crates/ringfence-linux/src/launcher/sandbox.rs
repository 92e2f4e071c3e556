//! A sandbox that lives until it is ended, and runs many commands.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::apply::{
    ExecId, ExecReport, ExecSpec, LaunchError, OFFERED_STREAMS, SandboxEvent, SandboxHandle,
    SandboxMessage,
};
use crate::launcher::system_step::SystemStep;
use crate::locks::lock;
use crate::open::open;
use ringfence_api::{
    ConnectionRecord, Denial, Enforcement, ExitStatus, Gap, GrantedAccess, LimitBreach, PathMap,
    QuarantinedFile, ResourceUsage, StreamOutput,
};
use ringfence_plan::{Plan, Step};
use ringfence_policy::{AbsPath, Grants, Limits};
use ringfence_provider::{
    PolicyRevision, ProcessSpec, ProviderError, Sandbox, SandboxShell, SandboxedProcess, ShellSpec,
};
use ringfence_shell::{RUNNER, RUNNER_TEXT};
use ringfence_sys::signal::{self, SignalSet};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::time::Timespec;

use crate::launcher::asks::ActivePolicy;
use crate::launcher::describe::enforcements;
use crate::launcher::fd_limit;
use crate::launcher::git_sweep::Suspension;
use crate::launcher::guess_denials::DenialGuesser;
use crate::launcher::limit_monitor::LimitMonitor;
use crate::launcher::orphans::TeardownMode;
use crate::launcher::process::SandboxProcess;
use crate::launcher::sandbox_monitor::SandboxMonitor;
use crate::launcher::shell::{PersistentShell, ShellHost, StartedProcess};
use crate::launcher::thread_pool::{self, PoolHandle};
use crate::launcher::{PostRunCleanup, PreparedNamespaceSandbox};

/// Time limit for building a sandbox, and for ending it.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// A running sandbox made of namespaces.
pub(crate) struct NamespaceSandbox {
    enforced: Vec<Enforcement>,
    gaps: Vec<Gap>,
    paths: PathMap,
    shared: Arc<SandboxShared>,
    thread: Option<PoolHandle>,
    cleanup: Option<PostRunCleanup>,
    /// Programs in unfinished operations, taken away until the next command begins.
    suspension: Mutex<Suspension>,
    /// The policy in force.
    policy: Mutex<ActivePolicy>,
}

/// State shared with the shells and processes in the sandbox.
pub(crate) struct SandboxShared {
    state: Mutex<SandboxState>,
    changed: Condvar,
    next: AtomicU64,
}

struct SandboxState {
    handle: SandboxHandle,
    seen: SandboxMonitor,
    is_up: bool,
    /// The plan to guess denied reads by, if nothing reports them.
    guess_plan: Option<Arc<Plan>>,
    jobs: HashMap<ExecId, ExecState>,
    /// Fds that a shell may open, by its pid.
    offered: HashMap<i32, Vec<OwnedFd>>,
    /// The error that ended the sandbox.
    error: Option<ProviderError>,
    is_over: bool,
}

impl SandboxState {
    fn new(handle: SandboxHandle, seen: SandboxMonitor) -> Self {
        Self {
            handle,
            seen,
            is_up: false,
            guess_plan: None,
            jobs: HashMap::new(),
            offered: HashMap::new(),
            error: None,
            is_over: false,
        }
    }
}

/// State of a process.
#[derive(Default)]
struct ExecState {
    started: Option<Result<StartedProcess, i32>>,
    ended: Option<(ExitStatus, ResourceUsage)>,
}

impl NamespaceSandbox {
    pub(crate) fn build(
        confined: &mut PreparedNamespaceSandbox,
        cwd: &AbsPath,
    ) -> Result<Self, ProviderError> {
        let ports = confined.reserve_ports()?;
        let (mut launch, cleanup) = confined.prepare(Vec::new(), Vec::new(), cwd);
        ports.report_gaps(&mut launch.plan.gaps);
        add_runner(&mut launch.plan);
        let mut seen = confined.new_monitor(&launch.plan, ports, &cleanup);
        let network = launch.plan.network();
        let mask = signal::block(&SignalSet::from_signals(&[])).during("read the signal mask")?;
        let null = open("/dev/null", OFlags::RDWR);
        let null = null.during("open /dev/null")?;
        fd_limit::check_free_fds(&null)?;
        let prestarted = confined.prestarted.take().filter(|early| early.network() == network);
        let started = prestarted.map_or_else(
            || confined.zygotes.start(&launch.plan, &confined.user.quarantine, &mask),
            |prestarted| Ok((prestarted, None)),
        );
        let (prestarted, slot) = started.map_err(launch_error)?;
        let project_lock = cleanup.open_lock();
        let handle = prestarted.launch(
            &launch,
            [null.as_fd(), null.as_fd(), null.as_fd()],
            project_lock.as_ref().map(AsFd::as_fd),
        );
        let handle = handle.map_err(launch_error)?;
        drop(project_lock);
        seen.start_limit_monitor(&handle);
        let control = handle.shared_fd();
        let shared = Arc::new(SandboxShared {
            state: Mutex::new(SandboxState::new(handle, seen)),
            changed: Condvar::new(),
            next: AtomicU64::new(1),
        });
        let (kept, processor) =
            (shared.clone(), lock(&shared.state).handle.cpu().filter(|_| slot.is_some()));
        let thread = thread_pool::run("sandbox", processor, move || kept.keep(&control));
        let thread = thread.during("start a thread")?;
        let policy = ActivePolicy::new(confined.grants.clone(), confined.user.clone());
        let (thread, cleanup, policy) = (Some(thread), Some(cleanup), Mutex::new(policy));
        let mut plan = launch.plan;
        let mut sandbox = Self {
            enforced: Vec::new(),
            gaps: Vec::new(),
            paths: PathMap::identity(),
            shared,
            thread,
            cleanup,
            suspension: Mutex::default(),
            policy,
        };
        sandbox
            .shared
            .wait(TIME_LIMIT, |state| state.is_up.then_some(()))
            .ok_or_else(|| sandbox.shared.end_error())?;
        drop(slot);
        let mut state = lock(&sandbox.shared.state);
        state.seen.correct_plan(&mut plan);
        lock(&sandbox.policy).set_plan(&plan);
        sandbox.enforced = enforcements(&plan);
        sandbox.gaps.clone_from(&plan.gaps);
        if DenialGuesser::is_needed(&plan, &confined.effective) {
            state.guess_plan = Some(Arc::new(plan));
        }
        drop(state);
        Ok(sandbox)
    }

    /// Ends the sandbox; returns the quarantined files.
    fn close(&mut self) -> Result<Vec<QuarantinedFile>, ProviderError> {
        let Some(cleanup) = self.cleanup.take() else { return Ok(Vec::new()) };
        lock(&self.shared.state).handle.end();
        let ended = self
            .shared
            .wait_until(Instant::now() + TIME_LIMIT, |state| state.is_over.then_some(()));
        let mut state = lock(&self.shared.state);
        if ended.is_none() {
            state.handle.kill();
        }
        state.handle.wait();
        state.seen.foreign = state.seen.watcher.foreign_markers();
        let unseen = std::mem::take(&mut state.seen.watcher).end(TeardownMode::Wait);
        // Shells that still hold the shared state must not keep its ports.
        let ways = (state.seen.egress.take(), std::mem::take(&mut state.seen.ports));
        drop(state);
        drop(ways);
        let _ = self.thread.take().map(PoolHandle::join);
        // Suspended files are moved to quarantine with the rest.
        self.suspension.get_mut().unwrap_or_else(PoisonError::into_inner).end(&cleanup.baseline);
        let quarantined = cleanup.finish(&mut lock(&self.shared.state).seen, ended.is_some());
        unseen.map(|_| quarantined)
    }
}

/// Adds the file that every command of a shell goes through.
fn add_runner(plan: &mut Plan) {
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
    fn enforced(&self) -> &[Enforcement] {
        &self.enforced
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn paths(&self) -> &PathMap {
        &self.paths
    }

    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError> {
        Ok(Box::new(PersistentShell::start(self.shared.clone(), start)?))
    }

    fn start_process(
        &self,
        start: &ProcessSpec,
    ) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
        Ok(Box::new(SandboxProcess::start(self.shared.clone(), start)?))
    }

    fn take_denials(&self) -> (Vec<Denial>, u64) {
        ShellHost::take_denials(&*self.shared)
    }

    fn found_gaps(&self) -> Vec<Gap> {
        lock(&self.shared.state).seen.watcher.gaps()
    }

    fn is_alive(&self) -> bool {
        let mut state = lock(&self.shared.state);
        state.catch_up();
        !state.is_over
    }

    fn suspend_programs(&self) {
        // A process next to the shell may be about to use them.
        let mut state = lock(&self.shared.state);
        let is_idle = state.jobs.len() <= 1;
        state.catch_up();
        if is_idle {
            state.seen.record_contents();
        }
        drop(state);
        if let Some(cleanup) = self.cleanup.as_ref().filter(|_| is_idle) {
            lock(&self.suspension).begin(&cleanup.baseline);
        }
    }

    fn resume_programs(&self) {
        let mut state = lock(&self.shared.state);
        let (changed, live_policy) = (state.seen.disown_changed(), state.seen.policy.clone());
        drop(state);
        if let Some(Err(error)) = live_policy
            .filter(|_| !changed.is_empty())
            .map(|live_policy| live_policy.mask_changed(changed))
        {
            // No command may read them, so the sandbox ends.
            let mut state = lock(&self.shared.state);
            state.error = Some(error);
            state.is_over = true;
            state.handle.end();
        }
        if let Some(cleanup) = &self.cleanup {
            lock(&self.suspension).end(&cleanup.baseline);
        }
    }

    fn apply_policy(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError> {
        let live_policy = self
            .shared
            .wait(TIME_LIMIT, |state| state.seen.inside.as_ref().and(state.seen.policy.clone()));
        let live_policy = live_policy.ok_or_else(|| self.shared.end_error())?;
        let mut policy = lock(&self.policy);
        let (changes, mut plan) = live_policy.revise(&mut policy, grants)?;
        add_runner(&mut plan);
        lock(&self.shared.state).seen.limits.output = grants.limits.output;
        Ok(PolicyRevision { changes, enforced: enforcements(&plan), gaps: plan.gaps })
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
        let mut state = lock(&self.state);
        state.seen.begin_command()?;
        state.jobs.insert(job, ExecState::default());
        let sent = state.handle.start_process(job, start, descriptors);
        drop(state);
        sent.map_err(|_| self.end_error())?;
        let started = self
            .wait(TIME_LIMIT, |state| state.jobs.get_mut(&job)?.started.take())
            .ok_or_else(|| self.end_error())?;
        match started {
            Ok(started) => Ok((job, started)),
            Err(errno) => {
                lock(&self.state).jobs.remove(&job);
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
        let copies = copies.during("duplicate an fd")?;
        lock(&self.state).offered.insert(pid, copies);
        Ok(Some(OFFERED_STREAMS))
    }

    fn withdraw(&self, pid: i32) {
        lock(&self.state).offered.remove(&pid);
    }

    fn ended(&self, job: ExecId) -> Option<(ExitStatus, ResourceUsage)> {
        self.wait(Duration::from_secs(2), |state| state.jobs.get_mut(&job)?.ended.take())
    }

    fn forget(&self, job: ExecId) {
        lock(&self.state).jobs.remove(&job);
    }

    fn take_denials(&self) -> (Vec<Denial>, u64) {
        let mut state = lock(&self.state);
        state.catch_up();
        state.seen.take_denials()
    }

    fn take_granted(&self) -> Vec<GrantedAccess> {
        lock(&self.state).seen.take_granted()
    }

    fn take_connections(&self) -> (Vec<ConnectionRecord>, u64) {
        lock(&self.state).seen.take_connections()
    }

    fn limits(&self) -> Limits {
        lock(&self.state).seen.limits
    }

    fn begin_command(&self) {
        lock(&self.state).seen.limit_monitor.iter().for_each(LimitMonitor::begin_command);
    }

    fn take_breaches(&self) -> Vec<LimitBreach> {
        lock(&self.state)
            .seen
            .limit_monitor
            .as_ref()
            .map(LimitMonitor::take_breaches)
            .unwrap_or_default()
    }

    fn guess_denials(&self, cwd: &AbsPath, stderr: &StreamOutput, sent: &[Denial]) -> Vec<Denial> {
        let state = lock(&self.state);
        let (Some(plan), Some(live_policy)) = (state.guess_plan.clone(), state.seen.policy.clone())
        else {
            return Vec::new();
        };
        drop(state);
        live_policy.read(|grants| DenialGuesser::new(&plan, grants, cwd).guess(stderr, sent))
    }
}

impl SandboxShared {
    /// Waits until `is` returns a value; `None` on timeout or if the sandbox is gone.
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
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = is(&mut state) {
                return Some(found);
            }
            let left = end.checked_duration_since(Instant::now())?;
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Handles events of the sandbox until it is gone.
    fn keep(&self, control: &OwnedFd) {
        loop {
            match poll(&mut [PollFd::new(control, PollFlags::IN)], None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            let mut state = lock(&self.state);
            state.catch_up();
            self.changed.notify_all();
            if state.is_over {
                return;
            }
        }
    }

    /// The error for a request that the sandbox did not fulfil.
    fn end_error(&self) -> ProviderError {
        lock(&self.state).error.take().unwrap_or(ProviderError::Gone { what: "sandbox" })
    }
}

impl SandboxState {
    /// Handles all events that are pending.
    fn catch_up(&mut self) {
        while !self.is_over && self.has_event() {
            let event = self.handle.next_event().map_err(launch_error).and_then(|event| {
                self.seen.is_started |= matches!(event.message, SandboxMessage::Ready);
                self.seen.handle_event(event, &self.handle)
            });
            match event {
                Ok(event) => event.into_iter().for_each(|event| self.note(event)),
                Err(error) => {
                    self.error = Some(error);
                    self.is_over = true;
                    self.handle.end();
                }
            }
        }
    }

    fn has_event(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(self.handle.fd(), PollFlags::IN)], Some(&now))
            .is_ok_and(|ready| ready > 0)
    }

    /// Handles an event about a process.
    fn note(&mut self, SandboxEvent { message, fds, waiting }: SandboxEvent) {
        match message {
            SandboxMessage::Ready => self.is_up = true,
            SandboxMessage::Exec(job, report) => self.note_report(job, report, fds),
            SandboxMessage::StreamRequested(number, on_execute, _) => {
                let Some(call) = waiting else { return };
                let offered = self.offered.get(&(call.pid() as i32));
                // The process may be gone by now.
                let _ = offered
                    .and_then(|offered| offered.get(number as usize))
                    .map(|offered| call.succeed_with_fd(offered, on_execute));
            }
            SandboxMessage::Closed | SandboxMessage::Ended(..) => self.is_over = true,
            _ => {}
        }
    }

    fn note_report(&mut self, job: ExecId, report: ExecReport, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        match (report, fds.next(), self.jobs.get_mut(&job)) {
            // This process has no free fd.
            (ExecReport::Started, None, _) => self.is_over = true,
            (_, _, None) => {}
            (ExecReport::Started, Some(pidfd), Some(known)) => {
                known.started = Some(Ok(StartedProcess { pidfd, terminal: fds.next() }))
            }
            (ExecReport::NotExecuted(errno), _, Some(known)) => known.started = Some(Err(errno)),
            (ExecReport::Ended(status, usage), _, Some(known)) => {
                known.ended = Some((status, usage))
            }
        }
    }
}

fn launch_error(error: LaunchError) -> ProviderError {
    ProviderError::NotStarted {
        command: "a shell".into(),
        hint: error.hint().into(),
        source: Box::new(error),
    }
}
