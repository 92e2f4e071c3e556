//! Commands in the shell of a session.

use std::sync::MutexGuard;

use ringfence_api::{Denial, Outcome, OutputStream, ShellCommand, ShellState, StdinInput};
use ringfence_provider::{OutputSink, ProviderError, SandboxShell};

use super::{CommandControl, Session, SessionCall, StartDecision, lock, not_fed};
use crate::EngineError;
use crate::run::{Readiness, RunTarget};

/// The shell of a session, for one command.
pub(super) struct SessionShell<'a, 's> {
    pub(super) session: &'a Session,
    pub(super) shell: MutexGuard<'a, Option<Box<dyn SandboxShell>>>,
    pub(super) line: &'a ShellCommand,
    pub(super) call: &'a SessionCall,
    pub(super) begun: &'a mut dyn FnMut(CommandControl) -> StartDecision,
    pub(super) sink: &'a mut OutputSink<'s>,
    /// The denials of a command that failed.
    pub(super) refused: (Vec<Denial>, u64),
}

impl RunTarget for SessionShell<'_, '_> {
    type Output = Outcome;

    fn prepare(&mut self) -> Result<Readiness, EngineError> {
        self.session.restart_missing(&mut self.shell)?;
        let shell = self.shell.as_mut().expect("the shell was just restarted");
        self.call.change_directory(shell.as_mut())?;
        // A new sandbox may have adopted a newer policy.
        let on_gap = self.session.policy().grants.on_gap;
        Ok(lock(&self.session.sandbox).readiness(on_gap))
    }

    fn run(&mut self) -> Result<Outcome, EngineError> {
        let shell = self.shell.as_mut().expect("the pipeline prepares it first");
        lock(&self.session.sandbox).commands += 1;
        let feeder = (self.line.input == StdinInput::Streamed)
            .then(|| shell.feeder())
            .transpose()
            .map_err(not_fed)?;
        let control = CommandControl { interrupter: shell.interrupter(), feeder };
        if (self.begun)(control) == StartDecision::Left {
            return Err(EngineError::Unwanted);
        }
        let sandbox = lock(&self.session.sandbox);
        sandbox.live_sandbox.iter().for_each(|sandbox| sandbox.resume_programs());
        drop(sandbox);
        let ran = shell.execute(self.line, self.sink);
        let mut sandbox = lock(&self.session.sandbox);
        sandbox.live_sandbox.iter().for_each(|sandbox| sandbox.suspend_programs());
        match ran {
            Ok(ran) => {
                let cwd = shell.cwd();
                if ran.shell == ShellState::Ended {
                    *self.shell = None;
                }
                Ok(Outcome { cwd, ..sandbox.complete_outcome(ran) })
            }
            Err(error @ ProviderError::NotACommand { .. }) => Err(error.into()),
            Err(error) => {
                *self.shell = None;
                self.refused = sandbox.take_denials();
                if matches!(error, ProviderError::Gone { what: "sandbox" }) {
                    sandbox.discard();
                }
                Err(error.into())
            }
        }
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        std::mem::take(&mut self.refused)
    }

    fn show_refusal(&mut self, outcome: &Outcome) {
        (self.sink)(OutputStream::Err, &outcome.stderr.head);
    }
}
