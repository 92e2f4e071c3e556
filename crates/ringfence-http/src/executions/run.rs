//! Runs a command in a skill.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::join_all;
use ringfence_api::{Asker, ExecuteResult, Outcome, StdioMode};
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::{EngineError, ResolvedPolicy, RunObserver, RunRequest, run_streamed};
use ringfence_policy::{AbsPath, Flags};
use ringfence_skills::{SkillId, SkillLease, SkillName};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::unconstrained;

use super::{Execution, ExecutionState, results};
use crate::SharedState;
use crate::asks::TenantAsker;
use crate::error::{ApiError, ApiResult};
use crate::skills::narrow;
use crate::state::AppState;
use crate::tenants::{Weight, lock};

/// The hard time limit, whatever a policy says: five minutes.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(300);
/// Bytes of each stream in the result.
const KEPT: usize = 1 << 20;
/// The longest time a running command keeps its start permit.
const START_PERMIT_TIME: Duration = Duration::from_millis(50);
/// Queued commands per tenant.
const WAITING: usize = 1024;

/// A request to run a command.
#[derive(Clone)]
pub(crate) struct ExecutionRequest {
    pub(crate) skill: SkillId,
    pub(crate) command: String,
    pub(crate) timeout: Option<Duration>,
    /// True if the result is kept for a later request.
    pub(crate) is_kept: bool,
    /// The idempotency key and a digest of the request.
    pub(crate) key: Option<(String, String)>,
    /// True if the user is asked about denials.
    pub(crate) asks: bool,
}

/// Starts a command, or finds the earlier one with the same idempotency key.
pub(crate) async fn start_execution(
    app: &SharedState,
    wanted: ExecutionRequest,
) -> ApiResult<(Arc<Execution>, StartOutcome)> {
    // Reports a missing skill at once. Its content is not read: it may be a million files, and
    // other requests wait for this thread.
    app.store.needs(&wanted.skill)?;
    let user = wanted.skill.user.clone();
    app.create_tenant_dirs(&user).map_err(|error| ApiError::internal(&error))?;
    let places = app.executions.run_semaphores(&user, executions_quota(app, &user)?);
    let execution = {
        // Serialized: two concurrent requests with the same key must be one execution.
        let _turn = app.executions.keys.lock().await;
        if let Some((key, digest)) = &wanted.key
            && let Some(known) = app.executions.find_by_key(&wanted.skill, key)
        {
            let is_same = known.key.as_ref().is_some_and(|(_, own)| own == digest);
            return if is_same {
                Ok((known, StartOutcome::Before))
            } else {
                Err(other_request(key))
            };
        }
        if app.executions.count_unfinished_of(&user) >= WAITING {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue-full",
                format!("too many queued commands of `{user}`: {WAITING}"),
            )
            .hint("try again when some commands have ended")
            .retry_after(1));
        }
        let execution = Arc::new(Execution::new(app, session_id(), &wanted));
        for old in app.executions.add(&execution) {
            results::remove(app, &old.status());
        }
        execution
    };
    if let Some(acceptance) = spawn(app, &execution, wanted, places) {
        acceptance.await.map_err(|error| ApiError::internal(&error))??;
    }
    Ok((execution, StartOutcome::Now))
}

/// The number of commands a tenant may run at once; an error if it is 0.
pub(crate) fn executions_quota(app: &AppState, user: &SkillName) -> ApiResult<usize> {
    match app.tenants.quotas(user).executions as usize {
        0 => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "quota",
            format!("`{user}` may not run commands"),
        )
        .hint("raise the quota `executions`, which is 0")),
        most => Ok(most),
    }
}

/// Accepts and starts a command in its own task, so that a client that disconnects stops neither.
/// Returns a receiver for the acceptance of a command that is kept.
fn spawn(
    app: &SharedState,
    execution: &Arc<Execution>,
    wanted: ExecutionRequest,
    places: [Arc<Semaphore>; 2],
) -> Option<oneshot::Receiver<ApiResult<()>>> {
    let (app, execution) = (app.clone(), execution.clone());
    if !wanted.is_kept {
        tokio::spawn(start(app, execution, wanted, places));
        return None;
    }
    let (accepted, acceptance) = oneshot::channel();
    tokio::spawn(async move {
        let result = accept(&app, &execution).await;
        let is_accepted = result.is_ok();
        let _ = accepted.send(result);
        if is_accepted {
            start(app, execution, wanted, places).await;
        }
    });
    Some(acceptance)
}

/// Stores a command before it is reported as accepted, so that a later service can run it. If that
/// fails, the command ends with the error, also for callers with the same key.
async fn accept(app: &SharedState, execution: &Arc<Execution>) -> ApiResult<()> {
    let (shared, status) = (app.clone(), execution.status());
    let saved = tokio::task::spawn_blocking(move || results::save(&shared, &status)).await;
    let saved = saved
        .map_err(|error| ApiError::internal(&error))
        .and_then(|saved| saved.map_err(|error| ApiError::internal(&error)));
    saved.inspect_err(|fault| {
        execution.finish(execution.ended_status(Err(fault.clone())));
        app.executions.forget(execution);
    })
}

/// Waits for the permits, then runs the command on a blocking thread.
async fn start(
    app: SharedState,
    execution: Arc<Execution>,
    wanted: ExecutionRequest,
    places: [Arc<Semaphore>; 2],
) {
    let Some(places) = execution.progress.acquire(places).await else {
        return finish_cancelled(&execution, &app);
    };
    if let Err(fault) = check_quota(&app, &wanted.skill.user).await {
        return finish(&app, &execution, Err(fault));
    }
    let making =
        execution.progress.acquire(app.executions.start_semaphores(&wanted.skill.user)).await;
    let Some(making) = making else { return finish_cancelled(&execution, &app) };
    let guard = FailUnlessStarted { app, execution, is_run: false };
    // Pooled threads: creating one per command would take as long as some commands.
    tokio::task::spawn_blocking(move || {
        let mut guard = guard;
        guard.is_run = true;
        let (app, begun) = (&guard.app, &guard.execution);
        let result = run(app, begun, &wanted, making);
        finish(app, begun, result);
        drop(places);
    });
}

/// Runs the commands that the previous service accepted and did not start, in their order. Needs a
/// runtime.
pub(crate) fn resume(app: &SharedState, waiting: Vec<Arc<Execution>>) {
    let mut of_users: HashMap<SkillName, Vec<Arc<Execution>>> = HashMap::new();
    for execution in waiting {
        of_users.entry(execution.skill.user.clone()).or_default().push(execution);
    }
    for waiting in of_users.into_values() {
        let resumed: Vec<_> =
            waiting.into_iter().map(|execution| resume_one(app.clone(), execution)).collect();
        // All wait at once, so that each can be cancelled. `join_all` polls them in order, and
        // semaphores are fair. Without `unconstrained`, tokio's budget per poll would defer some,
        // out of order.
        tokio::spawn(unconstrained(join_all(resumed)));
    }
}

async fn resume_one(app: SharedState, execution: Arc<Execution>) {
    match executions_quota(&app, &execution.skill.user) {
        Ok(most) => {
            let (wanted, places) = (
                ExecutionRequest::from_execution(&execution),
                app.executions.run_semaphores(&execution.skill.user, most),
            );
            start(app, execution, wanted, places).await;
        }
        Err(fault) => finish(&app, &execution, Err(fault)),
    }
}

impl ExecutionRequest {
    /// The request as it was accepted.
    fn from_execution(execution: &Execution) -> Self {
        let status = execution.status();
        let request = status.request.as_ref();
        Self {
            skill: execution.skill.clone(),
            command: status.command.clone(),
            timeout: request.and_then(|request| request.timeout_ms).map(Duration::from_millis),
            is_kept: execution.is_kept,
            key: execution.key.clone(),
            asks: request.is_some_and(|request| request.asks),
        }
    }
}

/// A command that waits for a thread; it fails if no thread can be started.
struct FailUnlessStarted {
    app: SharedState,
    execution: Arc<Execution>,
    is_run: bool,
}

impl Drop for FailUnlessStarted {
    fn drop(&mut self) {
        if !self.is_run {
            let full = ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no-thread",
                "cannot start a thread",
            );
            finish(
                &self.app,
                &self.execution,
                Err(full.hint("the machine is overloaded: try again").retry_after(1)),
            );
        }
    }
}

/// Started by this request, or by an earlier one with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartOutcome {
    Now,
    Before,
}

fn other_request(key: &str) -> ApiError {
    let message = format!("the Idempotency-Key `{key}` belongs to another request");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-mismatch", message)
        .hint("use a new `Idempotency-Key` for each different request")
}

fn finish_cancelled(execution: &Execution, app: &SharedState) {
    // The command was accepted, and the next service runs it.
    if execution.is_kept && app.executions.is_closing() {
        return;
    }
    let fault = ApiError::new(
        StatusCode::CONFLICT,
        "cancelled",
        "the command was cancelled before it started",
    );
    let ended = execution.ended_status(Err(fault));
    if execution.is_kept {
        let _ = results::write(app, &ended);
    }
    execution.finish(ended);
    if !execution.is_kept {
        app.executions.forget(execution);
    }
}

fn finish(app: &SharedState, execution: &Execution, result: ApiResult<Value>) {
    let status = execution.ended_status(result);
    // Stored before it is reported: a reported result must survive a crash.
    let is_written =
        !(execution.is_kept || execution.key.is_some()) || results::write(app, &status).is_ok();
    // A result that cannot be stored keeps its start in the journal: the next service must not run
    // the command again.
    let ended = if is_written { app.journal.record_end(&status.id) } else { Ok(()) };
    if let Err(error) = ended {
        crate::server::log::log_failure(&error);
    }
    let about = json!({ "id": status.id, "agentId": status.agent_id, "skillId": status.skill_id, "command": status.command,
        "state": status.state, "exitCode": status.result.as_ref().map(|result| result["exitCode"].clone()),
        "blocked": status.result.as_ref().map(|result| result["blocked"].clone()),
        "durationMs": status.result.as_ref().map(|result| result["durationMs"].clone()) });
    app.metrics.count_execution(status.result.as_ref());
    app.events.publish("execution-ended", &status.user_id, about);
    execution.finish(status);
}

/// Fails if a tenant exceeds its storage quota. Each command's output is limited, but many commands
/// could fill the shared disk.
///
/// Counting may take a second: it runs on its own thread, while no start permit is held.
async fn check_quota(app: &SharedState, user: &SkillName) -> ApiResult<()> {
    let weight = match app.tenants.cached_usage(user) {
        Some(weight) => weight,
        None => {
            let (app, user) = (app.clone(), user.clone());
            let counted = tokio::task::spawn_blocking(move || count(&app, &user)).await;
            counted.map_err(|error| ApiError::internal(&error))??
        }
    };
    let most = app.tenants.quotas(user).storage_bytes;
    let fault = |message| {
        Err(ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "quota", message)
            .hint("remove or replace some skills"))
    };
    match weight {
        Weight::Bytes(bytes) if bytes <= most => Ok(()),
        Weight::Bytes(bytes) => {
            fault(format!("the skills of `{user}` take {bytes} bytes; the quota is {most}"))
        }
        Weight::Uncountable => {
            let names = app.store.bounds().counted;
            fault(format!(
                "the skills of `{user}` have more than {names} names, or directories too deep to count"
            ))
        }
    }
}

fn count(app: &SharedState, user: &SkillName) -> ApiResult<Weight> {
    let usage = || {
        app.store.usage(user).map(|usage| {
            if usage.is_complete { Weight::Bytes(usage.bytes) } else { Weight::Uncountable }
        })
    };
    Ok(app.tenants.count_usage(user, usage)?)
}

/// Runs the command on the current thread.
fn run(
    app: &SharedState,
    execution: &Arc<Execution>,
    wanted: &ExecutionRequest,
    making: Vec<OwnedSemaphorePermit>,
) -> ApiResult<Value> {
    let mut lease = app.store.lease(&wanted.skill)?;
    let directory = AbsPath::new(lease.path()).expect("the store is kept by an absolute path");
    let mut resolved = app.policy(&wanted.skill, &directory)?;
    let ceiling = wanted.asks.then(|| resolved.grants.clone());
    // Never more than the skill declares.
    narrow(&mut resolved.grants, &lease.needs()?, "SKILL.md metadata")?;
    limit(&mut resolved, wanted.timeout);
    let make_asker = |ceiling| {
        let (user, about) = (wanted.skill.user.clone(), execution.id.clone());
        Arc::new(TenantAsker {
            asks: app.asks.clone(),
            user,
            about,
            data: app.data.clone(),
            workspace: directory.clone(),
            ceiling,
        })
    };
    let asker = ceiling.map(|ceiling| make_asker(ceiling) as Arc<dyn Asker>);
    if asker.is_some() {
        resolved.grants.network.prepare_for_prompts();
    }
    let run_request = RunRequest {
        command: vec!["/bin/bash".into(), "-c".into(), wanted.command.clone().into()],
        cwd: directory.clone(),
        flags: Flags::none(directory.clone()),
        files: app.skill_policy_files(),
        stdio: StdioMode::Capture { limit: KEPT },
        asker,
        agent: Some(format!("{}/{}/{}", wanted.skill.user, wanted.skill.agent, wanted.skill.skill)),
        session: execution.id.clone(),
    };
    execution.change(|status| {
        (status.state, status.started_ms) = (ExecutionState::Running, Some(now_ms()))
    });
    app.journal.record_start(&execution.status()).map_err(|error| ApiError::internal(&error))?;
    let about = json!({ "id": execution.id, "agentId": wanted.skill.agent, "skillId": wanted.skill.skill, "command": wanted.command });
    app.events.publish("execution-begun", &wanted.skill.user, about);
    let mut warnings = Vec::new();
    let outcome = run_observed(
        app,
        execution,
        (&run_request, &resolved),
        (&mut lease, making),
        &mut warnings,
    )?;
    for denial in &outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["execution"] = execution.id.clone().into();
        app.events.publish("denial", &wanted.skill.user, about);
    }
    warnings.extend(resolved.grants.warnings.iter().cloned());
    let result = ExecuteResult { warnings, ..outcome.into() };
    serde_json::to_value(&result).map_err(|error| ApiError::internal(&error))
}

fn run_observed(
    app: &SharedState,
    execution: &Arc<Execution>,
    (run_request, resolved): (&RunRequest, &ResolvedPolicy),
    (lease, making): (&mut SkillLease, Vec<OwnedSemaphorePermit>),
    warnings: &mut Vec<String>,
) -> Result<Outcome, EngineError> {
    let provider = (app.new_provider)();
    let turn = StartPermit(Arc::new(Mutex::new(making)));
    let mut begun = |reach: ringfence_engine::session::CommandControl| {
        lease.sandbox_started();
        turn.release_soon();
        execution.progress.set_interrupter(reach.interrupter);
    };
    let output = execution.progress.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        execution.progress.notify_change();
    };
    let watcher = RunObserver { begun: &mut begun, sink: &mut sink };
    run_streamed(provider.as_ref(), run_request, resolved, watcher, &mut |notice| {
        warnings.push(notice.to_string())
    })
}

/// The permit of a command that is being started. Most commands end quickly, and removing a sandbox
/// costs as much as creating it: those keep the permit to their end, which limits that work too. A
/// longer command gives it back early and blocks no other.
struct StartPermit(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl StartPermit {
    fn release_soon(&self) {
        let turn = self.0.clone();
        Handle::current().spawn(async move {
            tokio::time::sleep(START_PERMIT_TIME).await;
            release(&turn);
        });
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        release(&self.0);
    }
}

fn release(turn: &Mutex<Vec<OwnedSemaphorePermit>>) {
    lock(turn).clear();
}

/// Limits the run time to the caller's, the policy's and the hard limit.
fn limit(resolved: &mut ResolvedPolicy, timeout: Option<Duration>) {
    let limits = &mut resolved.grants.limits;
    let given = timeout.map(|timeout| timeout.as_millis() as u64);
    limits.wall_ms =
        [limits.wall_ms, given, Some(MAX_DURATION.as_millis() as u64)].into_iter().flatten().min();
}
