//! What of a command outlives the service: that it runs, and its result where somebody will ask.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ringfence_audit::{Record, RecordAction, RecordDetails, RecordResult, RunEnded, now_ms};
use ringfence_policy::AbsPath;
use ringfence_skills::{SkillId, SkillName};

use super::{CommandWatch, Execution, ExecutionState, ExecutionStatus};
use crate::SharedState;
use crate::error::ProblemJson;
use crate::state::{AppState, append, put};

/// Writes down how a command ended; a failure is logged. The file that says that it waits is
/// removed then: the next service would run the command again.
pub(super) fn write(house: &AppState, status: &ExecutionStatus) -> io::Result<()> {
    save(house, status).inspect_err(|error| {
        crate::server::log::failed(error);
        remove(house, status);
    })
}

/// Writes down how it stands.
pub(super) fn save(house: &AppState, status: &ExecutionStatus) -> io::Result<()> {
    let text = serde_json::to_vec(status).map_err(io::Error::other)?;
    put(file(house, status).as_path(), &text)
}

pub(super) fn read(file: &AbsPath) -> Option<ExecutionStatus> {
    serde_json::from_slice(&fs::read(file.as_path()).ok()?).ok()
}

pub(super) fn remove(house: &AppState, status: &ExecutionStatus) {
    match fs::remove_file(file(house, status).as_path()) {
        // It failed before it was written down.
        Err(error) if error.kind() != io::ErrorKind::NotFound => crate::server::log::failed(&error),
        _ => {}
    }
}

pub(super) fn file(house: &AppState, status: &ExecutionStatus) -> AbsPath {
    house.tenant(status.user_id.as_ref()).join("executions").join(format!("{}.json", status.id))
}

/// What a service before this one has left.
#[derive(Default)]
pub(crate) struct RecoveredRuns {
    /// Number of commands that ran when it ended.
    pub(crate) lost: usize,
    /// Commands that it had accepted and not begun, in order.
    pub(crate) waiting: Vec<Arc<Execution>>,
}

/// Reads what is kept; what ran has ended with the service that ran it, and is on record as that.
pub(crate) fn recover(house: &SharedState) -> io::Result<RecoveredRuns> {
    let mut recovered = RecoveredRuns::default();
    let left = house.journal.left();
    let has_begun: HashSet<&str> = left.iter().map(|status| status.id.as_str()).collect();
    for tenant in fs::read_dir(house.data.join("tenants").as_path())? {
        for status in kept_in(&tenant?.path().join("executions"))? {
            match status.state.is_over() {
                true => drop(add(house, status)),
                // It ran, and is lost.
                false if has_begun.contains(status.id.as_str()) => {}
                false if status.created_ms.saturating_add(super::DAY_MS) < now_ms() => {
                    remove(house, &status)
                }
                false => recovered.waiting.push(add(house, status)),
            }
        }
    }
    for mut status in left {
        // It had ended, and nobody came to say so.
        if house.executions.find(&status.id).is_none() {
            recovered.lost += 1;
            lose(house, &mut status);
            let is_written = !(status.is_kept || status.key.is_some()) || {
                add(house, status.clone());
                write(house, &status).is_ok()
            };
            // On a full disk the journal goes on to say that it began: it is lost for the next one,
            // too.
            if !is_written {
                continue;
            }
        }
        house.journal.ends(&status.id)?;
    }
    Ok(recovered)
}

/// Everything kept of one tenant, oldest first, without results: all of them would be too much to
/// hold.
fn kept_in(directory: &Path) -> io::Result<Vec<ExecutionStatus>> {
    let mut kept: Vec<ExecutionStatus> = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry?.path();
        let is_whole = path.extension().is_some_and(|extension| extension == "json");
        match fs::read(&path)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<ExecutionStatus>(&bytes).ok())
            .filter(|_| is_whole)
        {
            Some(status) => kept.push(ExecutionStatus { result: None, ..status }),
            // Half written when the service was killed.
            None => fs::remove_file(&path)?,
        }
    }
    kept.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(kept)
}

fn add(house: &SharedState, status: ExecutionStatus) -> Arc<Execution> {
    let execution = Arc::new(Execution::kept(house, status));
    for old in house.executions.add(&execution) {
        remove(house, &old.status());
    }
    execution
}

fn lose(house: &AppState, status: &mut ExecutionStatus) {
    (status.state, status.request) = (ExecutionState::Lost, None);
    status.ended_ms = Some(now_ms());
    let message = "the service stopped while the command ran".to_owned();
    status.error = Some(ProblemJson {
        code: "lost".into(),
        message: message.clone(),
        hint: Some("begin it again".into()),
    });
    let ended = RunEnded {
        exit_code: 137,
        duration_ms: 0,
        timed_out: false,
        breaches: Vec::new(),
        denials: 0,
        denials_dropped: 0,
        allowed: None,
        allowed_dropped: None,
        connections_dropped: 0,
        error: Some("lost".into()),
    };
    let record = Record {
        timestamp: now_ms(),
        agent: Some(format!("{}/{}/{}", status.user_id, status.agent_id, status.skill_id)),
        session: status.id.clone(),
        operation: RecordAction::End,
        target: status.command.clone(),
        result: RecordResult::Failed,
        policy: "service".into(),
        reason: Some(message),
        details: RecordDetails::Ended(ended),
    };
    let log = house.tenant(status.user_id.as_ref()).join("audit");
    if let Err(error) = append(log.as_path(), &record) {
        crate::server::log::failed(&error);
    }
}

impl Execution {
    /// One that is written down: it waits, or only its result is left.
    fn kept(house: &AppState, status: ExecutionStatus) -> Self {
        let part = |name: &SkillName| name.clone();
        let skill = SkillId {
            user: part(&status.user_id),
            agent: part(&status.agent_id),
            skill: part(&status.skill_id),
        };
        let course =
            if status.state.is_over() { CommandWatch::over() } else { CommandWatch::new() };
        let size = fs::metadata(file(house, &status).as_path())
            .map_or(0, |metadata| metadata.len() as usize);
        Self {
            id: status.id.clone(),
            skill,
            is_kept: status.is_kept,
            key: status.key.clone(),
            file: file(house, &status),
            status: std::sync::Mutex::new(status),
            course,
            weight: std::sync::atomic::AtomicUsize::new(0),
            size: std::sync::atomic::AtomicUsize::new(size),
            fault: std::sync::Mutex::default(),
        }
    }
}
