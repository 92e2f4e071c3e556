//! One command in its own sandbox, with streamed output.

use std::time::Duration;

use ringfence_api::{Denial, Gap, Outcome, OutputStream, StdinInput, StdioMode};
use ringfence_provider::{
    OutputSink, PreparedSandbox, ProcessSpec, ProcessStdio, Provider, ProviderError, Sandbox,
    SandboxedProcess,
};

use crate::run::{
    NoticeFn, Readiness, RunTarget, open, run_recorded, run_with_fallback, set_asker,
};
use crate::session::CommandControl;
use crate::variables::variables;
use crate::{EngineError, ResolvedPolicy, RunRequest, direct_exec};

/// Callbacks during a run.
pub struct RunObserver<'a> {
    /// Called once, when the command has started, with the controls of the command.
    pub begun: &'a mut dyn FnMut(CommandControl),
    /// Receives the output as it arrives.
    pub sink: &'a mut OutputSink<'a>,
}

/// Runs one command as [`run`](crate::run), without input and with streamed output. The sandbox and
/// all its processes end with the command.
pub fn run_streamed(
    provider: &dyn Provider,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    mut observer: RunObserver<'_>,
    on_notice: &mut NoticeFn<'_>,
) -> Result<Outcome, EngineError> {
    run_with_fallback(resolved, on_notice, |resolved, on_notice| {
        let (observer, prepared, refused) = (&mut observer, None, <_>::default());
        let mut target =
            StreamedSandbox { provider, request, resolved, observer, prepared, refused };
        run_recorded(&mut target, request, resolved, on_notice)
    })
}

/// A sandbox of its own for one command with streamed output.
struct StreamedSandbox<'a, 'o> {
    provider: &'a dyn Provider,
    request: &'a RunRequest,
    resolved: &'a ResolvedPolicy,
    observer: &'a mut RunObserver<'o>,
    prepared: Option<Box<dyn PreparedSandbox>>,
    refused: (Vec<Denial>, u64),
}

impl RunTarget for StreamedSandbox<'_, '_> {
    type Output = Outcome;

    fn prepare(&mut self) -> Result<Readiness, EngineError> {
        let prepared = self.prepared.insert(open(self.provider, self.resolved)?);
        Ok(Readiness {
            gaps: prepared.gaps().to_vec(),
            on_gap: self.resolved.grants.on_gap,
            is_confined: prepared.is_confined(),
        })
    }

    fn run(&mut self) -> Result<Outcome, EngineError> {
        let Self { request, resolved, .. } = *self;
        let grants = &resolved.grants;
        let mut prepared = self.prepared.take().expect("the pipeline prepares it first");
        set_asker(prepared.as_mut(), request, resolved);
        let sandbox = prepared.start_sandbox(&request.cwd)?;
        let start = ProcessSpec {
            command: request.command.clone(),
            environment: variables(grants, &request.cwd, resolved),
            cwd: request.cwd.clone(),
            streams: ProcessStdio::Pipes {
                input: StdinInput::Empty,
                limit: capture_limit(request.stdio, grants.limits.output),
            },
            deadline: grants.limits.wall_ms.map(Duration::from_millis),
        };
        let ran = begin(sandbox.as_ref(), &start).and_then(|process| {
            let control = CommandControl { interrupter: process.interrupter(), feeder: None };
            (self.observer.begun)(control);
            process.wait(self.observer.sink)
        });
        let ran = ran.inspect_err(|_| self.refused = sandbox.take_denials())?;
        let enforced = sandbox.enforced().iter().map(|one| one.text.clone()).collect();
        let gaps: Vec<Gap> = sandbox.gaps().iter().cloned().chain(sandbox.found_gaps()).collect();
        let quarantined = sandbox.end()?;
        Ok(Outcome { enforced, gaps, quarantined, ..ran })
    }

    fn take_denials(&mut self) -> (Vec<Denial>, u64) {
        std::mem::take(&mut self.refused)
    }

    fn show_refusal(&mut self, outcome: &Outcome) {
        (self.observer.sink)(OutputStream::Err, &outcome.stderr.head);
    }
}

/// Starts the command, without a shell where the shell would only start one program. If that
/// program cannot be executed, the shell runs and prints its own error.
fn begin(
    sandbox: &dyn Sandbox,
    start: &ProcessSpec,
) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
    let plain = direct_exec::direct_argv(&start.command)
        .map(|command| ProcessSpec { command, ..start.clone() });
    match plain.map(|plain| sandbox.start_process(&plain)) {
        None | Some(Err(ProviderError::NotExecuted { .. })) => sandbox.start_process(start),
        Some(started) => started,
    }
}

/// The limit of captured output per stream.
fn capture_limit(stdio: StdioMode, limit: Option<u64>) -> usize {
    let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    match stdio {
        StdioMode::Capture { limit } => limit.min(most),
        StdioMode::Inherit => 0,
    }
}
