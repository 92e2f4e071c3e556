//! A program beside the shell.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use ringfence_api::{Gap, Outcome, OutputStream, ShellState, StreamOutput};
use ringfence_audit::AuditError;
use ringfence_provider::{Interrupter, OutputSink, SandboxedProcess};

use super::sandbox::executed;
use super::{CommandControl, PolicyNews, SessionOutcome};
use crate::recorder::RunRecorder;
use crate::{EngineError, ResolvedPolicy, RunRequest};

/// A program that runs beside the shell of a session.
pub struct SessionProcess {
    pub(super) course: ProcessState,
    pub(super) asked: RunRequest,
    pub(super) resolved: Arc<ResolvedPolicy>,
    pub(super) enforced: Vec<String>,
    pub(super) gaps: Vec<Gap>,
    pub(super) news: PolicyNews,
}

/// Whether it was started.
pub(super) enum ProcessState {
    Runs(Box<dyn SandboxedProcess>),
    /// A rule on its text refused it, which is on record.
    Refused(Box<Outcome>),
}

/// There is nothing to be interrupted.
struct NoopInterrupter;

impl Interrupter for NoopInterrupter {
    fn interrupt(&self) {}

    fn signal(&self, _: i32) {}
}

impl SessionProcess {
    /// Our end of its terminal, if it has one.
    pub fn terminal(&self) -> Option<BorrowedFd<'_>> {
        match &self.course {
            ProcessState::Runs(process) => process.terminal(),
            ProcessState::Refused(_) => None,
        }
    }

    /// For somebody else.
    pub fn reach(&self) -> CommandControl {
        match &self.course {
            ProcessState::Runs(process) => {
                CommandControl { interrupter: process.interrupter(), feeder: process.feeder() }
            }
            ProcessState::Refused(_) => {
                CommandControl { interrupter: Box::new(NoopInterrupter), feeder: None }
            }
        }
    }

    /// What became of it, if it was not started.
    pub fn refused(&self) -> Option<&Outcome> {
        match &self.course {
            ProcessState::Runs(_) => None,
            ProcessState::Refused(outcome) => Some(outcome),
        }
    }

    /// Stays with it to its end. `tell` hears what could not be recorded.
    pub fn wait(
        self,
        sink: &mut OutputSink<'_>,
        tell: &mut dyn FnMut(&AuditError),
    ) -> Result<SessionOutcome, EngineError> {
        let Self { course, asked, resolved, enforced, gaps, news } = self;
        let (background, shell) = (StreamOutput::default(), ShellState::LivesOn);
        let process = match course {
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
        let mut book = RunRecorder::resume(&asked, &resolved, tell)?;
        let result = process
            .wait(sink)
            .map(|ran| executed(ran, enforced, gaps).outcome)
            .map_err(EngineError::from);
        book.finish(&result);
        result.map(|outcome| SessionOutcome { outcome, cwd: None, background, shell, news })
    }
}
