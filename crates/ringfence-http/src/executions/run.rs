//! The life of a command in a skill.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use futures_util::future::join_all;
use ringfence::ExecuteResult;
use ringfence_api::{Asker, Outcome, ShellState, StdioMode, whole};
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::{EngineError, ResolvedPolicy, RunObserver, RunRequest, run_watched};
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

/// The hardest limit of all, whatever a policy says: five minutes.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);
/// So much of each stream is in the result.
const KEPT: usize = 1 << 20;
/// So long a command may keep its turn.
const A_MOMENT: Duration = Duration::from_millis(50);
/// So many of a tenant may wait for their turn.
const WAITING: usize = 1024;

/// A command that somebody wants to run.
#[derive(Clone)]
pub(crate) struct ExecutionRequest {
    pub(crate) skill: SkillId,
    pub(crate) command: String,
    pub(crate) timeout: Option<Duration>,
    /// Whether its result is kept until somebody asks for it.
    pub(crate) is_kept: bool,
    /// What makes the same request the same execution, and a digest of all it says.
    pub(crate) key: Option<(String, String)>,
    /// Whether somebody is asked about what it is refused.
    pub(crate) asks: bool,
}

/// Begins a command, or finds that it was begun before.
pub(crate) async fn begin(
    house: &SharedState,
    wanted: ExecutionRequest,
) -> ApiResult<(Arc<Execution>, StartOutcome)> {
    // A skill that is not there is told at once. What is in it is not looked at: that may be a
    // million files, and others wait for this thread.
    house.store.needs(&wanted.skill)?;
    let user = wanted.skill.user.clone();
    house.settle(&user).map_err(|error| ApiError::ours(&error))?;
    let places = house.executions.places(&user, executions_quota(house, &user)?);
    let execution = {
        // One at a time: two that come with the same key are the same.
        let _turn = house.executions.keys.lock().await;
        if let Some((key, digest)) = &wanted.key
            && let Some(known) = house.executions.keyed(&wanted.skill, key)
        {
            let is_same = known.key.as_ref().is_some_and(|(_, own)| own == digest);
            return if is_same {
                Ok((known, StartOutcome::Before))
            } else {
                Err(other_request(key))
            };
        }
        if house.executions.running_of(&user) >= WAITING {
            return Err(ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue-full",
                format!("{WAITING} commands of `{user}` wait already"),
            )
            .hint("try again when some have ended")
            .after(1));
        }
        let execution = Arc::new(Execution::new(house, session_id(), &wanted));
        for old in house.executions.add(&execution) {
            results::remove(house, &old.status());
        }
        execution
    };
    if let Some(acceptance) = spawn(house, &execution, wanted, places) {
        acceptance.await.map_err(|error| ApiError::ours(&error))??;
    }
    Ok((execution, StartOutcome::Now))
}

/// Number of commands that a tenant may run at the same time; an error where it is 0.
pub(crate) fn executions_quota(house: &AppState, user: &SkillName) -> ApiResult<usize> {
    match house.tenants.quotas(user).executions as usize {
        0 => {
            Err(ApiError::new(StatusCode::FORBIDDEN, "quota", format!("`{user}` may run nothing"))
                .hint("the quota `executions` is 0"))
        }
        most => Ok(most),
    }
}

/// Accepts and starts a command in one task of its own: a caller that disconnects stops neither. A
/// command that is kept has an acceptance to wait for.
fn spawn(
    house: &SharedState,
    execution: &Arc<Execution>,
    wanted: ExecutionRequest,
    places: [Arc<Semaphore>; 2],
) -> Option<oneshot::Receiver<ApiResult<()>>> {
    let (house, execution) = (house.clone(), execution.clone());
    if !wanted.is_kept {
        tokio::spawn(start(house, execution, wanted, places));
        return None;
    }
    let (accepted, acceptance) = oneshot::channel();
    tokio::spawn(async move {
        let result = accept(&house, &execution).await;
        let is_accepted = result.is_ok();
        let _ = accepted.send(result);
        if is_accepted {
            start(house, execution, wanted, places).await;
        }
    });
    Some(acceptance)
}

/// Writes a command down before its caller is told that it was accepted: a service that starts
/// later runs it. If that fails, the command ends with the fault, also for callers with the same
/// key.
async fn accept(house: &SharedState, execution: &Arc<Execution>) -> ApiResult<()> {
    let (shared, status) = (house.clone(), execution.status());
    let saved = tokio::task::spawn_blocking(move || results::save(&shared, &status)).await;
    let saved = saved
        .map_err(|error| ApiError::ours(&error))
        .and_then(|saved| saved.map_err(|error| ApiError::ours(&error)));
    saved.inspect_err(|fault| {
        execution.finish(execution.ending(Err(fault.clone())));
        house.executions.forget(execution);
    })
}

/// Waits until it is a command's turn, then runs it on a thread.
async fn start(
    house: SharedState,
    execution: Arc<Execution>,
    wanted: ExecutionRequest,
    places: [Arc<Semaphore>; 2],
) {
    let Some(places) = execution.course.turn(places).await else {
        return unwanted(&execution, &house);
    };
    if let Err(fault) = within_quota(&house, &wanted.skill.user).await {
        return finish(&house, &execution, Err(fault));
    }
    let making = execution.course.turn(house.executions.making(&wanted.skill.user)).await;
    let Some(making) = making else { return unwanted(&execution, &house) };
    let unrun = FailUnlessStarted { house, execution, is_run: false };
    // Threads are used again: to make one for each takes as long as some of them do.
    tokio::task::spawn_blocking(move || {
        let mut unrun = unrun;
        unrun.is_run = true;
        let (house, begun) = (&unrun.house, &unrun.execution);
        let result = run(house, begun, &wanted, making);
        finish(house, begun, result);
        drop(places);
    });
}

/// Runs what a service before this one had accepted and not begun, in the order in which it was
/// accepted. Needs a runtime.
pub(crate) fn resume(house: &SharedState, waiting: Vec<Arc<Execution>>) {
    let mut of_users: HashMap<SkillName, Vec<Arc<Execution>>> = HashMap::new();
    for execution in waiting {
        of_users.entry(execution.skill.user.clone()).or_default().push(execution);
    }
    for waiting in of_users.into_values() {
        let resumed: Vec<_> =
            waiting.into_iter().map(|execution| resume_one(house.clone(), execution)).collect();
        // All wait at once, so that each can be cancelled. `join_all` polls them in order, and
        // semaphores are fair. Without `unconstrained`, tokio's budget per poll would put some off,
        // and not in order.
        tokio::spawn(unconstrained(join_all(resumed)));
    }
}

async fn resume_one(house: SharedState, execution: Arc<Execution>) {
    match executions_quota(&house, &execution.skill.user) {
        Ok(most) => {
            let (wanted, places) = (
                ExecutionRequest::again(&execution),
                house.executions.places(&execution.skill.user, most),
            );
            start(house, execution, wanted, places).await;
        }
        Err(fault) => finish(&house, &execution, Err(fault)),
    }
}

impl ExecutionRequest {
    /// The same as it was accepted.
    fn again(execution: &Execution) -> Self {
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

/// A command that waits for a thread. Where none can be had, that is its end.
struct FailUnlessStarted {
    house: SharedState,
    execution: Arc<Execution>,
    is_run: bool,
}

impl Drop for FailUnlessStarted {
    fn drop(&mut self) {
        if !self.is_run {
            let full = ApiError::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no-thread",
                "no thread can be started",
            );
            finish(
                &self.house,
                &self.execution,
                Err(full.hint("the machine is full: try again").after(1)),
            );
        }
    }
}

/// Whether it was begun by this very request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartOutcome {
    Now,
    Before,
}

fn other_request(key: &str) -> ApiError {
    let message = format!("the key `{key}` belongs to another request");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-mismatch", message)
        .hint("use a new `Idempotency-Key` for each different request")
}

fn unwanted(execution: &Execution, house: &SharedState) {
    // It was accepted, and the next service runs it.
    if execution.is_kept && house.executions.is_closing() {
        return;
    }
    let fault =
        ApiError::new(StatusCode::CONFLICT, "cancelled", "it was cancelled before it began");
    let ended = execution.ending(Err(fault));
    if execution.is_kept {
        let _ = results::write(house, &ended);
    }
    execution.finish(ended);
    if !execution.is_kept {
        house.executions.forget(execution);
    }
}

fn finish(house: &SharedState, execution: &Execution, result: ApiResult<Value>) {
    let status = execution.ending(result);
    // Before anybody hears of it: what was told is still so after a crash.
    let is_written =
        !(execution.is_kept || execution.key.is_some()) || results::write(house, &status).is_ok();
    // A result that cannot be written down stays begun in the journal: the next service must not
    // run it again.
    let ended = if is_written { house.journal.ends(&status.id) } else { Ok(()) };
    if let Err(error) = ended {
        crate::server::log::failed(&error);
    }
    let about = json!({ "id": status.id, "agentId": status.agent_id, "skillId": status.skill_id, "command": status.command,
        "state": status.state, "exitCode": status.result.as_ref().map(|result| result["exitCode"].clone()),
        "blocked": status.result.as_ref().map(|result| result["blocked"].clone()),
        "durationMs": status.result.as_ref().map(|result| result["durationMs"].clone()) });
    house.metrics.ended(status.result.as_ref());
    house.events.tell("execution-ended", &status.user_id, about);
    execution.finish(status);
}

/// What commands write is bounded for each of them, and many of them fill a disk that is
/// everybody's: a tenant that has more than it may runs nothing until there is less of it.
///
/// To count may take a second: it is done on a thread of its own, and while no turn of others is
/// held.
async fn within_quota(house: &SharedState, user: &SkillName) -> ApiResult<()> {
    let weight = match house.tenants.weight(user) {
        Some(weight) => weight,
        None => {
            let (house, user) = (house.clone(), user.clone());
            let counted = tokio::task::spawn_blocking(move || count(&house, &user)).await;
            counted.map_err(|error| ApiError::ours(&error))??
        }
    };
    let most = house.tenants.quotas(user).storage_bytes;
    let fault = |message| {
        Err(ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "quota", message)
            .hint("remove or replace some of them"))
    };
    match weight {
        Weight::Bytes(bytes) if bytes <= most => Ok(()),
        Weight::Bytes(bytes) => {
            fault(format!("skills of `{user}` have {bytes} bytes, and may have {most}"))
        }
        Weight::Uncountable => {
            let names = house.store.bounds().counted;
            fault(format!(
                "skills of `{user}` have more than {names} names, or directories that are too deep to count"
            ))
        }
    }
}

fn count(house: &SharedState, user: &SkillName) -> ApiResult<Weight> {
    let usage = || {
        house.store.usage(user).map(|usage| {
            if usage.is_complete { Weight::Bytes(usage.bytes) } else { Weight::Uncountable }
        })
    };
    Ok(house.tenants.weigh(user, usage)?)
}

/// On a thread that does nothing else meanwhile.
fn run(
    house: &SharedState,
    execution: &Arc<Execution>,
    wanted: &ExecutionRequest,
    making: Vec<OwnedSemaphorePermit>,
) -> ApiResult<Value> {
    let mut lease = house.store.lease(&wanted.skill)?;
    let directory = AbsPath::new(lease.path()).expect("the store is kept by an absolute path");
    let mut resolved = house.policy(&wanted.skill, &directory)?;
    let ceiling = wanted.asks.then(|| resolved.grants.clone());
    // Never more than it says it needs.
    narrow(&mut resolved.grants, &lease.needs()?, "SKILL.md metadata")?;
    limit(&mut resolved, wanted.timeout);
    let desk = |ceiling| {
        let (user, about) = (wanted.skill.user.clone(), execution.id.clone());
        Arc::new(TenantAsker {
            asks: house.asks.clone(),
            user,
            about,
            data: house.data.clone(),
            workspace: directory.clone(),
            ceiling,
        })
    };
    let asker = ceiling.map(|ceiling| desk(ceiling) as Arc<dyn Asker>);
    if asker.is_some() {
        resolved.grants.network.for_asking();
    }
    let asked = RunRequest {
        command: vec!["/bin/bash".into(), "-c".into(), wanted.command.clone().into()],
        cwd: directory.clone(),
        flags: Flags::none(directory.clone()),
        files: house.files(),
        stdio: StdioMode::Capture { limit: KEPT },
        asker,
        agent: Some(format!("{}/{}/{}", wanted.skill.user, wanted.skill.agent, wanted.skill.skill)),
        session: execution.id.clone(),
    };
    execution.change(|status| {
        (status.state, status.started_ms) = (ExecutionState::Running, Some(now_ms()))
    });
    house.journal.begins(&execution.status()).map_err(|error| ApiError::ours(&error))?;
    let about = json!({ "id": execution.id, "agentId": wanted.skill.agent, "skillId": wanted.skill.skill, "command": wanted.command });
    house.events.tell("execution-begun", &wanted.skill.user, about);
    let mut warnings = Vec::new();
    let outcome =
        watched(house, execution, (&asked, &resolved), (&mut lease, making), &mut warnings)?;
    for denial in &outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["execution"] = execution.id.clone().into();
        house.events.tell("denial", &wanted.skill.user, about);
    }
    warnings.extend(resolved.grants.warnings.iter().cloned());
    let result = ExecuteResult { cwd: None, shell: ShellState::Ended, warnings, ..outcome.into() };
    serde_json::to_value(&result).map_err(|error| ApiError::ours(&error))
}

fn watched(
    house: &SharedState,
    execution: &Arc<Execution>,
    (asked, resolved): (&RunRequest, &ResolvedPolicy),
    (lease, making): (&mut SkillLease, Vec<OwnedSemaphorePermit>),
    warnings: &mut Vec<String>,
) -> Result<Outcome, EngineError> {
    let provider = (house.place)();
    let turn = StartPermit(Arc::new(Mutex::new(making)));
    let mut begun = |reach: ringfence_engine::session::CommandControl| {
        lease.stands();
        turn.ends_soon();
        execution.course.runs(reach.interrupter);
    };
    let output = execution.course.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        execution.course.stirs();
    };
    let watcher = RunObserver { begun: &mut begun, sink: &mut sink };
    run_watched(provider.as_ref(), asked, resolved, watcher, &mut |error| {
        warnings.push(whole(error))
    })
}

/// The turn of a command that is being started. Most end in a moment, and it takes as much to take
/// a sandbox down as to make it: those keep their turn to their end, so that few are at it at the
/// same time. Whoever takes longer holds nobody up.
struct StartPermit(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl StartPermit {
    fn ends_soon(&self) {
        let turn = self.0.clone();
        Handle::current().spawn(async move {
            tokio::time::sleep(A_MOMENT).await;
            end(&turn);
        });
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        end(&self.0);
    }
}

fn end(turn: &Mutex<Vec<OwnedSemaphorePermit>>) {
    lock(turn).clear();
}

/// No command takes longer than it was given, and none longer than five minutes.
fn limit(resolved: &mut ResolvedPolicy, timeout: Option<Duration>) {
    let limits = &mut resolved.grants.limits;
    let given = timeout.map(|timeout| timeout.as_millis() as u64);
    limits.wall_ms =
        [limits.wall_ms, given, Some(LONGEST.as_millis() as u64)].into_iter().flatten().min();
}
