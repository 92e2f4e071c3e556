//! A command in the shell of a sandbox, when it is its turn.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;
use ringfence::ExecuteResult;
use ringfence_api::whole;
use ringfence_audit::session_id;
use ringfence_engine::session::{self, Executed, Reach};
use serde_json::Value;

use super::{Sandbox, gone};
use crate::Shared;
use crate::answer::{Answer, Fault, Problem};
use crate::executions::{Course, Watchable};
use crate::tenants::lock;

/// So much of each stream is in the result.
const KEPT: usize = 1 << 20;
/// So many may wait for one shell.
const WAITING: usize = 64;

/// What somebody wants to run.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) command: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) input: Vec<u8>,
}

/// A command of a sandbox.
pub(crate) struct Turn {
    id: String,
    pub(crate) course: Course,
    end: Mutex<Option<Answer<Value>>>,
}

impl Turn {
    pub(crate) fn is_over(&self) -> bool {
        lock(&self.end).is_some()
    }

    /// Until it has ended.
    pub(crate) async fn ended(&self) -> Answer<Value> {
        let mut changes = self.course.watch();
        loop {
            if let Some(end) = lock(&self.end).clone() {
                return end;
            }
            // The sender is ours, and is there as long as we are.
            let _ = changes.changed().await;
        }
    }

    fn finish(&self, end: Answer<Value>) {
        self.course.stops();
        self.course.falls_silent();
        *lock(&self.end) = Some(end);
        self.course.stirs();
    }
}

impl Watchable for Turn {
    fn id(&self) -> &str {
        &self.id
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn end(&self) -> Option<Result<Value, Option<Problem>>> {
        lock(&self.end).clone().map(|end| end.map_err(|fault| Some(fault.problem)))
    }
}

/// Counts for as long as somebody waits for the shell or has it.
struct InLine(Arc<Sandbox>);

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Begins a command as soon as it is its turn.
pub(crate) fn begin(house: &Shared, sandbox: &Arc<Sandbox>, line: Line) -> Answer<Arc<Turn>> {
    drop(sandbox.standing()?);
    let most = house.tenants.quotas(sandbox.user()).executions as usize;
    if most == 0 {
        let message = format!("`{}` may run nothing", sandbox.user());
        return Err(Fault::new(StatusCode::FORBIDDEN, "quota", message).hint("the quota `executions` is 0"));
    }
    let before = sandbox.waiting.fetch_add(1, Ordering::SeqCst);
    let in_line = InLine(sandbox.clone());
    if before >= WAITING {
        return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", format!("{WAITING} commands wait for this shell already"))
            .hint("make another sandbox, or wait")
            .after(1));
    }
    let turn = Arc::new(Turn { id: session_id(), course: Course::new(), end: Mutex::default() });
    let places = house.executions.places(sandbox.user(), most);
    let (house, sandbox, begun) = (house.clone(), sandbox.clone(), turn.clone());
    tokio::spawn(async move {
        let unwanted = || Fault::new(StatusCode::CONFLICT, "cancelled", "it was cancelled before it began");
        // The shell first: whoever only waits for one keeps no place of others.
        let Some(shell) = begun.course.wanted(sandbox.queue.clone().lock_owned()).await else { return begun.finish(Err(unwanted())) };
        *lock(&sandbox.running) = Arc::downgrade(&begun);
        if let Err(ended) = sandbox.standing().map(drop) {
            return begun.finish(Err(ended));
        }
        let Some(places) = begun.course.turn(places).await else { return begun.finish(Err(unwanted())) };
        let failed = begun.clone();
        let run = move || {
            let result = run(&house, &sandbox, &begun, line);
            house.metrics.ended(result.as_ref().ok());
            begun.finish(result);
            drop((shell, places, in_line));
        };
        if let Err(error) = thread::Builder::new().name("command".into()).spawn(run) {
            let full = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "no-thread", format!("no thread can be started: {error}"));
            failed.finish(Err(full.hint("the machine is full: try again").after(1)));
        }
    });
    Ok(turn)
}

fn run(house: &Shared, sandbox: &Arc<Sandbox>, turn: &Arc<Turn>, line: Line) -> Answer<Value> {
    drop(sandbox.standing()?);
    let wall = sandbox.opened.policy().grants.limits.wall_ms.map(Duration::from_millis);
    let deadline = [line.timeout, wall, Some(crate::executions::LONGEST)].into_iter().flatten().min();
    let line = ringfence_api::Line { input: line.input.into(), deadline, limit: KEPT, ..ringfence_api::Line::new(line.command) };
    let mut begun = |reach: Reach| {
        if turn.course.is_unwanted() {
            return session::Turn::Left;
        }
        turn.course.runs(reach.interrupter);
        session::Turn::Taken
    };
    let output = turn.course.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.course.stirs();
    };
    let mut warnings = Vec::new();
    let executed = sandbox.opened.execute(&line, &mut begun, &mut sink, &mut |error| warnings.push(whole(error)));
    turn.course.stops();
    let executed = executed.map_err(|error| if sandbox.standing().is_err() { gone() } else { error.into() })?;
    tell(house, sandbox, &executed);
    result(sandbox, executed, warnings)
}

fn tell(house: &Shared, sandbox: &Sandbox, executed: &Executed) {
    for denial in &executed.outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        house.events.tell("denial", sandbox.user(), about);
    }
}

fn result(sandbox: &Sandbox, executed: Executed, mut warnings: Vec<String>) -> Answer<Value> {
    let Executed { outcome, cwd, background, shell, news } = executed;
    let permission = sandbox.opened.permission(&outcome);
    warnings.extend(news.problems.into_iter().map(|problem| problem.message));
    warnings.extend(news.changes.iter().map(|change| format!("the policy was changed: {change}")));
    let cwd = cwd.map(|cwd| cwd.as_path().to_owned());
    let result = ExecuteResult { cwd, background: background.into(), shell, warnings, permission, ..outcome.into() };
    serde_json::to_value(&result).map_err(|error| Fault::ours(&error))
}
