//! Commands in skills: queued, running and ended.

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
pub(crate) use run::{
    ExecutionRequest, MAX_DURATION, StartOutcome, executions_quota, resume, start_execution,
};
pub(crate) use watch::{CommandWatch, Watchable};

use crate::error::{ApiError, ProblemJson};
use crate::state::AppState;
use crate::tenants::lock;
use ringfence_policy::AbsPath;

/// Ended commands of a tenant in memory, and bytes of their results.
const REMEMBERED: usize = 200;
const BYTES: usize = 16 << 20;
/// Results of a tenant on disk: number, bytes and age.
const KEPT: usize = 1000;
const DISK: usize = 256 << 20;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Fields of a result that lists leave out.
pub(crate) const OUTPUT: &[&str] =
    &["stdout", "stderr", "stdoutBase64", "stderrBase64", "enforced"];

/// The state of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecutionState {
    /// Queued behind other commands.
    Waiting,
    Running,
    /// It has a result.
    Ended,
    /// It could not be run.
    Failed,
    /// The service stopped while it ran.
    Lost,
}

impl ExecutionState {
    pub(crate) fn is_over(self) -> bool {
        !matches!(self, ExecutionState::Waiting | ExecutionState::Running)
    }
}

/// The status of a command.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Execution)]
pub(crate) struct ExecutionStatus {
    /// Its id, also used in the audit log.
    pub(crate) id: String,
    #[schema(value_type = String)]
    pub(crate) user_id: SkillName,
    #[schema(value_type = String)]
    pub(crate) agent_id: SkillName,
    #[schema(value_type = String)]
    pub(crate) skill_id: SkillName,
    /// The sandbox in whose shell it runs; `agentId` is then `sandbox`, and `skillId` this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sandbox_id: Option<String>,
    pub(crate) command: String,
    pub(crate) state: ExecutionState,
    pub(crate) created_ms: u64,
    pub(crate) started_ms: Option<u64>,
    pub(crate) ended_ms: Option<u64>,
    /// The result, once it has ended.
    #[schema(value_type = Option<crate::server::schema::ExecuteResult>)]
    pub(crate) result: Option<Value>,
    /// The error, if it could not be run.
    #[serde(default)]
    pub(crate) error: Option<ProblemJson>,
    /// True if the result is kept for a later request.
    #[serde(default)]
    pub(crate) is_kept: bool,
    /// The idempotency key and the digest of its request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub(crate) key: Option<(String, String)>,
    /// The other options of the request, while it waits: a later service needs them to run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub(crate) request: Option<Request>,
}

/// Options of a request, besides the command.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) asks: bool,
}

impl ExecutionStatus {
    /// The part that callers see, without keys and requests.
    pub(crate) fn without_internals(mut self) -> Self {
        (self.key, self.request) = (None, None);
        self
    }

    /// Without output.
    pub(crate) fn without_output(mut self) -> Self {
        for name in OUTPUT {
            if let Some(Value::Object(result)) = &mut self.result {
                result.remove(*name);
            }
        }
        self.without_internals()
    }
}

/// A command in a skill.
pub(crate) struct Execution {
    pub(crate) id: String,
    pub(crate) skill: SkillId,
    pub(crate) is_kept: bool,
    pub(crate) key: Option<(String, String)>,
    /// The file of its stored status.
    file: AbsPath,
    status: Mutex<ExecutionStatus>,
    pub(crate) progress: CommandWatch,
    /// The size of its result in memory.
    weight: AtomicUsize,
    /// Its size on disk.
    size: AtomicUsize,
    /// The error, if it could not be run.
    fault: Mutex<Option<ApiError>>,
}

impl Execution {
    fn new(app: &AppState, id: String, wanted: &ExecutionRequest) -> Self {
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
            file: results::file(app, &status),
            status: Mutex::new(status),
            progress: CommandWatch::new(),
            weight: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            fault: Mutex::default(),
        }
    }

    /// The error that explains the missing result.
    pub(crate) fn fault(&self) -> ApiError {
        let fault = lock(&self.fault).clone();
        fault.unwrap_or_else(|| {
            ApiError::new(StatusCode::CONFLICT, "lost", "the service stopped while the command ran")
                .hint("start it again")
        })
    }

    /// The current status; the result of an old command may be missing.
    pub(crate) fn status(&self) -> ExecutionStatus {
        lock(&self.status).clone()
    }

    /// The status with its result, read from disk if needed.
    pub(crate) fn whole(&self) -> ExecutionStatus {
        let status = self.status();
        if status.state == ExecutionState::Ended && status.result.is_none() {
            results::read(&self.file).unwrap_or(status)
        } else {
            status
        }
    }

    /// True if its result may be requested much later.
    fn is_stored(&self) -> bool {
        self.is_kept || self.key.is_some()
    }

    /// Drops the result from memory; it is on disk.
    fn drop_result(&self) {
        lock(&self.status).result = None;
        self.weight.store(0, Ordering::SeqCst);
    }

    pub(crate) fn state(&self) -> ExecutionState {
        lock(&self.status).state
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> ExecutionStatus {
        let mut changes = self.progress.watch();
        loop {
            if self.state().is_over() {
                return self.whole();
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    fn change(&self, how: impl FnOnce(&mut ExecutionStatus)) {
        how(&mut lock(&self.status));
        self.progress.notify_change();
    }

    /// The status with this end.
    fn ended_status(&self, result: Result<Value, ApiError>) -> ExecutionStatus {
        let mut status = self.status();
        (status.ended_ms, status.request) = (Some(now_ms()), None);
        match result {
            Ok(value) => {
                // The serialized size: an invisible byte takes six.
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

    /// Sets the end and wakes all waiters.
    fn finish(&self, ended: ExecutionStatus) {
        self.progress.clear_interrupter();
        self.progress.close_output();
        self.change(|status| *status = ended);
    }
}

/// A command in a skill or a sandbox, for lists.
pub(crate) trait Listed: Watchable {
    fn user(&self) -> &SkillName;

    fn is_over(&self) -> bool;

    /// The current status; the result of an old command may be missing.
    fn status(&self) -> ExecutionStatus;

    /// The status with its result, read from disk if needed.
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

    fn progress(&self) -> &CommandWatch {
        &self.progress
    }

    fn end(&self) -> Option<Result<Value, Option<ProblemJson>>> {
        self.state().is_over().then(|| {
            let status = self.whole();
            status.result.ok_or(status.error)
        })
    }
}

/// All commands in skills.
pub(crate) struct ExecutionRegistry {
    /// Permits to run.
    places: Arc<Semaphore>,
    /// Permits to create or remove a sandbox. This work is CPU-bound: more at once would only slow
    /// down all of them.
    making: Arc<Semaphore>,
    /// A tenant has all but one of these permits, so that one tenant's burst does not block others.
    making_of_users: Mutex<HashMap<SkillName, Arc<Semaphore>>>,
    of_users: Mutex<HashMap<SkillName, Arc<Semaphore>>>,
    /// Held while looking up an idempotency key and adding it.
    keys: tokio::sync::Mutex<()>,
    known: Mutex<ExecutionIndex>,
    /// Set at shutdown: queued commands that are kept are left to the next service.
    is_closing: AtomicBool,
}

#[derive(Default)]
struct ExecutionIndex {
    /// Ids start with the creation time, so they sort by age.
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

    /// The number of a tenant's queued and running commands.
    pub(crate) fn count_unfinished_of(&self, user: &SkillName) -> usize {
        let known = lock(&self.known);
        known
            .by_user
            .get(user)
            .into_iter()
            .flatten()
            .filter(|execution| !execution.state().is_over())
            .count()
    }

    /// The command with this idempotency key.
    fn find_by_key(&self, skill: &SkillId, key: &str) -> Option<Arc<Execution>> {
        let is_it = |execution: &&Arc<Execution>| {
            execution.key.as_ref().is_some_and(|(own, _)| own == key) && execution.skill == *skill
        };
        lock(&self.known).by_user.get(&skill.user)?.iter().rev().find(is_it).cloned()
    }

    /// Adds a command; returns the old commands it displaces that are on disk.
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
            if other.is_stored() {
                kept += 1;
                disk += other.size.load(Ordering::SeqCst);
            }
            let is_much = number > REMEMBERED || bytes > BYTES;
            match other.is_stored() {
                true if kept > KEPT
                    || disk > DISK
                    || lock(&other.status).created_ms < yesterday =>
                {
                    gone.push(other.clone())
                }
                // It is on disk.
                true if is_much => other.drop_result(),
                false if is_much => gone.push(other.clone()),
                _ => {}
            }
        }
        gone.iter().for_each(|other| known.remove(other));
        gone.retain(|other| other.is_stored());
        gone
    }

    /// Changes a tenant's number of permits. Running commands keep theirs.
    pub(crate) fn resize(&self, user: &SkillName, most: usize) {
        lock(&self.of_users).insert(user.clone(), Arc::new(Semaphore::new(most)));
    }

    /// The semaphores a tenant's command must pass before it runs.
    pub(crate) fn run_semaphores(&self, user: &SkillName, most: usize) -> [Arc<Semaphore>; 2] {
        let own = lock(&self.of_users)
            .entry(user.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(most)))
            .clone();
        [own, self.places.clone()]
    }

    /// The semaphores a tenant's command must pass before its sandbox is created.
    pub(crate) fn start_semaphores(&self, user: &SkillName) -> [Arc<Semaphore>; 2] {
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

    /// The number of queued and running commands.
    pub(crate) fn count_unfinished(&self) -> usize {
        lock(&self.known).by_id.values().filter(|execution| !execution.state().is_over()).count()
    }

    /// The number of commands that shutdown waits for.
    pub(crate) fn count_awaited(&self) -> usize {
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

    /// Cancels running commands; none starts from now on.
    pub(crate) fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.list()
            .iter()
            .filter(|execution| !execution.state().is_over())
            .for_each(|execution| execution.progress.cancel());
    }
}
