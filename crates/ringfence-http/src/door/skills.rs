//! Skills: brought, listed, read, edited.

use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::multipart::{MultipartError, MultipartRejection};
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use ringfence_audit::{Act, Details, Record, Verdict, now_ms};
use ringfence_skills::{
    Content, Edit, Edited, Expect, Files, LineRange, Name, Replacement, SkillId, SkillInfo,
    Uploaded,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::bodies::unnamed;
use super::schema;
use super::schema::answers::{Absent, Conflict, Full, NoBody, NoForm, NotMeant, Refused, TooMuch};
use super::stay::Place;
use super::words::{Asked, Body, Named, OfSkill, Shelf, perhaps, too_slow};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::tenants::{Caller, Scope};

/// So many archives of a tenant are on their way at the same time.
const UPLOADS: usize = 4;
/// So long an archive may take to arrive.
const PATIENCE: Duration = Duration::from_secs(300);

/// An archive, as a form has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is read part by part")]
pub(super) struct Archive {
    /// A ZIP file in which every directory at the top is a skill.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Bring skills
///
/// Each skill in the archive replaces the one of that name as a whole; others stay.
#[utoipa::path(post, path = "/v1/skills/{userId}/{agentId}/upload", tag = "skills", operation_id = "uploadSkills", request_body(content = Archive, content_type = "multipart/form-data"), params(Shelf),
    responses((status = 200, description = "What is there now", body = schema::Uploaded), NoForm, Conflict, Full, Refused))]
pub(super) async fn upload(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(shelf): Named<Shelf>,
    form: Result<Multipart, MultipartRejection>,
) -> Answer<Json<Uploaded>> {
    let Shelf { user_id: user, agent_id: agent } = shelf;
    caller.may(Scope::WriteSkills, &user)?;
    let no_form = |_| {
        Fault::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-type",
            "an archive comes as multipart/form-data",
        )
        .hint("curl -F file=@skills.zip")
    };
    let form = form.map_err(no_form)?;
    let _place = Place::take(&house, &caller, "uploads", UPLOADS)?;
    let archive =
        tokio::time::timeout(PATIENCE, received(form, &house)).await.map_err(|_| too_slow())??;
    house.settle(&user).map_err(|error| Fault::ours(&error))?;
    let quota = house.tenants.quotas(&user).storage_bytes;
    let (store, whose) = (house.clone(), (user.clone(), agent.clone()));
    let taken =
        apart(move || Ok(store.store.upload(&whose.0, &whose.1, archive, Some(quota))?)).await;
    house.tenants.forget_weight(&user);
    match &taken {
        Ok(uploaded) => {
            house.metrics.uploads.fetch_add(1, Ordering::Relaxed);
            for skill in &uploaded.skills {
                note(
                    &house,
                    &user,
                    Act::Upload,
                    &format!("{user}/{agent}/{}", skill.info.skill_id),
                    None,
                );
            }
        }
        Err(fault) => note(
            &house,
            &user,
            Act::Upload,
            &format!("{user}/{agent}"),
            Some(&fault.problem.message),
        ),
    }
    taken.map(Json)
}

/// The field `file`, in a file without a name.
async fn received(mut form: Multipart, house: &Shared) -> Answer<std::fs::File> {
    let broken = |error: MultipartError| {
        let code =
            if error.status() == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "form" };
        Fault::new(error.status(), code, error.body_text())
    };
    let mut found = None;
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            return Err(Fault::wrong("form", "the form has a field that is not `file`")
                .hint("curl -F file=@skills.zip"));
        }
        if found.is_some() {
            return Err(Fault::wrong("form", "there are two fields `file`")
                .hint("one archive may hold many skills"));
        }
        let mut file = unnamed(house).map_err(|error| Fault::ours(&error))?;
        while let Some(chunk) = field.chunk().await.map_err(broken)? {
            file.write_all(&chunk).map_err(|error| Fault::ours(&error))?;
        }
        file.seek(SeekFrom::Start(0)).map_err(|error| Fault::ours(&error))?;
        found = Some(file);
    }
    found.ok_or_else(|| {
        Fault::wrong("form", "the form has no field `file`").hint("curl -F file=@skills.zip")
    })
}

/// What blocks does so elsewhere.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Answer<T> + Send + 'static,
) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Fault::ours(&error))?
}

/// Puts on record what was done with a tenant's things.
pub(super) fn note(house: &Shared, user: &Name, act: Act, target: &str, failed: Option<&str>) {
    house.record(user, |subject| Record {
        timestamp: now_ms(),
        agent: subject.agent.clone(),
        session: subject.session.clone(),
        operation: act,
        target: target.to_owned(),
        result: if failed.is_some() { Verdict::Blocked } else { Verdict::Allowed },
        policy: "service".into(),
        reason: failed.map(str::to_owned),
        details: Details::None {},
    });
    house.events.tell(
        "skills",
        user,
        json!({ "what": act.word(), "target": target, "failed": failed }),
    );
}

/// Skills of an agent.
#[derive(Serialize, ToSchema)]
pub(super) struct Skills {
    #[schema(value_type = Vec<schema::SkillInfo>)]
    skills: Vec<SkillInfo>,
}

/// List skills, with what their SKILL.md says
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/list", tag = "skills", operation_id = "listSkills", params(Shelf),
    responses((status = 200, description = "By name", body = Skills), NotMeant, Refused))]
pub(super) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(shelf): Named<Shelf>,
) -> Answer<Json<Skills>> {
    caller.may(Scope::ReadSkills, &shelf.user_id)?;
    apart(move || Ok(Json(Skills { skills: house.store.list(&shelf.user_id, &shelf.agent_id)? })))
        .await
}

/// List a skill's files, also those in directories
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/files", tag = "skills", operation_id = "listFiles", params(OfSkill),
    responses((status = 200, description = "By path", body = schema::Files), NotMeant, Absent, TooMuch, Refused))]
pub(super) async fn files(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfSkill>,
) -> Answer<Json<Files>> {
    let id = of.id();
    caller.may(Scope::ReadSkills, &id.user)?;
    apart(move || Ok(Json(house.store.files(&id)?))).await
}

/// Which file, and which lines of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Part {
    /// From the skill's directory on.
    #[param(
        pattern = r"^([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+)(/([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+))*$",
        min_length = 1,
        max_length = 4095
    )]
    path: String,
    /// The first line, from 1.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "perhaps")]
    start: Option<u64>,
    /// The last line.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "perhaps")]
    end: Option<u64>,
}

/// Read a file, or some lines of it
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/content", tag = "skills", operation_id = "readFile", params(OfSkill, Part),
    responses((status = 200, description = "The file, or the lines", body = schema::Content), NotMeant, Absent, TooMuch, Refused))]
pub(super) async fn content(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfSkill>,
    Asked(part): Asked<Part>,
) -> Answer<Json<Content>> {
    let id = of.id();
    caller.may(Scope::ReadSkills, &id.user)?;
    let lines = lines(part.start, part.end)?;
    apart(move || Ok(Json(house.store.content(&id, &part.path, lines)?))).await
}

fn lines(start: Option<u64>, end: Option<u64>) -> Answer<Option<LineRange>> {
    let wrong = || {
        Fault::wrong("lines", "lines are counted from 1, and the last is not before the first")
            .hint("start=1&end=20")
    };
    match (start, end) {
        (None, None) => Ok(None),
        (Some(0), _) => Err(wrong()),
        (start, Some(end)) if end < start.unwrap_or(1) => Err(wrong()),
        (start, end) => Ok(Some(LineRange { start: start.unwrap_or(1), end })),
    }
}

/// What a file is to hold.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Edit)]
pub(super) struct Change {
    /// From the skill's directory on.
    #[schema(
        pattern = r"^([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+)(/([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+))*$",
        min_length = 1,
        max_length = 4095
    )]
    path: String,
    /// The whole file, or what is to stand in place of the lines.
    content: String,
    /// The first line that is replaced, from 1; without it, the whole file is.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "perhaps")]
    start: Option<u64>,
    /// The last; without it, the last of the file.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "perhaps")]
    end: Option<u64>,
    /// The `etag` of the content that this is meant for; if it is another by now, nothing is done.
    expect: Option<String>,
}

/// Write a file, or replace lines of it
#[utoipa::path(put, path = "/v1/skills/{userId}/{agentId}/{skillId}/edit", tag = "skills", operation_id = "editFile", request_body = Change, params(OfSkill),
    responses((status = 200, description = "What is there now", body = schema::Edited), NoBody, Absent, Conflict, Full, Refused))]
pub(super) async fn edit(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfSkill>,
    Body(change): Body<Change>,
) -> Answer<Json<Edited>> {
    let id = of.id();
    caller.may(Scope::WriteSkills, &id.user)?;
    let lines = lines(change.start, change.end)?;
    let quota = house.tenants.quotas(&id.user).storage_bytes;
    let target = format!("{}/{}", shown(&id), change.path);
    let replacement = match lines {
        Some(range) => Replacement::Lines { range, text: change.content },
        None => Replacement::Whole { bytes: change.content.into_bytes() },
    };
    let edit = Edit {
        path: change.path,
        change: replacement,
        expect: change.expect.map_or(Expect::Anything, Expect::Etag),
    };
    let (store, whose) = (house.clone(), id.clone());
    let edited = apart(move || Ok(store.store.edit(&whose, &edit, Some(quota))?)).await;
    house.tenants.forget_weight(&id.user);
    note(
        &house,
        &id.user,
        Act::Edit,
        &target,
        edited.as_ref().err().map(|fault| fault.problem.message.as_str()),
    );
    edited.map(Json)
}

/// Remove a skill
#[utoipa::path(delete, path = "/v1/skills/{userId}/{agentId}/{skillId}", tag = "skills", operation_id = "removeSkill", params(OfSkill),
    responses((status = 204, description = "It is gone"), NotMeant, Absent, Conflict, Refused))]
pub(super) async fn remove(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfSkill>,
) -> Answer<StatusCode> {
    let id = of.id();
    caller.may(Scope::WriteSkills, &id.user)?;
    let (store, whose) = (house.clone(), id.clone());
    let removed = apart(move || Ok(store.store.remove(&whose)?)).await;
    house.tenants.forget_weight(&id.user);
    note(
        &house,
        &id.user,
        Act::Remove,
        &shown(&id),
        removed.as_ref().err().map(|fault| fault.problem.message.as_str()),
    );
    removed.map(|()| StatusCode::NO_CONTENT)
}

fn shown(id: &SkillId) -> String {
    format!("{}/{}/{}", id.user, id.agent, id.skill)
}
