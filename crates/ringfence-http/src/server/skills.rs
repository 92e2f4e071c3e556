//! Skills: upload, list, read, edit and remove.

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

use super::bodies::create_unlinked_file;
use super::extract::{
    AgentPath, JsonBody, PathParams, QueryParams, SkillPath, optional_integer, too_slow,
};
use super::lease::TenantSlot;
use super::schema;
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, FormErrors, NotFoundError, ParameterErrors, QuotaError,
    TooLargeError,
};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, TokenScope};

/// Uploads of a tenant at once.
const UPLOADS: usize = 4;
/// Time limit for an upload.
const PATIENCE: Duration = Duration::from_secs(300);

/// An archive in a multipart form.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it describes what is read part by part")]
#[schema(as = Archive)]
pub(super) struct ArchiveForm {
    /// A ZIP file in which every top-level directory is a skill.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// Upload skills
///
/// Each skill in the archive replaces the whole skill of that name; other skills stay.
#[utoipa::path(post, path = "/v1/skills/{userId}/{agentId}/upload", tag = "skills", operation_id = "uploadSkills", request_body(content = ArchiveForm, content_type = "multipart/form-data"), params(AgentPath),
    responses((status = 200, description = "The uploaded skills", body = schema::UploadResult), FormErrors, ConflictError, QuotaError, AuthErrors))]
pub(super) async fn upload(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<AgentPath>,
    form: Result<Multipart, MultipartRejection>,
) -> ApiResult<Json<UploadResult>> {
    let AgentPath { user_id: user, agent_id: agent } = path;
    caller.require_access(TokenScope::WriteSkills, &user)?;
    let no_form = |_| {
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content-type",
            "the archive must be sent as multipart/form-data",
        )
        .hint("curl -F file=@skills.zip")
    };
    let form = form.map_err(no_form)?;
    let _place = TenantSlot::take(&app, &caller, "uploads", UPLOADS)?;
    let archive = tokio::time::timeout(PATIENCE, receive_archive(form, &app))
        .await
        .map_err(|_| too_slow())??;
    app.create_tenant_dirs(&user).map_err(|error| ApiError::internal(&error))?;
    let quota = app.tenants.quotas(&user).storage_bytes;
    let (store, whose) = (app.clone(), (user.clone(), agent.clone()));
    let taken =
        run_blocking(move || Ok(store.store.upload(&whose.0, &whose.1, archive, Some(quota))?))
            .await;
    app.tenants.invalidate_usage(&user);
    match &taken {
        Ok(uploaded) => {
            app.metrics.uploads.fetch_add(1, Ordering::Relaxed);
            for skill in &uploaded.skills {
                record_action(
                    &app,
                    &user,
                    RecordAction::Upload,
                    &format!("{user}/{agent}/{}", skill.info.skill_id),
                    None,
                );
            }
        }
        Err(fault) => record_action(
            &app,
            &user,
            RecordAction::Upload,
            &format!("{user}/{agent}"),
            Some(&fault.problem.message),
        ),
    }
    taken.map(Json)
}

/// Reads the field `file` into an unnamed file.
async fn receive_archive(mut form: Multipart, app: &SharedState) -> ApiResult<std::fs::File> {
    let broken = |error: MultipartError| {
        let code =
            if error.status() == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "form" };
        ApiError::new(error.status(), code, error.body_text())
    };
    let mut found = None;
    while let Some(mut field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            return Err(ApiError::bad_request("form", "the form has a field other than `file`")
                .hint("curl -F file=@skills.zip"));
        }
        if found.is_some() {
            return Err(ApiError::bad_request("form", "the form has two fields `file`")
                .hint("put all skills into one archive"));
        }
        let mut file = create_unlinked_file(app).map_err(|error| ApiError::internal(&error))?;
        while let Some(chunk) = field.chunk().await.map_err(broken)? {
            file.write_all(&chunk).map_err(|error| ApiError::internal(&error))?;
        }
        file.seek(SeekFrom::Start(0)).map_err(|error| ApiError::internal(&error))?;
        found = Some(file);
    }
    found.ok_or_else(|| {
        ApiError::bad_request("form", "the form has no field `file`")
            .hint("curl -F file=@skills.zip")
    })
}

/// Runs blocking work on a blocking thread.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ApiError::internal(&error))?
}

/// Records an action on a tenant's skills, and publishes it as an event.
pub(super) fn record_action(
    app: &SharedState,
    user: &SkillName,
    act: RecordAction,
    target: &str,
    failed: Option<&str>,
) {
    app.record(user, |subject| Record {
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
    app.events.publish(
        "skills",
        user,
        json!({ "what": act.as_str(), "target": target, "failed": failed }),
    );
}

/// Skills of an agent.
#[derive(Serialize, ToSchema)]
#[schema(as = Skills)]
pub(super) struct SkillListBody {
    #[schema(value_type = Vec<schema::SkillInfo>)]
    skills: Vec<SkillInfo>,
}

/// List skills with their SKILL.md metadata
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/list", tag = "skills", operation_id = "listSkills", params(AgentPath),
    responses((status = 200, description = "By name", body = SkillListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<AgentPath>,
) -> ApiResult<Json<SkillListBody>> {
    caller.require_access(TokenScope::ReadSkills, &path.user_id)?;
    run_blocking(move || {
        Ok(Json(SkillListBody { skills: app.store.list(&path.user_id, &path.agent_id)? }))
    })
    .await
}

/// List a skill's files, including subdirectories
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/files", tag = "skills", operation_id = "listFiles", params(SkillPath),
    responses((status = 200, description = "By path", body = schema::SkillFiles), ParameterErrors, NotFoundError, TooLargeError, AuthErrors))]
pub(super) async fn files(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<SkillPath>,
) -> ApiResult<Json<SkillFiles>> {
    let id = path.id();
    caller.require_access(TokenScope::ReadSkills, &id.user)?;
    run_blocking(move || Ok(Json(app.store.files(&id)?))).await
}

/// Selects a file, and lines of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FileRangeQuery {
    /// Relative to the skill's directory.
    #[param(
        pattern = r"^([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+)(/([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+))*$",
        min_length = 1,
        max_length = 4095
    )]
    path: String,
    /// The first line, from 1.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "optional_integer")]
    start: Option<u64>,
    /// The last line.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "optional_integer")]
    end: Option<u64>,
}

/// Read a file or some of its lines
#[utoipa::path(get, path = "/v1/skills/{userId}/{agentId}/{skillId}/content", tag = "skills", operation_id = "readFile", params(SkillPath, FileRangeQuery),
    responses((status = 200, description = "The file, or the lines", body = schema::SkillFileContent), ParameterErrors, NotFoundError, TooLargeError, AuthErrors))]
pub(super) async fn content(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<SkillPath>,
    QueryParams(part): QueryParams<FileRangeQuery>,
) -> ApiResult<Json<SkillFileContent>> {
    let id = path.id();
    caller.require_access(TokenScope::ReadSkills, &id.user)?;
    let lines = lines(part.start, part.end)?;
    run_blocking(move || Ok(Json(app.store.content(&id, &part.path, lines)?))).await
}

fn lines(start: Option<u64>, end: Option<u64>) -> ApiResult<Option<LineRange>> {
    let wrong = || {
        ApiError::bad_request("lines", "lines count from 1, and `end` must not be before `start`")
            .hint("start=1&end=20")
    };
    match (start, end) {
        (None, None) => Ok(None),
        (Some(0), _) => Err(wrong()),
        (start, Some(end)) if end < start.unwrap_or(1) => Err(wrong()),
        (start, end) => Ok(Some(LineRange { start: start.unwrap_or(1), end })),
    }
}

/// The new content of a file.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Edit)]
pub(super) struct EditBody {
    /// Relative to the skill's directory.
    #[schema(
        pattern = r"^([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+)(/([^/\x00.][^/\x00]*|\.[^/\x00.][^/\x00]*|\.\.[^/\x00]+))*$",
        min_length = 1,
        max_length = 4095
    )]
    path: String,
    /// The whole file, or the replacement for the lines.
    content: String,
    /// The first line to replace, from 1; without it, the whole file is replaced.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "optional_integer")]
    start: Option<u64>,
    /// The last line to replace; the default is the last line of the file.
    #[schema(minimum = 1)]
    #[serde(default, deserialize_with = "optional_integer")]
    end: Option<u64>,
    /// The `etag` of the content this edit is based on; if the file has changed since, the edit
    /// fails.
    expect: Option<String>,
}

/// Write a file or replace some of its lines
#[utoipa::path(put, path = "/v1/skills/{userId}/{agentId}/{skillId}/edit", tag = "skills", operation_id = "editFile", request_body = EditBody, params(SkillPath),
    responses((status = 200, description = "The new state of the file", body = schema::SkillEditResult), BodyErrors, NotFoundError, ConflictError, QuotaError, AuthErrors))]
pub(super) async fn edit(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<SkillPath>,
    JsonBody(change): JsonBody<EditBody>,
) -> ApiResult<Json<SkillEditResult>> {
    let id = path.id();
    caller.require_access(TokenScope::WriteSkills, &id.user)?;
    let lines = lines(change.start, change.end)?;
    let quota = app.tenants.quotas(&id.user).storage_bytes;
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
    let (store, whose) = (app.clone(), id.clone());
    let edited = run_blocking(move || Ok(store.store.edit(&whose, &edit, Some(quota))?)).await;
    app.tenants.invalidate_usage(&id.user);
    record_action(
        &app,
        &id.user,
        RecordAction::Edit,
        &target,
        edited.as_ref().err().map(|fault| fault.problem.message.as_str()),
    );
    edited.map(Json)
}

/// Remove a skill
#[utoipa::path(delete, path = "/v1/skills/{userId}/{agentId}/{skillId}", tag = "skills", operation_id = "removeSkill", params(SkillPath),
    responses((status = 204, description = "The skill was removed"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(super) async fn remove(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<SkillPath>,
) -> ApiResult<StatusCode> {
    let id = path.id();
    caller.require_access(TokenScope::WriteSkills, &id.user)?;
    let (store, whose) = (app.clone(), id.clone());
    let removed = run_blocking(move || Ok(store.store.remove(&whose)?)).await;
    app.tenants.invalidate_usage(&id.user);
    record_action(
        &app,
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
