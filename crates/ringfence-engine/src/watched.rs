//! One command in a sandbox of its own, for somebody who watches it while it runs.

use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Gap, Input, Outcome, Stdio, Stream};
use ringfence_audit::AuditError;
use ringfence_provider::{Process, ProcessStart, Provider, ProviderError, Sink, Standing, Streams};

use crate::asking::Witness;
use crate::book::Book;
use crate::session::{Reach, executed};
use crate::{Asked, EngineError, Resolved, accept, guard, open, plain, variables};

/// Who is told of a command while it runs.
pub struct Watcher<'a> {
    /// Hears once, when its sandbox stands and it was started, how it is reached.
    pub begun: &'a mut dyn FnMut(Reach),
    /// Hears what it writes, as it comes.
    pub sink: &'a mut Sink<'a>,
}

/// The whole life of one command, as [`run`](crate::run), which reads nothing and is watched. The
/// sandbox ends with it, and everything that it left running.
pub fn run_watched(
    provider: &dyn Provider,
    asked: &Asked,
    resolved: &Resolved,
    watcher: Watcher<'_>,
    tell: &mut dyn FnMut(&AuditError),
) -> Result<Outcome, EngineError> {
    let mut book = Book::open(asked, resolved, tell)?;
    let result = attempt(provider, asked, resolved, watcher, &mut book);
    book.finish(&result);
    result
}

fn attempt(
    provider: &dyn Provider,
    asked: &Asked,
    resolved: &Resolved,
    watcher: Watcher<'_>,
    book: &mut Book<'_>,
) -> Result<Outcome, EngineError> {
    let grants = &resolved.grants;
    if let Some(refused) = guard::refused(grants, guard::Text::Words(&asked.command)) {
        (watcher.sink)(Stream::Err, &refused.stderr.head);
        return Ok(refused);
    }
    let mut session = open(provider, resolved)?;
    accept(&session.plan().gaps, grants.on_gap)?;
    // Written before anything starts: a crash leaves a record of what was about to happen.
    book.begin(&session.plan().gaps)?;
    if let Some(asker) = &asked.asker {
        session.ask(Arc::new(Witness::new(asker.clone(), asked, resolved, Arc::default())));
    }
    let standing = session.raise(&asked.cwd)?;
    let start = ProcessStart {
        command: asked.command.clone(),
        variables: variables(grants, &asked.cwd, resolved),
        cwd: asked.cwd.clone(),
        streams: Streams::Pipes {
            input: Input::Nothing,
            limit: kept(asked.stdio, grants.limits.output),
        },
        deadline: grants.limits.wall_ms.map(Duration::from_millis),
    };
    let ran = begin(standing.as_ref(), &start).and_then(|process| {
        (watcher.begun)(Reach { interrupter: process.interrupter(), feeder: None });
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
fn begin(standing: &dyn Standing, start: &ProcessStart) -> Result<Box<dyn Process>, ProviderError> {
    let plain =
        plain::words(&start.command).map(|command| ProcessStart { command, ..start.clone() });
    match plain.map(|plain| standing.start(&plain)) {
        None | Some(Err(ProviderError::NotExecuted { .. })) => standing.start(start),
        Some(started) => started,
    }
}

/// So much of each stream is kept.
fn kept(stdio: Stdio, limit: Option<u64>) -> usize {
    let most = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    match stdio {
        Stdio::Capture { limit } => limit.min(most),
        Stdio::Inherit => 0,
    }
}
