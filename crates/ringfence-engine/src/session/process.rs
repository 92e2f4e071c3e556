//! A program of a session that runs without the shell.

use std::sync::Arc;

use ringfence_api::{Gap, Outcome, OutputStream, ShellState, Signal, StreamOutput};
use ringfence_audit::AuditError;
use ringfence_provider::{Interrupter, OutputSink, SandboxedProcess, Terminal};

use super::sandbox::executed;
use super::{CommandControl, PolicyNews, SessionOutcome};
use crate::recorder::RunRecorder;
use crate::{EngineError, ResolvedPolicy, RunRequest};

/// A program in the sandbox of a session, without the shell.
pub struct SessionProcess {
    pub(super) state: ProcessState,
    pub(super) request: RunRequest,
    pub(super) resolved: Arc<ResolvedPolicy>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) news: PolicyNews,
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

    /// Waits for its end. `on_audit_error` receives audit errors.
    pub fn wait(
        self,
        sink: &mut OutputSink<'_>,
        on_audit_error: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionOutcome, EngineError> {
        let Self { state, request, resolved, enforced, gaps, news } = self;
        let (background, shell) = (StreamOutput::default(), ShellState::Alive);
        let process = match state {
            ProcessState::Runs(process) => process,
            ProcessState::Refused(outcome) => {
                sink(OutputStream::Err, &outcome.stderr.head);
                return Ok(SessionOutcome {
                    outcome: *outcome,
                    cwd: None,
                    background,
                    shell,
                    news,
                });
            }
        };
        let mut recorder = RunRecorder::resume(&request, &resolved, on_audit_error)?;
        let result = process
            .wait(sink)
            .map(|ran| executed(ran, enforced, gaps).outcome)
            .map_err(EngineError::from);
        recorder.finish(&result);
        result.map(|outcome| SessionOutcome { outcome, cwd: None, background, shell, news })
    }
}
