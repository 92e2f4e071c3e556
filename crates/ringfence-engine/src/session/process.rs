//! A program of a session that runs without the shell.

use std::sync::Arc;

use ringfence_api::session_protocol::PolicyReport;
use ringfence_api::{Outcome, OutputStream, ShellState, Signal};
use ringfence_provider::{Interrupter, OutputSink, SandboxedProcess, Terminal};

use super::CommandControl;
use crate::recorder::RunRecorder;
use crate::run::{NoticeFn, Readiness, RunNotice};
use crate::{EngineError, ResolvedPolicy, RunRequest};

/// A program in the sandbox of a session, without the shell.
pub struct SessionProcess {
    pub(super) state: ProcessState,
    pub(super) request: RunRequest,
    pub(super) resolved: Arc<ResolvedPolicy>,
    pub(super) ready: Readiness,
    pub(super) enforced: Vec<String>,
    /// The notices of its start.
    pub(super) notices: Vec<RunNotice>,
    pub(super) policy: PolicyReport,
}

/// The state of a program.
pub(super) enum ProcessState {
    Runs(Box<dyn SandboxedProcess>),
    /// A rule on its text refused it; this is already recorded.
    Refused(Box<Outcome>),
}

/// For a command that was not started.
struct NoopInterrupter;

impl Interrupter for NoopInterrupter {
    fn interrupt(&self) {}

    fn signal(&self, _: Signal) {}
}

impl SessionProcess {
    /// A handle of its terminal, if it has one.
    pub fn terminal(&self) -> Option<Box<dyn Terminal>> {
        match &self.state {
            ProcessState::Runs(process) => process.terminal(),
            ProcessState::Refused(_) => None,
        }
    }

    /// Controls for another thread.
    pub fn control(&self) -> CommandControl {
        match &self.state {
            ProcessState::Runs(process) => {
                CommandControl { interrupter: process.interrupter(), feeder: process.feeder() }
            }
            ProcessState::Refused(_) => {
                CommandControl { interrupter: Box::new(NoopInterrupter), feeder: None }
            }
        }
    }

    /// The outcome, if a rule refused it.
    pub fn refusal(&self) -> Option<&Outcome> {
        match &self.state {
            ProcessState::Runs(_) => None,
            ProcessState::Refused(outcome) => Some(outcome),
        }
    }

    /// Waits for its end. `on_notice` also receives the notices of its start.
    pub fn wait(
        self,
        sink: &mut OutputSink<'_>,
        on_notice: &mut NoticeFn<'_>,
    ) -> Result<Outcome, EngineError> {
        let Self { state, request, resolved, ready, enforced, notices, policy } = self;
        notices.iter().for_each(&mut *on_notice);
        let outcome = match state {
            ProcessState::Runs(process) => {
                let mut recorder = RunRecorder::resume(&request, &resolved, &ready, on_notice)?;
                let ran = process.wait(sink);
                let complete = |ran| Outcome { enforced, gaps: ready.gaps.clone(), ..ran };
                recorder.finish(ran.map(complete).map_err(EngineError::from))?
            }
            ProcessState::Refused(outcome) => {
                sink(OutputStream::Err, &outcome.stderr.head);
                *outcome
            }
        };
        // The shell is not affected.
        Ok(Outcome { shell: ShellState::Alive, policy, ..outcome })
    }
}
