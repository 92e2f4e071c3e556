//! One command in a sandbox of its own, for somebody who watches it while it runs.

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
    EngineError, ResolvedPolicy, RunRequest, accept, command_guard, direct_exec, open, variables,
};

/// Who is told of a command while it runs.
pub struct RunObserver<'a> {
    /// Hears once, when its sandbox stands and it was started, how it is reached.
    pub begun: &'a mut dyn FnMut(CommandControl),
    /// Hears what it writes, as it comes.
    pub sink: &'a mut OutputSink<'a>,
}

/// The whole life of one command, as [`run`](crate::run), which reads nothing and is watched. The
/// sandbox ends with it, and everything that it left running.
pub fn run_watched(
    provider: &dyn Provider,
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    watcher: RunObserver<'_>,
    tell: &mut dyn FnMut(&AuditError),
) -> Result<Outcome, EngineError> {
    let mut book = RunRecorder::open(asked, resolved, tell)?;
    let result = attempt(provider, asked, resolved, watcher, &mut book);
    book.finish(&result);
    result
}

fn attempt(
    provider: &dyn Provider,
    asked: &RunRequest,
    resolved: &ResolvedPolicy,
    watcher: RunObserver<'_>,
    book: &mut RunRecorder<'_>,
) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    if let Some(refused) =
        command_guard::refused(grants, command_guard::CommandText::Words(&asked.command))
    {
        (watcher.sink)(OutputStream::Err, &refused.stderr.head);
        return Ok(refused);
    }
    let mut session = open(provider, resolved)?;
    accept(&session.plan().gaps, grants.on_gap)?;
    // Written before anything starts: a crash leaves a record of what was about to happen.
    book.begin(&session.plan().gaps)?;
    if let Some(asker) = &asked.asker {
        session.ask(Arc::new(RecordingAsker::new(asker.clone(), asked, resolved, Arc::default())));
    }
    let standing = session.raise(&asked.cwd)?;
    let start = ProcessSpec {
        command: asked.command.clone(),
        variables: variables(grants, &asked.cwd, resolved),
        cwd: asked.cwd.clone(),
        streams: ProcessStdio::Pipes {
            input: StdinInput::Nothing,
            limit: kept(asked.stdio, grants.limits.output),
        },
        deadline: grants.limits.wall_ms.map(Duration::from_millis),
    };
    let ran = begin(standing.as_ref(), &start).and_then(|process| {
        (watcher.begun)(CommandControl { interrupter: process.interrupter(), feeder: None });
        process.wait(watcher.sink)
    });
    let ran = ran.inspect_err(|_| book.refused_before = standing.refused())?;
    let enforced = standing.plan().steps.iter().map(ToString::to_string).collect();
    let gaps: Vec<Gap> = standing.plan().gaps.iter().cloned().chain(standing.gaps()).collect();
    let quarantined = standing.end()?;
    Ok(Outcome { quarantined, ..executed(ran, enforced, gaps).outcome })
}

/// Starts it; where a shell would only start a program, without one. What is not found or cannot be
/// executed, the shell has its own words for.
fn begin(
    standing: &dyn Sandbox,
    start: &ProcessSpec,
) -> Result<Box<dyn SandboxedProcess>, ProviderError> {
    let plain =
        direct_exec::words(&start.command).map(|command| ProcessSpec { command, ..start.clone() });
    match plain.map(|plain| standing.start(&plain)) {
        None | Some(Err(ProviderError::NotExecuted { .. })) => standing.start(start),
        Some(started) => started,
    }
}

/// So much of each stream is kept.
fn kept(stdio: StdioMode, limit: Option<u64>) -> usize {
    let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    match stdio {
        StdioMode::Capture { limit } => limit.min(most),
        StdioMode::Inherit => 0,
    }
}
