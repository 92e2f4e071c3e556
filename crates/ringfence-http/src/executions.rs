//! Commands that run in skills, those that wait for it, and those that have ended.

mod journal;
mod output;
mod results;
mod run;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use axum::http::StatusCode;
use ringfence_audit::now_ms;
use ringfence_skills::{SkillId, SkillName};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

pub(crate) use journal::RunJournal;
pub(crate) use output::OutputBuffer;
pub(crate) use results::recover;
pub(crate) use run::{ExecutionRequest, LONGEST, StartOutcome, begin, executions_quota, resume};
pub(crate) use watch::{CommandWatch, Watchable};

use crate::error::{ApiError, ProblemJson};
use crate::state::AppState;
use crate::tenants::lock;
use ringfence_policy::AbsPath;

/// So many of a tenant's that have ended are remembered, and so many bytes of their results.
const REMEMBERED: usize = 200;
const BYTES: usize = 16 << 20;
/// So many results of a tenant are kept on the disk, so many bytes of them, and so long.
const KEPT: usize = 1000;
const DISK: usize = 256 << 20;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// What lists leave out of results.
pub(crate) const OUTPUT: &[&str] =
    &["stdout", "stderr", "stdoutBase64", "stderrBase64", "enforced"];

/// How far it is with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutionState {
    /// Others go first.
    Waiting,
    Running,
    /// There is a result.
    Ended,
    /// It could not be run.
    Failed,
    /// The service ended while it ran.
    Lost,
}

impl ExecutionState {
    pub(crate) fn is_over(self) -> bool {
        !matches!(self, ExecutionState::Waiting | ExecutionState::Running)
    }
}

/// What is known of a command.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Execution)]
pub(crate) struct ExecutionStatus {
    /// What it is known by, also in the audit log.
    pub(crate) id: String,
    #[schema(value_type = String)]
    pub(crate) user_id: SkillName,
    #[schema(value_type = String)]
    pub(crate) agent_id: SkillName,
    #[schema(value_type = String)]
    pub(crate) skill_id: SkillName,
    /// The sandbox in whose shell it runs; agent and skill are `sandbox` and this then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox_id: Option<String>,
    pub(crate) command: String,
    pub(crate) state: ExecutionState,
    pub(crate) created_ms: u64,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    /// Once it has ended.
    #[schema(value_type = Option<crate::server::schema::ExecuteResult>)]
    pub(crate) result: Option<Value>,
    /// If it could not be run.
    #[serde(default)]
    pub(crate) error: Option<ProblemJson>,
    /// Whether it is kept until somebody asks for it.
    #[serde(default)]
    pub(crate) is_kept: bool,
    /// What makes the same request the same execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub(crate) key: Option<(String, String)>,
    /// Everything else that a later service needs to run it, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub(crate) request: Option<Request>,
}

/// Options of a request beside the command itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) asks: bool,
}

impl ExecutionStatus {
    /// The part that callers see: keys and requests are for the service alone.
    pub(crate) fn told(mut self) -> Self {
        (self.key, self.request) = (None, None);
        self
    }

    /// Without what it wrote.
    pub(crate) fn brief(mut self) -> Self {
        for name in OUTPUT {
            if let Some(Value::Object(result)) = &mut self.result {
                result.remove(*name);
            }
        }
        self.told()
    }
}

/// A command.
pub(crate) struct Execution {
    pub(crate) id: String,
    pub(crate) skill: SkillId,
    pub(crate) is_kept: bool,
    pub(crate) key: Option<(String, String)>,
    /// Where it is written down.
    file: AbsPath,
    status: Mutex<ExecutionStatus>,
    pub(crate) course: CommandWatch,
    /// How large its result is.
    weight: AtomicUsize,
    /// How much of the disk it takes.
    size: AtomicUsize,
    /// Why it could not be run, for whoever waits.
    fault: Mutex<Option<ApiError>>,
}

impl Execution {
    fn new(house: &AppState, id: String, wanted: &ExecutionRequest) -> Self {
        let ExecutionRequest { skill, command, is_kept, key, timeout, asks } = wanted.clone();
        let request = is_kept.then(|| Request {
            timeout_ms: timeout.map(|timeout| timeout.as_millis() as u64),
            asks,
        });
        let status = ExecutionStatus {
            id: id.clone(),
            user_id: skill.user.clone(),
            agent_id: skill.agent.clone(),
            skill_id: skill.skill.clone(),
            sandbox_id: None,
            command,
            state: ExecutionState::Waiting,
            created_ms: now_ms(),
            started_ms: None,
            ended_ms: None,
            result: None,
            error: None,
            is_kept,
            key: key.clone(),
            request,
        };
        Self {
            id,
            skill,
            is_kept,
            key,
            file: results::file(house, &status),
            status: Mutex::new(status),
            course: CommandWatch::new(),
            weight: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            fault: Mutex::default(),
        }
    }

    /// Why there is no result.
    pub(crate) fn fault(&self) -> ApiError {
        let told = lock(&self.fault).clone();
        told.unwrap_or_else(|| {
            ApiError::new(StatusCode::CONFLICT, "lost", "the service stopped while the command ran")
                .hint("begin it again")
        })
    }

    /// How it stands; of one that ended long ago the result may be missing.
    pub(crate) fn status(&self) -> ExecutionStatus {
        lock(&self.status).clone()
    }

    /// The same with its result, from wherever that is kept.
    pub(crate) fn whole(&self) -> ExecutionStatus {
        let status = self.status();
        if status.state == ExecutionState::Ended && status.result.is_none() {
            results::read(&self.file).unwrap_or(status)
        } else {
            status
        }
    }

    /// Whether somebody may ask for its result much later.
    fn outlives(&self) -> bool {
        self.is_kept || self.key.is_some()
    }

    /// Forgets the result, which is kept elsewhere.
    fn slim(&self) {
        lock(&self.status).result = None;
        self.weight.store(0, Ordering::SeqCst);
    }

    pub(crate) fn state(&self) -> ExecutionState {
        lock(&self.status).state
    }

    /// Until it has ended.
    pub(crate) async fn ended(&self) -> ExecutionStatus {
        let mut changes = self.course.watch();
        loop {
            if self.state().is_over() {
                return self.whole();
            }
            // The sender is ours, and is there as long as we are.
            let _ = changes.changed().await;
        }
    }

    fn change(&self, how: impl FnOnce(&mut ExecutionStatus)) {
        how(&mut lock(&self.status));
        self.course.stirs();
    }

    /// How it will stand once it has ended like this.
    fn ending(&self, result: Result<Value, ApiError>) -> ExecutionStatus {
        let mut status = self.status();
        (status.ended_ms, status.request) = (Some(now_ms()), None);
        match result {
            Ok(value) => {
                // As it is written: a byte that does not show takes six.
                let length = 1024 + serde_json::to_vec(&value).map_or(0, |text| text.len());
                self.weight.store(length, Ordering::SeqCst);
                self.size.store(length, Ordering::SeqCst);
                (status.state, status.result) = (ExecutionState::Ended, Some(value));
            }
            Err(fault) => {
                (status.state, status.error) =
                    (ExecutionState::Failed, Some(fault.problem.clone()));
                *lock(&self.fault) = Some(fault);
            }
        }
        status
    }

    /// It has ended: whoever waits hears of it.
    fn finish(&self, ended: ExecutionStatus) {
        self.course.stops();
        self.course.falls_silent();
        self.change(|status| *status = ended);
    }
}

/// A command that callers can list, whatever it runs in.
pub(crate) trait Listed: Watchable {
    fn user(&self) -> &SkillName;

    fn is_over(&self) -> bool;

    /// Its state; of one that ended long ago the result may be missing.
    fn status(&self) -> ExecutionStatus;

    /// The same with its result, from wherever that is kept.
    fn whole(&self) -> ExecutionStatus;
}

impl Listed for Execution {
    fn user(&self) -> &SkillName {
        &self.skill.user
    }

    fn is_over(&self) -> bool {
        self.state().is_over()
    }

    fn status(&self) -> ExecutionStatus {
        Execution::status(self)
    }

    fn whole(&self) -> ExecutionStatus {
        Execution::whole(self)
    }
}

impl Watchable for Execution {
    fn id(&self) -> &str {
        &self.id
    }

    fn course(&self) -> &CommandWatch {
        &self.course
    }

    fn end(&self) -> Option<Result<Value, Option<ProblemJson>>> {
        self.state().is_over().then(|| {
            let status = self.whole();
            status.result.ok_or(status.error)
        })
    }
}

/// All of them.
pub(crate) struct ExecutionRegistry {
    /// Places of those that run at the same time.
    places: Arc<Semaphore>,
    /// Places of those whose sandbox is being made or taken down, which is work for a processor:
    /// more at the same time would all be slower, and nobody would be sooner.
    making: Arc<Semaphore>,
    /// A tenant has all but one of them: many commands of one do not make others wait.
    making_of_users: Mutex<HashMap<SkillName, Arc<Semaphore>>>,
    of_users: Mutex<HashMap<SkillName, Arc<Semaphore>>>,
    /// Taken by whoever looks for a key and may have to add one.
    keys: tokio::sync::Mutex<()>,
    known: Mutex<ExecutionIndex>,
    /// Set when the service ends: commands that wait and are kept are left to the next service.
    is_closing: AtomicBool,
}

#[derive(Default)]
struct ExecutionIndex {
    /// Ids begin with the time, so that they are in order.
    by_id: BTreeMap<String, Arc<Execution>>,
    /// Oldest first.
    by_user: HashMap<SkillName, VecDeque<Arc<Execution>>>,
}

impl ExecutionIndex {
    fn remove(&mut self, execution: &Execution) {
        self.by_id.remove(&execution.id);
        if let Some(own) = self.by_user.get_mut(&execution.skill.user) {
            own.retain(|other| other.id != execution.id);
        }
    }
}

impl ExecutionRegistry {
    pub(crate) fn new(at_once: usize) -> Self {
        let processors: usize = thread::available_parallelism().map_or(2, Into::into);
        Self {
            places: Arc::new(Semaphore::new(at_once)),
            making: Arc::new(Semaphore::new(2 * processors + 1)),
            making_of_users: Mutex::default(),
            of_users: Mutex::default(),
            keys: tokio::sync::Mutex::new(()),
            known: Mutex::default(),
            is_closing: AtomicBool::new(false),
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Execution>> {
        lock(&self.known).by_id.get(id).cloned()
    }

    /// Newest first.
    pub(crate) fn list(&self) -> Vec<Arc<Execution>> {
        lock(&self.known).by_id.values().rev().cloned().collect()
    }

    /// Those of a tenant that wait or run.
    pub(crate) fn running_of(&self, user: &SkillName) -> usize {
        let known = lock(&self.known);
        known
            .by_user
            .get(user)
            .into_iter()
            .flatten()
            .filter(|execution| !execution.state().is_over())
            .count()
    }

    /// One that was asked for with this key.
    fn keyed(&self, skill: &SkillId, key: &str) -> Option<Arc<Execution>> {
        let is_it = |execution: &&Arc<Execution>| {
            execution.key.as_ref().is_some_and(|(own, _)| own == key) && execution.skill == *skill
        };
        lock(&self.known).by_user.get(&skill.user)?.iter().rev().find(is_it).cloned()
    }

    /// Adds one; answers those that are forgotten for it and have something on the disk.
    fn add(&self, execution: &Arc<Execution>) -> Vec<Arc<Execution>> {
        let mut known = lock(&self.known);
        known.by_id.insert(execution.id.clone(), execution.clone());
        let own = known.by_user.entry(execution.skill.user.clone()).or_default();
        own.push_back(execution.clone());
        let (mut number, mut bytes, mut kept, mut disk, mut gone) = (0, 0, 0, 0, Vec::new());
        let yesterday = now_ms().saturating_sub(DAY_MS);
        for other in own.iter().rev().filter(|other| other.state().is_over()) {
            number += 1;
            bytes += other.weight.load(Ordering::SeqCst);
            if other.outlives() {
                kept += 1;
                disk += other.size.load(Ordering::SeqCst);
            }
            let is_much = number > REMEMBERED || bytes > BYTES;
            match other.outlives() {
                true if kept > KEPT
                    || disk > DISK
                    || lock(&other.status).created_ms < yesterday =>
                {
                    gone.push(other.clone())
                }
                // It is on the disk.
                true if is_much => other.slim(),
                false if is_much => gone.push(other.clone()),
                _ => {}
            }
        }
        gone.iter().for_each(|other| known.remove(other));
        gone.retain(|other| other.outlives());
        gone
    }

    /// Another number of places for a tenant. Whoever runs keeps theirs.
    pub(crate) fn resize(&self, user: &SkillName, most: usize) {
        lock(&self.of_users).insert(user.clone(), Arc::new(Semaphore::new(most)));
    }

    /// Where a command of a tenant waits until it may run.
    pub(crate) fn places(&self, user: &SkillName, most: usize) -> [Arc<Semaphore>; 2] {
        let own = lock(&self.of_users)
            .entry(user.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(most)))
            .clone();
        [own, self.places.clone()]
    }

    /// Where a command of a tenant waits until its sandbox may be made.
    pub(crate) fn making(&self, user: &SkillName) -> [Arc<Semaphore>; 2] {
        let processors: usize = thread::available_parallelism().map_or(2, Into::into);
        let own = || Arc::new(Semaphore::new(2 * processors));
        [
            lock(&self.making_of_users).entry(user.clone()).or_insert_with(own).clone(),
            self.making.clone(),
        ]
    }

    fn forget(&self, execution: &Execution) {
        lock(&self.known).remove(execution);
    }

    /// How many wait or run.
    pub(crate) fn running(&self) -> usize {
        lock(&self.known).by_id.values().filter(|execution| !execution.state().is_over()).count()
    }

    /// Number of commands that the service waits for before it ends.
    pub(crate) fn busy(&self) -> usize {
        let is_closing = self.is_closing();
        let is_left = |execution: &Execution| {
            is_closing && execution.is_kept && execution.state() == ExecutionState::Waiting
        };
        lock(&self.known)
            .by_id
            .values()
            .filter(|execution| !execution.state().is_over() && !is_left(execution))
            .count()
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Cancels those that run. From now on none begins.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.list()
            .iter()
            .filter(|execution| !execution.state().is_over())
            .for_each(|execution| execution.course.cancel());
    }
}
