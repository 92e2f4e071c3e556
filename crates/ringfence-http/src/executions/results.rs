//! Command state that outlives the service: running commands, and results for later requests.

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
use crate::state::{AppState, append, write_synced};

/// Stores the end of a command and logs a failure. On failure it removes the stored request: the
/// next service would run the command again.
pub(super) fn write(app: &AppState, status: &ExecutionStatus) -> io::Result<()> {
    save(app, status).inspect_err(|error| {
        crate::server::log::log_failure(error);
        remove(app, status);
    })
}

/// Stores the status.
pub(super) fn save(app: &AppState, status: &ExecutionStatus) -> io::Result<()> {
    let text = serde_json::to_vec(status).map_err(io::Error::other)?;
    write_synced(file(app, status).as_path(), &text)
}

pub(super) fn read(file: &AbsPath) -> Option<ExecutionStatus> {
    serde_json::from_slice(&fs::read(file.as_path()).ok()?).ok()
}

pub(super) fn remove(app: &AppState, status: &ExecutionStatus) {
    match fs::remove_file(file(app, status).as_path()) {
        // It failed before it was stored.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            crate::server::log::log_failure(&error)
        }
        _ => {}
    }
}

pub(super) fn file(app: &AppState, status: &ExecutionStatus) -> AbsPath {
    app.tenant(status.user_id.as_ref()).join("executions").join(format!("{}.json", status.id))
}

/// Commands left by the previous service.
#[derive(Default)]
pub(crate) struct RecoveredRuns {
    /// The number of commands that ran when it ended.
    pub(crate) lost: usize,
    /// Commands it had accepted and not started, in order.
    pub(crate) waiting: Vec<Arc<Execution>>,
}

/// Reads the stored commands. Commands that ran have ended with their service and are recorded as
/// lost.
pub(crate) fn recover(app: &SharedState) -> io::Result<RecoveredRuns> {
    let mut recovered = RecoveredRuns::default();
    let left = app.journal.take_unfinished();
    let has_begun: HashSet<&str> = left.iter().map(|status| status.id.as_str()).collect();
    for tenant in fs::read_dir(app.data.join("tenants").as_path())? {
        for status in kept_in(&tenant?.path().join("executions"))? {
            match status.state.is_over() {
                true => drop(add(app, status)),
                // It was running, and is handled as lost below.
                false if has_begun.contains(status.id.as_str()) => {}
                false if status.created_ms.saturating_add(super::DAY_MS) < now_ms() => {
                    remove(app, &status)
                }
                false => recovered.waiting.push(add(app, status)),
            }
        }
    }
    for mut status in left {
        // A stored command had ended; only its journal line is missing.
        if app.executions.find(&status.id).is_none() {
            recovered.lost += 1;
            record_lost(app, &mut status);
            let is_written = !(status.is_kept || status.key.is_some()) || {
                add(app, status.clone());
                write(app, &status).is_ok()
            };
            // On a full disk the journal keeps the start: the command is lost for the next service,
            // too.
            if !is_written {
                continue;
            }
        }
        app.journal.record_end(&status.id)?;
    }
    Ok(recovered)
}

/// The stored commands of one tenant, oldest first, without results: those would take too much
/// memory.
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
            // Half-written when the service was killed.
            None => fs::remove_file(&path)?,
        }
    }
    kept.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(kept)
}

fn add(app: &SharedState, status: ExecutionStatus) -> Arc<Execution> {
    let execution = Arc::new(Execution::kept(app, status));
    for old in app.executions.add(&execution) {
        remove(app, &old.status());
    }
    execution
}

fn record_lost(app: &AppState, status: &mut ExecutionStatus) {
    (status.state, status.request) = (ExecutionState::Lost, None);
    status.ended_ms = Some(now_ms());
    let message = "the service stopped while the command ran".to_owned();
    status.error = Some(ProblemJson {
        code: "lost".into(),
        message: message.clone(),
        hint: Some("start it again".into()),
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
    let log = app.tenant(status.user_id.as_ref()).join("audit");
    if let Err(error) = append(log.as_path(), &record) {
        crate::server::log::log_failure(&error);
    }
}

impl Execution {
    /// A stored command: queued, or ended with its result on disk.
    fn kept(app: &AppState, status: ExecutionStatus) -> Self {
        let part = |name: &SkillName| name.clone();
        let skill = SkillId {
            user: part(&status.user_id),
            agent: part(&status.agent_id),
            skill: part(&status.skill_id),
        };
        let progress =
            if status.state.is_over() { CommandWatch::over() } else { CommandWatch::new() };
        let size = fs::metadata(file(app, &status).as_path())
            .map_or(0, |metadata| metadata.len() as usize);
        Self {
            id: status.id.clone(),
            skill,
            is_kept: status.is_kept,
            key: status.key.clone(),
            file: file(app, &status),
            status: std::sync::Mutex::new(status),
            progress,
            weight: std::sync::atomic::AtomicUsize::new(0),
            size: std::sync::atomic::AtomicUsize::new(size),
            fault: std::sync::Mutex::default(),
        }
    }
}
