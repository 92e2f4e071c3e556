//! One command in its own sandbox, with streamed output.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Gap, Outcome, OutputStream, StdinInput, StdioMode};
use ringfence_audit::AuditError;
use ringfence_provider::{
    OutputSink, ProcessSpec, ProcessStdio, Provider, ProviderError, Sandbox, SandboxedProcess,
};

use crate::asking::RecordingAsker;
use crate::recorder::RunRecorder;
use crate::session::{CommandControl, executed};
use crate::{
    EngineError, ResolvedPolicy, RunRequest, check_gaps, command_guard, direct_exec, open,
    variables,
};

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
    watcher: RunObserver<'_>,
    on_audit_error: &mut dyn FnMut(&AuditError),
) -> Result<Outcome, EngineError> {
    let mut recorder = RunRecorder::open(request, resolved, on_audit_error)?;
    let result = attempt(provider, request, resolved, watcher, &mut recorder);
    recorder.finish(&result);
    result
}

fn attempt(
    provider: &dyn Provider,
    request: &RunRequest,
    resolved: &ResolvedPolicy,
    watcher: RunObserver<'_>,
    recorder: &mut RunRecorder<'_>,
) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    if let Some(refused) =
        command_guard::check_command(grants, command_guard::CommandText::Words(&request.command))
    {
        (watcher.sink)(OutputStream::Err, &refused.stderr.head);
        return Ok(refused);
    }
    let mut session = open(provider, resolved)?;
    check_gaps(&session.plan().gaps, grants.on_gap)?;
    // Written before anything starts: a crash may leave a record without a command.
    recorder.begin(&session.plan().gaps)?;
    if let Some(asker) = &request.asker {
        session.set_asker(Arc::new(RecordingAsker::new(
            asker.clone(),
            request,
            resolved,
            Arc::default(),
        )));
    }
    let sandbox = session.start_sandbox(&request.cwd)?;
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
        (watcher.begun)(CommandControl { interrupter: process.interrupter(), feeder: None });
        process.wait(watcher.sink)
    });
    let ran = ran.inspect_err(|_| recorder.refused_before = sandbox.take_denials())?;
    let enforced = sandbox.plan().steps.iter().map(ToString::to_string).collect();
    let gaps: Vec<Gap> = sandbox.plan().gaps.iter().cloned().chain(sandbox.gaps()).collect();
    let quarantined = sandbox.end()?;
    Ok(Outcome { quarantined, ..executed(ran, enforced, gaps).outcome })
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
