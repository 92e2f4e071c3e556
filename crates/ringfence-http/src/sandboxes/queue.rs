//! A command in the shell of a sandbox, when it is its turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;
use ringfence::ExecuteResult;
use ringfence_api::whole;
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::session::{self, CommandControl, SessionOutcome};
use ringfence_skills::SkillName;
use serde_json::{Value, json};

use super::{ServiceSandbox, gone};
use crate::SharedState;
use crate::error::{ApiError, ApiResult, ProblemJson};
use crate::executions::{
    CommandWatch, ExecutionState, ExecutionStatus, Listed, Watchable, executions_quota,
};
use crate::tenants::lock;

/// So much of each stream is in the result.
pub(super) const KEPT: usize = 1 << 20;
/// So many may wait for one shell.
const WAITING: usize = 64;

/// What somebody wants to run.
#[derive(Debug, Clone)]
pub(crate) struct QueuedLine {
    pub(crate) command: String,
    pub(crate) timeout: Option<Duration>,
    pub(crate) input: Vec<u8>,
}

/// A command of a sandbox.
pub(crate) struct SandboxCommand {
    pub(super) status: Mutex<ExecutionStatus>,
    id: String,
    user: SkillName,
    pub(crate) course: CommandWatch,
    /// Set once it is over; the result is in the status.
    end: Mutex<Option<ApiResult<()>>>,
    /// Number of callers that wait for its end.
    waiters: AtomicUsize,
}

impl SandboxCommand {
    pub(super) fn new(user: &SkillName, sandbox: &str, command: &str) -> Arc<Self> {
        let (id, user) = (session_id(), user.clone());
        let status = ExecutionStatus {
            id: id.clone(),
            user_id: user.clone(),
            agent_id: SkillName::try_from("sandbox").expect("it is a name"),
            skill_id: SkillName::try_from(sandbox).expect("ids are names"),
            sandbox_id: Some(sandbox.to_owned()),
            command: command.to_owned(),
            state: ExecutionState::Waiting,
            created_ms: now_ms(),
            started_ms: None,
            ended_ms: None,
            result: None,
            error: None,
            is_kept: false,
            key: None,
            request: None,
        };
        let (course, end, waiters) = (CommandWatch::new(), Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { status: Mutex::new(status), id, user, course, end, waiters })
    }

    /// True while a caller waits for its end, and needs all of its output.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// It runs from now on.
    pub(super) fn begins(&self, house: &SharedState) {
        let status = {
            let mut status = lock(&self.status);
            (status.state, status.started_ms) = (ExecutionState::Running, Some(now_ms()));
            status.clone()
        };
        house.events.tell("execution-begun", &self.user, about(&status));
    }

    /// Ends it: the caller and the stream of events are told.
    pub(super) fn ends(&self, house: &SharedState, end: ApiResult<Value>) {
        self.finish(end);
        house.events.tell("execution-ended", &self.user, about(&self.status()));
        house.sandboxes.turns.trim(&self.user);
    }

    /// Until it has ended.
    pub(crate) async fn ended(&self) -> ApiResult<Value> {
        let _waiter = Waiter::new(&self.waiters);
        let mut changes = self.course.watch();
        loop {
            if let Some(end) = self.outcome() {
                return end;
            }
            // The sender is ours, and is there as long as we are.
            let _ = changes.changed().await;
        }
    }

    fn outcome(&self) -> Option<ApiResult<Value>> {
        let end = lock(&self.end).clone()?;
        Some(end.map(|()| lock(&self.status).result.clone().unwrap_or_default()))
    }

    pub(super) fn finish(&self, end: ApiResult<Value>) {
        self.course.stops();
        self.course.falls_silent();
        let end = {
            let mut status = lock(&self.status);
            status.ended_ms = Some(now_ms());
            match end {
                Ok(result) => {
                    (status.state, status.result) = (ExecutionState::Ended, Some(result));
                    Ok(())
                }
                Err(fault) => {
                    (status.state, status.error) =
                        (ExecutionState::Failed, Some(fault.problem.clone()));
                    Err(fault)
                }
            }
        };
        *lock(&self.end) = Some(end);
        self.course.stirs();
    }
}

/// Counts for as long as a caller waits for the end of a command.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watchable for SandboxCommand {
    fn id(&self) -> &str {
        &self.id
    }

    fn course(&self) -> &CommandWatch {
        &self.course
    }

    fn end(&self) -> Option<Result<Value, Option<ProblemJson>>> {
        self.outcome().map(|end| end.map_err(|fault| Some(fault.problem)))
    }
}

impl Listed for SandboxCommand {
    fn user(&self) -> &SkillName {
        &self.user
    }

    fn is_over(&self) -> bool {
        lock(&self.end).is_some()
    }

    fn status(&self) -> ExecutionStatus {
        lock(&self.status).clone()
    }

    fn whole(&self) -> ExecutionStatus {
        self.status()
    }
}

/// Content of an event about a command.
fn about(status: &ExecutionStatus) -> Value {
    let of_result = |name: &str| status.result.as_ref().map(|result| result[name].clone());
    json!({ "id": status.id, "agentId": status.agent_id, "skillId": status.skill_id, "sandboxId": status.sandbox_id,
        "command": status.command, "state": status.state, "exitCode": of_result("exitCode"), "blocked": of_result("blocked"),
        "durationMs": of_result("durationMs") })
}

/// Counts for as long as somebody waits for the shell or has it.
struct QueueTicket(Arc<ServiceSandbox>);

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Begins a command as soon as it is its turn.
pub(crate) fn begin(
    house: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    line: QueuedLine,
) -> ApiResult<Arc<SandboxCommand>> {
    drop(sandbox.standing()?);
    let most = executions_quota(house, sandbox.user())?;
    let before = sandbox.waiting.fetch_add(1, Ordering::SeqCst);
    let in_line = QueueTicket(sandbox.clone());
    if before >= WAITING {
        return Err(ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "queue-full",
            format!("{WAITING} commands wait for this shell already"),
        )
        .hint("make another sandbox, or wait")
        .after(1));
    }
    let turn = SandboxCommand::new(sandbox.user(), &sandbox.id, &line.command);
    house.sandboxes.turns.add(&turn);
    let places = house.executions.places(sandbox.user(), most);
    let (house, sandbox, begun) = (house.clone(), sandbox.clone(), turn.clone());
    tokio::spawn(async move {
        let unwanted =
            || ApiError::new(StatusCode::CONFLICT, "cancelled", "it was cancelled before it began");
        // The shell first: whoever only waits for one keeps no place of others.
        let Some(shell) = begun.course.wanted(sandbox.queue.clone().lock_owned()).await else {
            return begun.finish(Err(unwanted()));
        };
        *lock(&sandbox.running) = Arc::downgrade(&begun);
        if let Err(ended) = sandbox.standing().map(drop) {
            return begun.finish(Err(ended));
        }
        let Some(places) = begun.course.turn(places).await else {
            return begun.finish(Err(unwanted()));
        };
        let failed = begun.clone();
        let run = move || {
            begun.begins(&house);
            let result = run(&house, &sandbox, &begun, line);
            house.metrics.ended(result.as_ref().ok());
            begun.ends(&house, result);
            drop((shell, places, in_line));
        };
        if let Err(error) = thread::Builder::new().name("command".into()).spawn(run) {
            let full = ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no-thread",
                format!("no thread can be started: {error}"),
            );
            failed.finish(Err(full.hint("the machine is full: try again").after(1)));
        }
    });
    Ok(turn)
}

fn run(
    house: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    turn: &Arc<SandboxCommand>,
    line: QueuedLine,
) -> ApiResult<Value> {
    drop(sandbox.standing()?);
    let wall = sandbox.opened.policy().grants.limits.wall_ms.map(Duration::from_millis);
    let deadline =
        [line.timeout, wall, Some(crate::executions::LONGEST)].into_iter().flatten().min();
    let line = ringfence_api::ShellCommand {
        input: line.input.into(),
        deadline,
        limit: KEPT,
        ..ringfence_api::ShellCommand::new(line.command)
    };
    let mut begun = |reach: CommandControl| {
        if turn.course.is_unwanted() {
            return session::StartDecision::Left;
        }
        turn.course.runs(reach.interrupter);
        session::StartDecision::Taken
    };
    let output = turn.course.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.course.stirs();
    };
    let mut warnings = Vec::new();
    let executed = sandbox
        .opened
        .execute(&line, &mut begun, &mut sink, &mut |error| warnings.push(whole(error)));
    turn.course.stops();
    let executed = executed
        .map_err(|error| if sandbox.standing().is_err() { gone() } else { error.into() })?;
    tell(house, sandbox, &executed);
    result(sandbox, executed, warnings)
}

pub(super) fn tell(house: &SharedState, sandbox: &ServiceSandbox, executed: &SessionOutcome) {
    for denial in &executed.outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        house.events.tell("denial", sandbox.user(), about);
    }
}

pub(super) fn result(
    sandbox: &ServiceSandbox,
    executed: SessionOutcome,
    mut warnings: Vec<String>,
) -> ApiResult<Value> {
    let SessionOutcome { outcome, cwd, background, shell, news } = executed;
    let permission = sandbox.opened.permission(&outcome);
    warnings.extend(news.problems.into_iter().map(|problem| problem.message));
    warnings.extend(news.changes.iter().map(|change| format!("the policy was changed: {change}")));
    let cwd = cwd.map(|cwd| cwd.as_path().to_owned());
    let result = ExecuteResult {
        cwd,
        background: background.into(),
        shell,
        warnings,
        permission,
        ..outcome.into()
    };
    serde_json::to_value(&result).map_err(|error| ApiError::ours(&error))
}
