//! The sandbox of a session, started on demand.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ringfence_api::{Denial, Gap, Outcome, QuarantinedFile, ShellCommandResult};
use ringfence_plan::Plan;
use ringfence_provider::{
    ProcessSpec, ProcessStdio, Provider, ProviderError, Sandbox, SandboxedProcess,
};
use tracing::info;

use super::{PolicyNews, SessionOutcome};
use crate::asking::{RecordingAsker, SessionGrants};
use crate::recorder::RunRecorder;
use crate::{EngineError, ResolvedPolicy, RunRequest, check_gaps, open, variables};

/// The shared state of a session's sandbox. Each lock is short.
pub(super) struct SandboxSlot {
    pub(super) provider: Arc<Mutex<Box<dyn Provider + Send>>>,
    /// The thread that started the sandbox, unless it was the thread that opened the session.
    pub(super) maker: MakerThread,
    pub(super) standing: Option<Box<dyn Sandbox>>,
    /// Grants for the session.
    pub(super) session_grants: Arc<SessionGrants>,
    /// The asker, which needs the policy in force.
    pub(super) recording_asker: Option<Arc<RecordingAsker>>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
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
        if self.standing.is_none() {
            let resolved = &self.session_grants.apply_to(resolved);
            self.recording_asker = request.asker.as_ref().map(|asker| {
                Arc::new(RecordingAsker::new(
                    asker.clone(),
                    request,
                    resolved,
                    self.session_grants.clone(),
                ))
            });
            let standing = match self.maker {
                MakerThread::Opener => {
                    self.maker = MakerThread::Ended;
                    make(&self.provider, request, resolved, self.recording_asker.clone())?
                }
                MakerThread::Ended | MakerThread::Thread(_) => {
                    self.start_on_own_thread(request, resolved)?
                }
            };
            info!(target: "session", session = request.session, "started the sandbox");
            self.apply_plan(standing.plan());
            self.standing = Some(standing);
        }
        Ok(self.standing.as_deref().expect("raised just now"))
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
        let standing = hears.recv().map_err(|_| ProviderError::Gone { what: "sandbox" })??;
        self.maker = MakerThread::Thread(end);
        Ok(standing)
    }

    pub(super) fn apply_plan(&mut self, plan: &Plan) {
        self.enforced = plan.steps.iter().map(ToString::to_string).collect();
        self.gaps = plan.gaps.clone();
    }

    pub(super) fn start(
        &mut self,
        request: &RunRequest,
        resolved: &ResolvedPolicy,
        recorder: &mut RunRecorder<'_>,
        (streams, deadline): (ProcessStdio, Option<Duration>),
    ) -> Result<Box<dyn SandboxedProcess>, EngineError> {
        self.ensure_started(request, resolved)?;
        recorder.begin(&self.gaps)?;
        self.commands += 1;
        let variables = variables(&resolved.grants, &request.cwd, resolved);
        let start = ProcessSpec {
            command: request.command.clone(),
            environment: variables,
            cwd: request.cwd.clone(),
            streams,
            deadline,
        };
        let standing = self.ensure_started(request, resolved)?;
        standing.resume_programs();
        Ok(standing.start_process(&start)?)
    }

    pub(super) fn take_denials(&self) -> (Vec<Denial>, u64) {
        self.standing.as_ref().map(|standing| standing.take_denials()).unwrap_or_default()
    }

    /// Discards a sandbox that died between two commands, so that the next command does not fail.
    pub(super) fn clear_if_dead(&mut self) {
        if self.standing.as_ref().is_some_and(|standing| !standing.is_alive()) {
            info!(target: "session", "the sandbox died: the next command starts a new one");
            self.discard();
        }
    }

    /// Ends a dead or outdated sandbox. Its planted files are quarantined, and the next command
    /// gets a new sandbox.
    pub(super) fn discard(&mut self) {
        if let Some(Ok(moved)) = self.standing.take().map(Sandbox::end) {
            self.quarantined.extend(moved);
        }
    }

    pub(super) fn executed(&mut self, ran: ShellCommandResult) -> SessionOutcome {
        let found = self.standing.iter().flat_map(|standing| standing.gaps());
        let gaps = self.gaps.iter().cloned().chain(found).collect();
        let mut executed = executed(ran, self.enforced.clone(), gaps);
        executed.outcome.quarantined = std::mem::take(&mut self.quarantined);
        executed
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
    provider: &Mutex<Box<dyn Provider + Send>>,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    recording_asker: Option<Arc<RecordingAsker>>,
) -> Result<Box<dyn Sandbox>, EngineError> {
    let provider = provider.lock().unwrap_or_else(PoisonError::into_inner);
    let mut session = open(provider.as_ref(), resolved)?;
    check_gaps(&session.plan().gaps, resolved.grants.on_gap)?;
    if let Some(recording_asker) = recording_asker {
        session.set_asker(recording_asker);
    }
    Ok(session.start_sandbox(&request.cwd)?)
}

/// The outcome of a command in this sandbox.
pub(crate) fn executed(
    ran: ShellCommandResult,
    enforced: Vec<String>,
    gaps: Vec<Gap>,
) -> SessionOutcome {
    let outcome = Outcome {
        stdout: ran.stdout,
        stderr: ran.stderr,
        status: ran.status,
        denials: ran.denials,
        denials_dropped: ran.denials_dropped,
        granted: ran.granted,
        observed: None,
        connections: ran.connections.0,
        connections_dropped: ran.connections.1,
        timed_out: ran.timed_out,
        breaches: ran.breaches,
        duration_ms: ran.duration.as_millis() as u64,
        usage: ran.usage,
        enforced,
        gaps,
        quarantined: Vec::new(),
        refusal: None,
    };
    SessionOutcome {
        outcome,
        cwd: None,
        background: ran.background,
        shell: ran.shell,
        news: PolicyNews::default(),
    }
}
