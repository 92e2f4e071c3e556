//! The sandbox of a session, made when it is needed.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use ringfence_api::{Denial, Gap, Outcome, QuarantinedFile, ShellCommandResult};
use ringfence_enforce::Plan;
use ringfence_provider::{
    ProcessSpec, ProcessStdio, Provider, ProviderError, Sandbox, SandboxedProcess,
};

use super::{PolicyNews, SessionOutcome};
use crate::asking::{RecordingAsker, SessionGrants};
use crate::recorder::RunRecorder;
use crate::{EngineError, ResolvedPolicy, RunRequest, accept, open, variables};

/// What is used by many at once, each for a moment.
pub(super) struct SandboxSlot {
    pub(super) provider: Arc<Mutex<Box<dyn Provider + Send>>>,
    /// The thread that this one was made on, unless it was that of whoever opened the session.
    pub(super) maker: MakerThread,
    pub(super) standing: Option<Box<dyn Sandbox>>,
    /// What was allowed for the session.
    pub(super) lasting: Arc<SessionGrants>,
    /// Whoever is asked, and has to know the policy.
    pub(super) witness: Option<Arc<RecordingAsker>>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    /// Moved away when a sandbox before this one ended.
    pub(super) quarantined: Vec<QuarantinedFile>,
    pub(super) commands: u64,
}

impl SandboxSlot {
    /// One that stands.
    pub(super) fn standing(
        &mut self,
        asked: &RunRequest,
        resolved: &ResolvedPolicy,
    ) -> Result<&dyn Sandbox, EngineError> {
        if self.standing.is_none() {
            let resolved = &self.lasting.on(resolved);
            self.witness = asked.asker.as_ref().map(|asker| {
                Arc::new(RecordingAsker::new(asker.clone(), asked, resolved, self.lasting.clone()))
            });
            let standing = match self.maker {
                MakerThread::Opener => {
                    self.maker = MakerThread::Ended;
                    make(&self.provider, asked, resolved, self.witness.clone())?
                }
                MakerThread::Ended | MakerThread::Thread(_) => self.make_apart(asked, resolved)?,
            };
            self.stands_by(standing.plan());
            self.standing = Some(standing);
        }
        Ok(self.standing.as_deref().expect("raised just now"))
    }

    /// On a thread that stays: what a thread has started ends with it, and whoever needs a
    /// sandbox now may be gone soon.
    fn make_apart(
        &mut self,
        asked: &RunRequest,
        resolved: &ResolvedPolicy,
    ) -> Result<Box<dyn Sandbox>, EngineError> {
        let (provider, witness) = (self.provider.clone(), self.witness.clone());
        let (asked, resolved) = (asked.clone(), resolved.clone());
        let ((made, hears), (end, ends)) = (mpsc::channel(), mpsc::channel::<Infallible>());
        let work = move || {
            let _ = made.send(make(&provider, &asked, &resolved, witness));
            // It may stand for days.
            drop((provider, asked, resolved));
            let _ = ends.recv();
        };
        let failed = |source| ProviderError::System { what: "start a thread", source };
        thread::Builder::new().name("maker".into()).spawn(work).map_err(failed)?;
        let standing = hears.recv().map_err(|_| ProviderError::Gone { what: "sandbox" })??;
        self.maker = MakerThread::Thread(end);
        Ok(standing)
    }

    pub(super) fn stands_by(&mut self, plan: &Plan) {
        self.enforced = plan.steps.iter().map(ToString::to_string).collect();
        self.gaps = plan.gaps.clone();
    }

    pub(super) fn start(
        &mut self,
        asked: &RunRequest,
        resolved: &ResolvedPolicy,
        book: &mut RunRecorder<'_>,
        (streams, deadline): (ProcessStdio, Option<Duration>),
    ) -> Result<Box<dyn SandboxedProcess>, EngineError> {
        self.standing(asked, resolved)?;
        book.begin(&self.gaps)?;
        self.commands += 1;
        let variables = variables(&resolved.grants, &asked.cwd, resolved);
        let start = ProcessSpec {
            command: asked.command.clone(),
            variables,
            cwd: asked.cwd.clone(),
            streams,
            deadline,
        };
        let standing = self.standing(asked, resolved)?;
        standing.resume_programs();
        Ok(standing.start(&start)?)
    }

    pub(super) fn refused(&self) -> (Vec<Denial>, u64) {
        self.standing.as_ref().map(|standing| standing.refused()).unwrap_or_default()
    }

    /// A sandbox that died between two commands is not the next command's failure.
    pub(super) fn clear_if_dead(&mut self) {
        if self.standing.as_ref().is_some_and(|standing| !standing.is_alive()) {
            self.fell();
        }
    }

    /// The sandbox died: what it planted is moved away, and the next command gets another.
    pub(super) fn fell(&mut self) {
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

/// Whose thread a sandbox is made on.
pub(super) enum MakerThread {
    /// Theirs who open the session: it lives as long.
    Opener,
    /// Nobody's any more.
    Ended,
    /// One of its own, which ends when this is dropped.
    Thread(
        #[expect(dead_code, reason = "kept for as long as the sandbox is")]
        mpsc::Sender<Infallible>,
    ),
}

fn make(
    provider: &Mutex<Box<dyn Provider + Send>>,
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    witness: Option<Arc<RecordingAsker>>,
) -> Result<Box<dyn Sandbox>, EngineError> {
    let provider = provider.lock().unwrap_or_else(PoisonError::into_inner);
    let mut session = open(provider.as_ref(), resolved)?;
    accept(&session.plan().gaps, resolved.grants.on_gap)?;
    if let Some(witness) = witness {
        session.ask(witness);
    }
    Ok(session.raise(&asked.cwd)?)
}

/// As it is told.
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
