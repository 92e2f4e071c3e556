//! Skills: brought, listed, read, edited.

use std::io::{Seek, SeekFrom, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::multipart::{MultipartError, MultipartRejection};
use axum::extract::{Multipart, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use ringfence_audit::{Record, RecordAction, RecordDetails, RecordResult, now_ms};
use ringfence_skills::{
    EditPrecondition, LineRange, Replacement, SkillEdit, SkillEditResult, SkillFileContent,
    SkillFiles, SkillId, SkillInfo, SkillName, UploadResult,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};

use super::bodies::unnamed;
use super::extract::{AgentPath, JsonBody, PathParams, QueryParams, SkillPath, perhaps, too_slow};
use super::lease::TenantSlot;
use super::schema;
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, FormErrors, NotFoundError, ParameterErrors, QuotaError,
    TooLargeError,
};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, TokenScope};

/// So many archives of a tenant are on their way at the same time.
const UPLOADS: usize = 4;
/// So long an archive may take to arrive.
const PATIENCE: Duration = Duration::from_secs(300);

/// An archive, as a form has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is read part by part")]
pub(super) struct ArchiveForm {
    /// A ZIP file in which every directory at the top is a skill.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Bring skills
///
/// Each skill in the archive replaces the one of that name as a whole; others stay.
#[utoipa::path(post, path = "/v1/skills/{userId}/{agentId}/upload", tag = "skills", operation_id = "uploadSkills", request_body(content = ArchiveForm, content_type = "multipart/form-data"), params(AgentPath),
    responses((status = 200, description = "What is there now", body = schema::Uploaded), FormErrors, ConflictError, QuotaError, AuthErrors))]
pub(super) async fn upload(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(shelf): PathParams<AgentPath>,
    form: Result<Multipart, MultipartRejection>,
) -> ApiResult<Json<UploadResult>> {
    let AgentPath { user_id: user, agent_id: agent } = shelf;
    caller.may(TokenScope::WriteSkills, &user)?;
    let no_form = |_| {
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-type",
            "an archive comes as multipart/form-data",
        )
        .hint("curl -F file=@skills.zip")
    };
    let form = form.map_err(no_form)?;
    let _place = TenantSlot::take(&house, &caller, "uploads", UPLOADS)?;
    let archive =
        tokio::time::timeout(PATIENCE, received(form, &house)).await.map_err(|_| too_slow())??;
    house.settle(&user).map_err(|error| ApiError::ours(&error))?;
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
                    RecordAction::Upload,
                    &format!("{user}/{agent}/{}", skill.info.skill_id),
                    None,
                );
            }
        }
        Err(fault) => note(
            &house,
            &user,
            RecordAction::Upload,
            &format!("{user}/{agent}"),
            Some(&fault.problem.message),
        ),
    }
    taken.map(Json)
}

/// The field `file`, in a file without a name.
async fn received(mut form: Multipart, house: &SharedState) -> ApiResult<std::fs::File> {
    let broken = |error: MultipartError| {
        let code =
            if error.status() == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "form" };
        ApiError::new(error.status(), code, error.body_text())
    };
    let mut found = None;
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            return Err(ApiError::wrong("form", "the form has a field that is not `file`")
                .hint("curl -F file=@skills.zip"));
        }
        if found.is_some() {
            return Err(ApiError::wrong("form", "there are two fields `file`")
                .hint("one archive may hold many skills"));
        }
        let mut file = unnamed(house).map_err(|error| ApiError::ours(&error))?;
        while let Some(chunk) = field.chunk().await.map_err(broken)? {
            file.write_all(&chunk).map_err(|error| ApiError::ours(&error))?;
        }
        file.seek(SeekFrom::Start(0)).map_err(|error| ApiError::ours(&error))?;
        found = Some(file);
    }
    found.ok_or_else(|| {
        ApiError::wrong("form", "the form has no field `file`").hint("curl -F file=@skills.zip")
    })
}

/// What blocks does so elsewhere.
pub(super) async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::ours(&error))?
}

/// Puts on record what was done with a tenant's things.
pub(super) fn note(
    house: &SharedState,
    user: &SkillName,
    act: RecordAction,
    target: &str,
    failed: Option<&str>,
) {
    house.record(user, |subject| Record {
        timestamp: now_ms(),
        agent: subject.agent.clone(),
        session: subject.session.clone(),
        operation: act,
        target: target.to_owned(),
        result: if failed.is_some() { RecordResult::Blocked } else { RecordResult::Allowed },
        policy: "service".into(),
        reason: failed.map(str::to_owned),
        details: RecordDetails::None {},
    });
    house.events.tell(
        "skills",
        user,
        json!({ "what": act.word(), "target": target, "failed": failed }),
    );
}

/// Skills of an agent.
#[derive(Serialize, ToSchema)]
pub(super) struct SkillListBody {
    #[schema(value_type = Vec<schema::SkillInfo>)]
    skills: Vec<SkillInfo>,
}

/// List skills, with what their SKILL.md says
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/list", tag = "skills", operation_id = "listSkills", params(AgentPath),
    responses((status = 200, description = "By name", body = SkillListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(shelf): PathParams<AgentPath>,
) -> ApiResult<Json<SkillListBody>> {
    caller.may(TokenScope::ReadSkills, &shelf.user_id)?;
    apart(move || {
        Ok(Json(SkillListBody { skills: house.store.list(&shelf.user_id, &shelf.agent_id)? }))
    })
    .await
}

/// List a skill's files, also those in directories
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/files", tag = "skills", operation_id = "listFiles", params(SkillPath),
    responses((status = 200, description = "By path", body = schema::Files), ParameterErrors, NotFoundError, TooLargeError, AuthErrors))]
pub(super) async fn files(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<SkillPath>,
) -> ApiResult<Json<SkillFiles>> {
    let id = of.id();
    caller.may(TokenScope::ReadSkills, &id.user)?;
    apart(move || Ok(Json(house.store.files(&id)?))).await
}

/// Which file, and which lines of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FileRangeQuery {
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
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/content", tag = "skills", operation_id = "readFile", params(SkillPath, FileRangeQuery),
    responses((status = 200, description = "The file, or the lines", body = schema::Content), ParameterErrors, NotFoundError, TooLargeError, AuthErrors))]
pub(super) async fn content(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<SkillPath>,
    QueryParams(part): QueryParams<FileRangeQuery>,
) -> ApiResult<Json<SkillFileContent>> {
    let id = of.id();
    caller.may(TokenScope::ReadSkills, &id.user)?;
    let lines = lines(part.start, part.end)?;
    apart(move || Ok(Json(house.store.content(&id, &part.path, lines)?))).await
}

fn lines(start: Option<u64>, end: Option<u64>) -> ApiResult<Option<LineRange>> {
    let wrong = || {
        ApiError::wrong("lines", "lines are counted from 1, and the last is not before the first")
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
pub(super) struct EditBody {
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
#[utoipa::path(put, path = "/v1/skills/{userId}/{agentId}/{skillId}/edit", tag = "skills", operation_id = "editFile", request_body = EditBody, params(SkillPath),
    responses((status = 200, description = "What is there now", body = schema::Edited), BodyErrors, NotFoundError, ConflictError, QuotaError, AuthErrors))]
pub(super) async fn edit(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<SkillPath>,
    JsonBody(change): JsonBody<EditBody>,
) -> ApiResult<Json<SkillEditResult>> {
    let id = of.id();
    caller.may(TokenScope::WriteSkills, &id.user)?;
    let lines = lines(change.start, change.end)?;
    let quota = house.tenants.quotas(&id.user).storage_bytes;
    let target = format!("{}/{}", shown(&id), change.path);
    let replacement = match lines {
        Some(range) => Replacement::Lines { range, text: change.content },
        None => Replacement::Whole { bytes: change.content.into_bytes() },
    };
    let edit = SkillEdit {
        path: change.path,
        change: replacement,
        expect: change.expect.map_or(EditPrecondition::Anything, EditPrecondition::Etag),
    };
    let (store, whose) = (house.clone(), id.clone());
    let edited = apart(move || Ok(store.store.edit(&whose, &edit, Some(quota))?)).await;
    house.tenants.forget_weight(&id.user);
    note(
        &house,
        &id.user,
        RecordAction::Edit,
        &target,
        edited.as_ref().err().map(|fault| fault.problem.message.as_str()),
    );
    edited.map(Json)
}

/// Remove a skill
#[utoipa::path(delete, path = "/v1/skills/{userId}/{agentId}/{skillId}", tag = "skills", operation_id = "removeSkill", params(SkillPath),
    responses((status = 204, description = "It is gone"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(super) async fn remove(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<SkillPath>,
) -> ApiResult<StatusCode> {
    let id = of.id();
    caller.may(TokenScope::WriteSkills, &id.user)?;
    let (store, whose) = (house.clone(), id.clone());
    let removed = apart(move || Ok(store.store.remove(&whose)?)).await;
    house.tenants.forget_weight(&id.user);
    note(
        &house,
        &id.user,
        RecordAction::Remove,
        &shown(&id),
        removed.as_ref().err().map(|fault| fault.problem.message.as_str()),
    );
    removed.map(|()| StatusCode::NO_CONTENT)
}

fn shown(id: &SkillId) -> String {
    format!("{}/{}/{}", id.user, id.agent, id.skill)
}
