//! Commands in the shell of a sandbox, one at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::http::StatusCode;
use ringfence_api::{ExecuteResult, error_chain};
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::session::{self, CommandControl, SessionOutcome};
use ringfence_skills::SkillName;
use serde_json::{Value, json};

use super::{ServiceSandbox, gone_error};
use crate::SharedState;
use crate::error::{ApiError, ApiResult, ProblemJson};
use crate::executions::{
    CommandWatch, ExecutionState, ExecutionStatus, Listed, Watchable, executions_quota,
};
use crate::tenants::lock;

/// Bytes of each stream in the result.
pub(super) const KEPT: usize = 1 << 20;
/// Commands that may wait for one shell.
const WAITING: usize = 64;

/// A command for the shell.
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
    pub(crate) progress: CommandWatch,
    /// Set once it is over; the result is in the status.
    end: Mutex<Option<ApiResult<()>>>,
    /// The number of callers that wait for its end.
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
    line: QueuedLine,
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
    let turn = SandboxCommand::new(sandbox.user(), &sandbox.id, &line.command);
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
    line: QueuedLine,
) -> ApiResult<Value> {
    drop(sandbox.require_live()?);
    let wall = sandbox.session.policy().grants.limits.wall_ms.map(Duration::from_millis);
    let deadline =
        [line.timeout, wall, Some(crate::executions::MAX_DURATION)].into_iter().flatten().min();
    let line = ringfence_api::ShellCommand {
        input: line.input.into(),
        deadline,
        limit: KEPT,
        ..ringfence_api::ShellCommand::new(line.command)
    };
    let mut begun = |reach: CommandControl| {
        if turn.progress.is_cancelled() {
            return session::StartDecision::Left;
        }
        turn.progress.set_interrupter(reach.interrupter);
        session::StartDecision::Taken
    };
    let output = turn.progress.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        turn.progress.notify_change();
    };
    let mut warnings = Vec::new();
    let executed = sandbox
        .session
        .execute(&line, &mut begun, &mut sink, &mut |error| warnings.push(error_chain(error)));
    turn.progress.clear_interrupter();
    let executed = executed.map_err(|error| {
        if sandbox.require_live().is_err() { gone_error() } else { error.into() }
    })?;
    publish_denials(app, sandbox, &executed);
    result(sandbox, executed, warnings)
}

pub(super) fn publish_denials(
    app: &SharedState,
    sandbox: &ServiceSandbox,
    executed: &SessionOutcome,
) {
    for denial in &executed.outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        app.events.publish("denial", sandbox.user(), about);
    }
}

pub(super) fn result(
    sandbox: &ServiceSandbox,
    executed: SessionOutcome,
    mut warnings: Vec<String>,
) -> ApiResult<Value> {
    let SessionOutcome { outcome, cwd, background, shell, news } = executed;
    let permission = sandbox.session.permission(&outcome);
    warnings.extend(news.problems.into_iter().map(|problem| problem.message));
    warnings.extend(news.changes.iter().map(|change| format!("the policy has changed: {change}")));
    let cwd = cwd.map(|cwd| cwd.as_path().to_owned());
    let result = ExecuteResult {
        cwd,
        background: background.into(),
        shell,
        warnings,
        permission,
        ..outcome.into()
    };
    serde_json::to_value(&result).map_err(|error| ApiError::internal(&error))
}
