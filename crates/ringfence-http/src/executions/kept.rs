//! What of a command outlives the service: that it runs, and its result where somebody will ask.

use std::fs;
use std::io;
use std::sync::Arc;

use ringfence_audit::{Act, Details, Ended, Record, Verdict, now_ms};
use ringfence_policy::AbsPath;
use ringfence_skills::{Name, SkillId};

use super::{Course, Execution, State, Status};
use crate::Shared;
use crate::answer::Problem;
use crate::house::{House, append, put};

/// Writes down what became of it.
pub(super) fn write(house: &Shared, status: &Status) {
    let written = serde_json::to_vec(status).map_err(io::Error::other).and_then(|text| put(file(house, status).as_path(), &text));
    if let Err(error) = written {
        crate::door::log::failed(&error);
    }
}

pub(super) fn read(file: &AbsPath) -> Option<Status> {
    serde_json::from_slice(&fs::read(file.as_path()).ok()?).ok()
}

pub(super) fn remove(house: &Shared, status: &Status) {
    match fs::remove_file(file(house, status).as_path()) {
        // It failed before it was written down.
        Err(error) if error.kind() != io::ErrorKind::NotFound => crate::door::log::failed(&error),
        _ => {}
    }
}

pub(super) fn file(house: &House, status: &Status) -> AbsPath {
    house.tenant(status.user_id.as_ref()).join("executions").join(format!("{}.json", status.id))
}

/// What a service before this one has left.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Commands that ran when it ended.
    pub(crate) lost: usize,
}

/// Reads what is kept; what ran has ended with the service that ran it, and is on record as that.
pub(crate) fn recover(house: &Shared) -> io::Result<Recovered> {
    let mut recovered = Recovered::default();
    for tenant in fs::read_dir(house.data.join("tenants").as_path())? {
        let directory = tenant?.path().join("executions");
        let mut kept: Vec<Status> = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry?.path();
            let is_whole = path.extension().is_some_and(|extension| extension == "json");
            match fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Status>(&bytes).ok()).filter(|_| is_whole) {
                // All results together would be too much to hold.
                Some(status) => kept.push(Status { result: None, ..status }),
                // Half written when the service was killed.
                None => fs::remove_file(&path)?,
            }
        }
        kept.sort_by(|one, other| one.id.cmp(&other.id));
        for status in kept {
            add(house, status);
        }
    }
    for mut status in house.journal.left() {
        // It had ended, and nobody came to say so.
        if house.executions.find(&status.id).is_none() {
            recovered.lost += 1;
            lose(house, &mut status);
            if status.is_kept || status.key.is_some() {
                write(house, &status);
                add(house, status.clone());
            }
        }
        house.journal.ends(&status.id)?;
    }
    Ok(recovered)
}

fn add(house: &Shared, status: Status) {
    for old in house.executions.add(&Arc::new(Execution::kept(house, status))) {
        remove(house, &old.status());
    }
}

fn lose(house: &House, status: &mut Status) {
    status.state = State::Lost;
    status.ended_ms = Some(now_ms());
    let message = "the service ended while it ran, and it with the service".to_owned();
    status.error = Some(Problem { code: "lost".into(), message: message.clone(), hint: Some("begin it again".into()) });
    let ended = Ended {
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
        operation: Act::End,
        target: status.command.clone(),
        result: Verdict::Failed,
        policy: "service".into(),
        reason: Some(message),
        details: Details::Ended(ended),
    };
    let log = house.tenant(status.user_id.as_ref()).join("audit");
    if let Err(error) = append(log.as_path(), &record) {
        crate::door::log::failed(&error);
    }
}

impl Execution {
    /// One of which only the result is left.
    fn kept(house: &House, status: Status) -> Self {
        let part = |name: &Name| name.clone();
        let skill = SkillId { user: part(&status.user_id), agent: part(&status.agent_id), skill: part(&status.skill_id) };
        let size = fs::metadata(file(house, &status).as_path()).map_or(0, |metadata| metadata.len() as usize);
        Self {
            id: status.id.clone(),
            skill,
            is_kept: status.is_kept,
            key: status.key.clone(),
            file: file(house, &status),
            status: std::sync::Mutex::new(status),
            course: Course::over(),
            weight: std::sync::atomic::AtomicUsize::new(0),
            size: std::sync::atomic::AtomicUsize::new(size),
            fault: std::sync::Mutex::default(),
        }
    }
}
