//! The sandbox of a session, started on demand.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ringfence_api::{Denial, Enforcement, Gap, Outcome, QuarantinedFile};
use ringfence_policy::OnGap;
use ringfence_provider::{
    ProcessSpec, ProcessStdio, Provider, ProviderError, Sandbox, SandboxedProcess,
};
use tracing::info;

use crate::asking::{RecordingAsker, SessionGrants};
use crate::run::{Readiness, RunTarget, check_gaps, open};
use crate::variables::variables;
use crate::{EngineError, ResolvedPolicy, RunRequest};

/// The shared state of a session's sandbox. Each lock is short.
pub(super) struct SandboxSlot {
    pub(super) provider: Arc<Mutex<Box<dyn Provider>>>,
    /// The thread that started the sandbox, unless it was the thread that opened the session.
    pub(super) maker: MakerThread,
    pub(super) live_sandbox: Option<Box<dyn Sandbox>>,
    /// Grants for the session.
    pub(super) session_grants: Arc<SessionGrants>,
    /// The asker, which needs the policy in force.
    pub(super) recording_asker: Option<Arc<RecordingAsker>>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    /// False if its provider confines nothing.
    pub(super) is_confined: bool,
    /// True if the sandbox has the project at the same path as the host.
    pub(super) shares_project: bool,
    /// Files quarantined when an earlier sandbox ended.
    pub(super) quarantined: Vec<QuarantinedFile>,
    pub(super) commands: u64,
}

impl SandboxSlot {
    /// The running sandbox, started if needed.
    pub(super) fn ensure_started(
        &mut self,
        request: &RunRequest,
        resolved: &ResolvedPolicy,
    ) -> Result<&dyn Sandbox, EngineError> {
        if self.live_sandbox.is_none() {
            let resolved = &self.session_grants.apply_to(resolved);
            self.recording_asker = request.asker.as_ref().map(|asker| {
                Arc::new(RecordingAsker::new(
                    asker.clone(),
                    request,
                    resolved,
                    self.session_grants.clone(),
                ))
            });
            let live_sandbox = match self.maker {
                MakerThread::Opener => {
                    self.maker = MakerThread::Ended;
                    make(&self.provider, request, resolved, self.recording_asker.clone())?
                }
                MakerThread::Ended | MakerThread::Thread(_) => {
                    self.start_on_own_thread(request, resolved)?
                }
            };
            info!(target: "session", session = request.session, "started the sandbox");
            self.set_enforced(live_sandbox.enforced(), live_sandbox.gaps().to_vec());
            self.is_confined = live_sandbox.is_confined();
            let guest = live_sandbox.paths().to_guest(&request.cwd);
            self.shares_project = guest.as_ref() == Some(&request.cwd);
            self.live_sandbox = Some(live_sandbox);
        }
        Ok(self.live_sandbox.as_deref().expect("raised just now"))
    }

    /// Starts the sandbox on a thread of its own: processes end with the thread that started them,
    /// and the caller's thread may end soon.
    fn start_on_own_thread(
        &mut self,
        request: &RunRequest,
        resolved: &ResolvedPolicy,
    ) -> Result<Box<dyn Sandbox>, EngineError> {
        let (provider, recording_asker) = (self.provider.clone(), self.recording_asker.clone());
        let (request, resolved) = (request.clone(), resolved.clone());
        let ((made, hears), (end, ends)) = (mpsc::channel(), mpsc::channel::<Infallible>());
        let work = move || {
            let _ = made.send(make(&provider, &request, &resolved, recording_asker));
            // The sandbox may run for days.
            drop((provider, request, resolved));
            let _ = ends.recv();
        };
        let failed = |source| ProviderError::System { what: "start a thread", source };
        thread::Builder::new().name("maker".into()).spawn(work).map_err(failed)?;
        let live_sandbox = hears.recv().map_err(|_| ProviderError::Gone { what: "sandbox" })??;
        self.maker = MakerThread::Thread(end);
        Ok(live_sandbox)
    }

    pub(super) fn set_enforced(&mut self, enforced: &[Enforcement], gaps: Vec<Gap>) {
        self.enforced = enforced.iter().map(|one| one.text.clone()).collect();
        self.gaps = gaps;
    }

    pub(super) fn readiness(&self, on_gap: OnGap) -> Readiness {
        Readiness { gaps: self.gaps.clone(), on_gap, is_confined: self.is_confined }
    }

    pub(super) fn take_denials(&self) -> (Vec<Denial>, u64) {
        self.live_sandbox
            .as_ref()
            .map(|live_sandbox| live_sandbox.take_denials())
            .unwrap_or_default()
    }

    /// Discards a sandbox that died between two commands, so that the next command does not fail.
    pub(super) fn clear_if_dead(&mut self) {
        if self.live_sandbox.as_ref().is_some_and(|live_sandbox| !live_sandbox.is_alive()) {
            info!(target: "session", "the sandbox died: the next command starts a new one");
            self.discard();
        }
    }

    /// Ends a dead or outdated sandbox. Its planted files are quarantined, and the next command
    /// gets a new sandbox.
    pub(super) fn discard(&mut self) {
        if let Some(Ok(moved)) = self.live_sandbox.take().map(Sandbox::end) {
            self.quarantined.extend(moved);
        }
    }

    /// The outcome of a command, with the protections and gaps of the sandbox.
    pub(super) fn complete_outcome(&mut self, ran: Outcome) -> Outcome {
        let found = self.live_sandbox.iter().flat_map(|live_sandbox| live_sandbox.found_gaps());
        Outcome {
            enforced: self.enforced.clone(),
            gaps: self.gaps.iter().cloned().chain(found).collect(),
            quarantined: std::mem::take(&mut self.quarantined),
            ..ran
        }
    }
}

/// The sandbox of a session, for one program outside the shell.
pub(super) struct SessionProgram<'a> {
    pub(super) sandbox: &'a mut SandboxSlot,
    pub(super) request: &'a RunRequest,
    pub(super) resolved: &'a ResolvedPolicy,
    pub(super) streams: ProcessStdio,
    pub(super) deadline: Option<Duration>,
}

impl RunTarget for SessionProgram<'_> {
    type Output = Box<dyn SandboxedProcess>;

    fn prepare(&mut self) -> Result<Readiness, EngineError> {
        self.sandbox.ensure_started(self.request, self.resolved)?;
        Ok(self.sandbox.readiness(self.resolved.grants.on_gap))
    }

    fn run(&mut self) -> Result<Self::Output, EngineError> {
        let Self { request, resolved, .. } = *self;
        self.sandbox.commands += 1;
        let start = ProcessSpec {
            command: request.command.clone(),
            environment: variables(&resolved.grants, &request.cwd, resolved),
            cwd: request.cwd.clone(),
            streams: self.streams.clone(),
            deadline: self.deadline,
        };
        let live_sandbox = self.sandbox.ensure_started(request, resolved)?;
        live_sandbox.resume_programs();
        Ok(live_sandbox.start_process(&start)?)
    }

    /// The next result of the session has them: its other commands go on.
    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        <_>::default()
    }
}

/// The thread that starts a sandbox.
pub(super) enum MakerThread {
    /// The thread that opened the session.
    Opener,
    /// That thread is used up.
    Ended,
    /// A thread of its own, which ends when this is dropped.
    Thread(
        #[expect(dead_code, reason = "kept for as long as the sandbox is")]
        mpsc::Sender<Infallible>,
    ),
}

fn make(
    provider: &Mutex<Box<dyn Provider>>,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    recording_asker: Option<Arc<RecordingAsker>>,
) -> Result<Box<dyn Sandbox>, EngineError> {
    let provider = provider.lock().unwrap_or_else(PoisonError::into_inner);
    let mut prepared = open(provider.as_ref(), resolved)?;
    check_gaps(prepared.gaps(), resolved.grants.on_gap)?;
    if let Some(recording_asker) = recording_asker {
        prepared.set_asker(recording_asker);
    }
    Ok(prepared.start_sandbox(&request.cwd)?)
}
