//! Commands in the shell of a sandbox, one at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;
use ringfence_api::{ExecuteResult, Outcome, ShellCommand};
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::EngineError;
use ringfence_engine::session::{CommandControl, StartDecision};
use ringfence_skills::SkillName;
use serde_json::{Value, json};

use super::{ServiceSandbox, gone_error};
use crate::SharedState;
use crate::error::{ApiError, ApiResult, ProblemJson};
use crate::executions::{
    CommandWatch, ExecutionState, ExecutionStatus, Listed, MAX_DURATION, Watchable,
    executions_quota,
};
use crate::tenants::lock;

/// Bytes of each stream in the result.
pub(crate) const KEPT: usize = 1 << 20;
/// Commands that may wait for one shell.
const WAITING: usize = 64;

/// A command of a sandbox.
pub(crate) struct SandboxCommand {
    pub(super) status: Mutex<ExecutionStatus>,
    id: String,
    user: SkillName,
    pub(crate) progress: CommandWatch,
    /// Set once it is over; the result is in the status.
    end: Mutex<Option<ApiResult<()>>>,
    /// The number of callers that wait for its end.
    waiters: AtomicUsize,
}

impl SandboxCommand {
    pub(super) fn new(user: &SkillName, sandbox: &str, command: &[u8]) -> Arc<Self> {
        let (id, user) = (session_id(), user.clone());
        let status = ExecutionStatus {
            id: id.clone(),
            user_id: user.clone(),
            agent_id: SkillName::try_from("sandbox").expect("it is a name"),
            skill_id: SkillName::try_from(sandbox).expect("ids are names"),
            sandbox_id: Some(sandbox.to_owned()),
            command: String::from_utf8_lossy(command).into_owned(),
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
        let (progress, end, waiters) = (CommandWatch::new(), Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { status: Mutex::new(status), id, user, progress, end, waiters })
    }

    /// True while a caller waits for its end and needs its full output.
    pub(super) fn is_awaited(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Marks it as running, and publishes the event.
    pub(super) fn mark_running(&self, app: &SharedState) {
        let status = {
            let mut status = lock(&self.status);
            (status.state, status.started_ms) = (ExecutionState::Running, Some(now_ms()));
            status.clone()
        };
        app.events.publish("execution-begun", &self.user, about(&status));
    }

    /// Ends it, and publishes the event.
    pub(super) fn end_with(&self, app: &SharedState, end: ApiResult<Value>) {
        self.finish(end);
        app.events.publish("execution-ended", &self.user, about(&self.status()));
        app.sandboxes.turns.trim(&self.user);
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> ApiResult<Value> {
        let _waiter = Waiter::new(&self.waiters);
        let mut changes = self.progress.watch();
        loop {
            if let Some(end) = self.outcome() {
                return end;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn outcome(&self) -> Option<ApiResult<Value>> {
        let end = lock(&self.end).clone()?;
        Some(end.map(|()| lock(&self.status).result.clone().unwrap_or_default()))
    }

    pub(super) fn finish(&self, end: ApiResult<Value>) {
        self.progress.clear_interrupter();
        self.progress.close_output();
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
        self.progress.notify_change();
    }
}

/// Counts a caller that waits for the end of a command.
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

    fn progress(&self) -> &CommandWatch {
        &self.progress
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

/// The content of an event about a command.
fn about(status: &ExecutionStatus) -> Value {
    let result_field = |name: &str| status.result.as_ref().map(|result| result[name].clone());
    json!({ "id": status.id, "agentId": status.agent_id, "skillId": status.skill_id, "sandboxId": status.sandbox_id,
        "command": status.command, "state": status.state, "exitCode": result_field("exitCode"), "blocked": result_field("blocked"),
        "durationMs": result_field("durationMs") })
}

/// Counts a command that waits for the shell or uses it.
struct QueueTicket(Arc<ServiceSandbox>);

impl Drop for QueueTicket {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Queues a command for the shell.
pub(crate) fn queue_command(
    app: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    line: ShellCommand,
) -> ApiResult<Arc<SandboxCommand>> {
    drop(sandbox.require_live()?);
    let most = executions_quota(app, sandbox.user())?;
    let before = sandbox.waiting.fetch_add(1, Ordering::SeqCst);
    let in_line = QueueTicket(sandbox.clone());
    if before >= WAITING {
        return Err(ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "queue-full",
            format!("too many commands wait for this shell: {WAITING}"),
        )
        .hint("create another sandbox, or wait")
        .retry_after(1));
    }
    let turn = SandboxCommand::new(sandbox.user(), &sandbox.id, &line.text);
    app.sandboxes.turns.add(&turn);
    let places = app.executions.run_semaphores(sandbox.user(), most);
    let (app, sandbox, begun) = (app.clone(), sandbox.clone(), turn.clone());
    tokio::spawn(async move {
        let cancelled = || {
            ApiError::new(
                StatusCode::CONFLICT,
                "cancelled",
                "the command was cancelled before it started",
            )
        };
        // The shell first: a command that waits for its shell must not hold a permit.
        let Some(shell) = begun.progress.unless_cancelled(sandbox.queue.clone().lock_owned()).await
        else {
            return begun.finish(Err(cancelled()));
        };
        *lock(&sandbox.running) = Arc::downgrade(&begun);
        if let Err(ended) = sandbox.require_live().map(drop) {
            return begun.finish(Err(ended));
        }
        let Some(places) = begun.progress.acquire(places).await else {
            return begun.finish(Err(cancelled()));
        };
        let failed = begun.clone();
        let run = move || {
            begun.mark_running(&app);
            let result = run(&app, &sandbox, &begun, line);
            app.metrics.count_execution(result.as_ref().ok());
            begun.end_with(&app, result);
            drop((shell, places, in_line));
        };
        if let Err(error) = thread::Builder::new().name("command".into()).spawn(run) {
            let full = ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no-thread",
                format!("cannot start a thread: {error}"),
            );
            failed.finish(Err(full.hint("the machine is overloaded: try again").retry_after(1)));
        }
    });
    Ok(turn)
}

fn run(
    app: &SharedState,
    sandbox: &Arc<ServiceSandbox>,
    turn: &Arc<SandboxCommand>,
    line: ShellCommand,
) -> ApiResult<Value> {
    drop(sandbox.require_live()?);
    let wall = sandbox.session.policy().grants.limits.wall_ms.map(Duration::from_millis);
    let deadline = [line.deadline, wall, Some(MAX_DURATION)].into_iter().flatten().min();
    let line = ShellCommand { deadline, ..line };
    let mut begun = |reach: CommandControl| {
        if turn.progress.is_cancelled() {
            return StartDecision::Left;
        }
        turn.progress.set_interrupter(reach.interrupter);
        StartDecision::Taken
    };
    let output = turn.progress.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.progress.notify_change();
    };
    let mut warnings = Vec::new();
    let ended = sandbox
        .session
        .execute(&line, &mut begun, &mut sink, &mut |notice| warnings.push(notice.to_string()));
    result(app, sandbox, turn, ended, warnings)
}

/// The result of a command that has ended. Publishes its denials.
pub(super) fn result(
    app: &SharedState,
    sandbox: &ServiceSandbox,
    turn: &SandboxCommand,
    ended: Result<Outcome, EngineError>,
    mut warnings: Vec<String>,
) -> ApiResult<Value> {
    turn.progress.clear_interrupter();
    let outcome =
        ended.map_err(
            |error| {
                if sandbox.require_live().is_err() { gone_error() } else { error.into() }
            },
        )?;
    for denial in &outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        app.events.publish("denial", sandbox.user(), about);
    }
    warnings.extend(outcome.policy.warnings());
    let permission = sandbox.session.permission(&outcome);
    let result = ExecuteResult { warnings, permission, ..outcome.into() };
    serde_json::to_value(&result).map_err(|error| ApiError::internal(&error))
}
