//! The life of a command in a skill.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use ringfence::ExecuteResult;
use ringfence_api::{Afterwards, Asker, Outcome, Stdio, whole};
use ringfence_audit::{now_ms, session_id};
use ringfence_engine::{Asked, EngineError, Resolved, Watcher, run_watched};
use ringfence_policy::{AbsPath, Flags};
use ringfence_skills::{Lease, Name, SkillId};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use super::{Execution, State, kept};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::asks::Desk;
use crate::skills::narrow;
use crate::tenants::lock;

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
pub(crate) struct Wanted {
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
pub(crate) async fn begin(house: &Shared, wanted: Wanted) -> Answer<(Arc<Execution>, Begun)> {
    // A skill that is not there is told at once. What is in it is not looked at: that may be a
    // million files, and others wait for this thread.
    house.store.needs(&wanted.skill)?;
    let user = wanted.skill.user.clone();
    house.settle(&user).map_err(|error| Fault::ours(&error))?;
    let most = house.tenants.quotas(&user).executions as usize;
    if most == 0 {
        return Err(Fault::new(StatusCode::FORBIDDEN, "quota", format!("`{user}` may run nothing")).hint("the quota `executions` is 0"));
    }
    let places = house.executions.places(&user, most);
    let execution = {
        // One at a time: two that come with the same key are the same.
        let _turn = house.executions.keys.lock().await;
        if let Some((key, digest)) = &wanted.key
            && let Some(known) = house.executions.keyed(&wanted.skill, key)
        {
            let is_same = known.key.as_ref().is_some_and(|(_, own)| own == digest);
            return if is_same { Ok((known, Begun::Before)) } else { Err(other_request(key)) };
        }
        if house.executions.running_of(&user) >= WAITING {
            return Err(Fault::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", format!("{WAITING} commands of `{user}` wait already"))
                .hint("try again when some have ended")
                .after(1));
        }
        let execution = Arc::new(Execution::new(house, session_id(), &wanted));
        for old in house.executions.add(&execution) {
            kept::remove(house, &old.status());
        }
        execution
    };
    let (house, begun) = (house.clone(), execution.clone());
    // Whoever asked for it may leave, and it has to end all the same.
    tokio::spawn(async move {
        let Some(places) = begun.course.turn(places).await else { return unwanted(&begun, &house) };
        let making = begun.course.wanted(house.executions.making.clone().acquire_owned()).await;
        let Some(Ok(making)) = making else { return unwanted(&begun, &house) };
        let unrun = Unrun { house, execution: begun, is_run: false };
        // Threads are used again: to make one for each takes as long as some of them do.
        tokio::task::spawn_blocking(move || {
            let mut unrun = unrun;
            unrun.is_run = true;
            let (house, begun) = (&unrun.house, &unrun.execution);
            let result = run(house, begun, &wanted, making);
            finish(house, begun, result);
            drop(places);
        });
    });
    Ok((execution, Begun::Now))
}

/// A command that waits for a thread. Where none can be had, that is its end.
struct Unrun {
    house: Shared,
    execution: Arc<Execution>,
    is_run: bool,
}

impl Drop for Unrun {
    fn drop(&mut self) {
        if !self.is_run {
            let full = Fault::new(StatusCode::SERVICE_UNAVAILABLE, "no-thread", "no thread can be started");
            finish(&self.house, &self.execution, Err(full.hint("the machine is full: try again").after(1)));
        }
    }
}

/// Whether it was begun by this very request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Now,
    Before,
}

fn other_request(key: &str) -> Fault {
    let message = format!("the key `{key}` belongs to another request");
    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-mismatch", message)
        .hint("use a new `Idempotency-Key` for each different request")
}

fn unwanted(execution: &Execution, house: &Shared) {
    let fault = Fault::new(StatusCode::CONFLICT, "cancelled", "it was cancelled before it began");
    execution.finish(execution.ending(Err(fault)));
    if !execution.is_kept {
        house.executions.forget(execution);
    }
}

fn finish(house: &Shared, execution: &Execution, result: Answer<Value>) {
    let status = execution.ending(result);
    // Before anybody hears of it: what was told is still so after a crash.
    if execution.is_kept || execution.key.is_some() {
        kept::write(house, &status);
    }
    if let Err(error) = house.journal.ends(&status.id) {
        crate::door::log::failed(&error);
    }
    let about = json!({ "id": status.id, "agentId": status.agent_id, "skillId": status.skill_id, "command": status.command,
        "state": status.state, "exitCode": status.result.as_ref().map(|result| result["exitCode"].clone()),
        "blocked": status.result.as_ref().map(|result| result["blocked"].clone()),
        "durationMs": status.result.as_ref().map(|result| result["durationMs"].clone()) });
    house.metrics.ended(status.result.as_ref());
    house.events.tell("execution-ended", &status.user_id, about);
    execution.finish(status);
}

/// What commands write is bounded for each of them, and many of them fill a disk that is everybody's:
/// whoever has more than they may runs nothing until there is less of it.
fn within_quota(house: &Shared, user: &Name) -> Answer<()> {
    let most = house.tenants.quotas(user).storage_bytes;
    let bytes = house
        .tenants
        .weighed(user, most, || house.store.usage(user).map(|usage| if usage.is_complete { usage.bytes } else { u64::MAX }))?;
    if bytes <= most {
        return Ok(());
    }
    Err(Fault::new(StatusCode::INSUFFICIENT_STORAGE, "quota", format!("skills of `{user}` have {bytes} bytes, and may have {most}"))
        .hint("remove or replace some of them"))
}

/// On a thread that does nothing else meanwhile.
fn run(house: &Shared, execution: &Arc<Execution>, wanted: &Wanted, making: OwnedSemaphorePermit) -> Answer<Value> {
    let mut lease = house.store.lease(&wanted.skill)?;
    let directory = AbsPath::new(lease.path()).expect("the store is kept by an absolute path");
    within_quota(house, &wanted.skill.user)?;
    let mut resolved = house.policy(&wanted.skill, &directory)?;
    let ceiling = wanted.asks.then(|| resolved.grants.clone());
    // Never more than it says it needs.
    narrow(&mut resolved.grants, &lease.needs()?, "SKILL.md metadata")?;
    limit(&mut resolved, wanted.timeout);
    let desk = |ceiling| {
        let (user, about) = (wanted.skill.user.clone(), execution.id.clone());
        Arc::new(Desk { asks: house.asks.clone(), user, about, data: house.data.clone(), workspace: directory.clone(), ceiling })
    };
    let asker = ceiling.map(|ceiling| desk(ceiling) as Arc<dyn Asker>);
    if asker.is_some() {
        resolved.grants.network.for_asking();
    }
    let asked = Asked {
        command: vec!["/bin/bash".into(), "-c".into(), wanted.command.clone().into()],
        cwd: directory.clone(),
        flags: Flags::none(directory.clone()),
        files: house.files(),
        stdio: Stdio::Capture { limit: KEPT },
        asker,
        agent: Some(format!("{}/{}/{}", wanted.skill.user, wanted.skill.agent, wanted.skill.skill)),
        session: execution.id.clone(),
    };
    execution.change(|status| (status.state, status.started_ms) = (State::Running, Some(now_ms())));
    house.journal.begins(&execution.status()).map_err(|error| Fault::ours(&error))?;
    let about = json!({ "id": execution.id, "agentId": wanted.skill.agent, "skillId": wanted.skill.skill, "command": wanted.command });
    house.events.tell("execution-begun", &wanted.skill.user, about);
    let mut warnings = Vec::new();
    let outcome = watched(house, execution, (&asked, &resolved), (&mut lease, making), &mut warnings)?;
    for denial in &outcome.denials {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["execution"] = execution.id.clone().into();
        house.events.tell("denial", &wanted.skill.user, about);
    }
    warnings.extend(resolved.grants.warnings.iter().cloned());
    let result = ExecuteResult { cwd: None, shell: Afterwards::Ended, warnings, ..outcome.into() };
    serde_json::to_value(&result).map_err(|error| Fault::ours(&error))
}

fn watched(
    house: &Shared,
    execution: &Arc<Execution>,
    (asked, resolved): (&Asked, &Resolved),
    (lease, making): (&mut Lease, OwnedSemaphorePermit),
    warnings: &mut Vec<String>,
) -> Result<Outcome, EngineError> {
    let provider = (house.place)();
    let turn = Turn(Arc::new(Mutex::new(Some(making))));
    let mut begun = |reach: ringfence_engine::session::Reach| {
        lease.stands();
        turn.ends_soon();
        execution.course.runs(reach.interrupter);
    };
    let output = execution.course.output().unwrap_or_default();
    let mut sink = |stream, bytes: &[u8]| {
        output.push(stream, bytes);
        execution.course.stirs();
    };
    let watcher = Watcher { begun: &mut begun, sink: &mut sink };
    run_watched(provider.as_ref(), asked, resolved, watcher, &mut |error| warnings.push(whole(error)))
}

/// The turn of a command that is being started. Most end in a moment, and it takes as much to take
/// a sandbox down as to make it: those keep their turn to their end, so that few are at it at the
/// same time. Whoever takes longer holds nobody up.
struct Turn(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl Turn {
    fn ends_soon(&self) {
        let turn = self.0.clone();
        Handle::current().spawn(async move {
            tokio::time::sleep(A_MOMENT).await;
            end(&turn);
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        end(&self.0);
    }
}

fn end(turn: &Mutex<Option<OwnedSemaphorePermit>>) {
    *lock(turn) = None;
}

/// No command takes longer than it was given, and none longer than five minutes.
fn limit(resolved: &mut Resolved, timeout: Option<Duration>) {
    let limits = &mut resolved.grants.limits;
    let given = timeout.map(|timeout| timeout.as_millis() as u64);
    limits.wall_ms = [limits.wall_ms, given, Some(LONGEST.as_millis() as u64)].into_iter().flatten().min();
}
