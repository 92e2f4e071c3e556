//! Commands in skills: run at once, watched, or asked about later.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_audit::digest;
use ringfence_skills::SkillName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::auth::PROTOCOL;
use super::extract::{IdPath, JsonBody, PathParams, QueryParams, SkillPath, at_most, perhaps};
use super::lease::RequestLease;
use super::schema;
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, GoneError, NotFoundError, ParameterErrors,
    UnavailableError,
};
use super::stream::{CancelOnDisconnect, OutputCursor, told, wants_stream};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::{
    Execution, ExecutionRequest, ExecutionState as Far, ExecutionStatus, LONGEST, Listed,
    StartOutcome, begin,
};
use crate::tenants::{ApiCaller, TokenScope};

/// A command for a skill.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExecuteBody {
    /// A line for bash.
    #[schema(min_length = 1, max_length = 65536, pattern = r"^[^\x00]+$")]
    command: String,
    /// How long it may take; never longer than five minutes.
    #[schema(minimum = 1, maximum = 300000)]
    #[serde(default, deserialize_with = "perhaps", skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// Whether what is about to be refused waits for somebody's answer (`/v1/asks`).
    #[serde(default)]
    ask: bool,
}

/// How it is to be run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecuteQuery {
    /// Answer at once, and keep the result for whoever asks `/v1/executions/{id}`.
    #[serde(default, rename = "async")]
    #[param(rename = "async")]
    is_async: bool,
}

/// Run a command in a skill
///
/// In a sandbox of its own, in which only this skill's directory is. With `Accept:
/// text/event-stream` what it writes is told as it comes. An `Idempotency-Key` makes the same
/// request, sent again, the same execution. Whoever leaves before the end cancels it, unless it
/// has such a key or is async.
#[utoipa::path(post, path = "/v1/skills/{userId}/{agentId}/{skillId}/execute", tag = "executions", operation_id = "execute", request_body = ExecuteBody, params(SkillPath, ExecuteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Makes the same request, sent again, the same execution", min_length = 1, max_length = 128, pattern = "^[!-~]+$")),
    responses(
        (status = 200, description = "What became of it; with `Accept: text/event-stream`, each `ExecutionEvent` as it comes",
            content((schema::ExecuteResult = "application/json"), (schema::ServerSentEvent = "text/event-stream"))), 
        (status = 202, description = "It was begun", body = ExecutionStatus), BodyErrors, NotFoundError, ConflictError, GoneError, UnavailableError, AuthErrors))]
pub(super) async fn execute(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<SkillPath>,
    QueryParams(manner): QueryParams<ExecuteQuery>,
    headers: HeaderMap,
    JsonBody(command): JsonBody<ExecuteBody>,
) -> ApiResult<Response> {
    let skill = of.id();
    caller.may(TokenScope::Execute, &skill.user)?;
    let is_streamed = wants_stream(&headers);
    let key = key(&headers, &command)?;
    let timeout = timeout(&command)?;
    if command.command.is_empty()
        || command.command.len() > 64 << 10
        || command.command.contains('\0')
    {
        return Err(ApiError::wrong("command", "a command has 1 to 65536 bytes, and no NUL"));
    }
    let is_kept = manner.is_async;
    let is_left_alone = is_kept || key.is_some();
    let wanted = ExecutionRequest {
        skill,
        command: command.command,
        timeout,
        is_kept,
        key,
        asks: command.ask,
    };
    let (execution, begun) = begin(&house, wanted).await?;
    let mut answer = if manner.is_async {
        (
            StatusCode::ACCEPTED,
            [(header::LOCATION, format!("/v1/executions/{}", execution.id))],
            Json(execution.status().told()),
        )
            .into_response()
    } else if is_streamed {
        told(execution.clone(), leaves(&execution, is_left_alone))
    } else {
        let leaves = leaves(&execution, is_left_alone);
        let status = execution.ended().await;
        leaves.stays();
        result(status, &execution)?
    };
    if let Ok(id) = HeaderValue::from_str(&execution.id) {
        answer.headers_mut().insert("x-execution-id", id);
    }
    if begun == StartOutcome::Before {
        answer.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    Ok(answer)
}

fn leaves(execution: &Arc<Execution>, is_left_alone: bool) -> CancelOnDisconnect {
    if is_left_alone {
        CancelOnDisconnect::alone()
    } else {
        CancelOnDisconnect::of(execution.clone())
    }
}

fn key(headers: &HeaderMap, command: &ExecuteBody) -> ApiResult<Option<(String, String)>> {
    let wrong = || {
        ApiError::wrong("idempotency-key", "an Idempotency-Key has 1 to 128 printable characters")
    };
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| {
        (1..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    let all = serde_json::to_vec(command).map_err(|error| ApiError::ours(&error))?;
    Ok(Some((key.ok_or_else(wrong)?.to_owned(), digest(&all).to_string())))
}

fn timeout(command: &ExecuteBody) -> ApiResult<Option<Duration>> {
    let longest = LONGEST.as_millis() as u64;
    match command.timeout_ms {
        Some(0) => Err(ApiError::wrong("timeout", "`timeoutMs` is 1 or more")),
        Some(ms) if ms > longest => {
            Err(ApiError::wrong("timeout", format!("`timeoutMs` is at most {longest}"))
                .hint("five minutes are the hard limit"))
        }
        other => Ok(other.map(Duration::from_millis)),
    }
}

fn result(status: ExecutionStatus, execution: &Execution) -> ApiResult<Response> {
    match (status.state, status.result) {
        (Far::Ended, Some(result)) => Ok(Json(result).into_response()),
        _ => Err(execution.fault()),
    }
}

/// What is known of several.
#[derive(Serialize, ToSchema)]
#[schema(as = Executions)]
pub(super) struct ExecutionListBody {
    #[schema(value_type = Vec<schema::ExecutionBrief>)]
    executions: Vec<ExecutionStatus>,
}

/// Which ones.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionFilter {
    /// Only this tenant's.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only those that wait or run.
    #[serde(default)]
    running: bool,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List commands that run, and the last that have ended
#[utoipa::path(get, path = "/v1/executions", tag = "executions", operation_id = "listExecutions", params(ExecutionFilter),
    responses((status = 200, description = "Newest first, without what they wrote", body = ExecutionListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(chosen): QueryParams<ExecutionFilter>,
) -> ApiResult<Json<ExecutionListBody>> {
    caller.has(TokenScope::Execute)?;
    let most = at_most(chosen.limit, 100)?;
    let user = chosen.user_id.as_deref().map(SkillName::try_from).transpose()?;
    let mut all: Vec<Arc<dyn Listed>> =
        house.executions.list().into_iter().map(|execution| execution as Arc<dyn Listed>).collect();
    if caller.has(TokenScope::Sandboxes).is_ok() {
        all.extend(house.sandboxes.turns.list().into_iter().map(|turn| turn as Arc<dyn Listed>));
        // Ids begin with the time.
        all.sort_by(|one, other| other.id().cmp(one.id()));
    }
    // Looked at before it is copied: a result may be large, and those of others are many.
    let is_meant = |execution: &&Arc<dyn Listed>| {
        caller.sees(execution.user())
            && user.as_ref().is_none_or(|user| user == execution.user())
            && !(chosen.running && execution.is_over())
    };
    let found = all.iter().filter(is_meant).take(most).map(|execution| execution.status());
    Ok(Json(ExecutionListBody { executions: found.map(ExecutionStatus::brief).collect() }))
}

/// A command of a skill, or with the scope `sandboxes` one of a sandbox.
fn find(house: &SharedState, caller: &ApiCaller, id: &str) -> ApiResult<Arc<dyn Listed>> {
    let unknown = || {
        ApiError::absent("no-such-execution", "there is no such execution")
            .hint("GET /v1/executions lists them")
    };
    if let Some(turn) =
        house.sandboxes.turns.find(id).filter(|_| caller.has(TokenScope::Sandboxes).is_ok())
    {
        return if caller.sees(turn.user()) { Ok(turn) } else { Err(unknown()) };
    }
    caller.has(TokenScope::Execute)?;
    let found = house
        .executions
        .find(id)
        .filter(|execution| caller.sees(&execution.skill.user))
        .ok_or_else(unknown)?;
    Ok(found)
}

/// How far it is with a command, and its result once it has ended
#[utoipa::path(get, path = "/v1/executions/{id}", tag = "executions", operation_id = "getExecution", params(IdPath),
    responses((status = 200, description = "How it stands", body = ExecutionStatus), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn status(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<ExecutionStatus>> {
    Ok(Json(find(&house, &caller, &id)?.whole().told()))
}

/// Cancel a command
///
/// It is interrupted, and ended if it does not mind. One that has ended stays as it is.
#[utoipa::path(delete, path = "/v1/executions/{id}", tag = "executions", operation_id = "cancelExecution", params(IdPath),
    responses((status = 202, description = "It was told", body = ExecutionStatus), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn cancel(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Response> {
    let execution = find(&house, &caller, &id)?;
    if !execution.is_over() {
        execution.course().cancel();
        house.asks.withdraw(execution.id());
    }
    Ok((StatusCode::ACCEPTED, Json(execution.status().told())).into_response())
}

/// What a command writes, as it comes, then its result
#[utoipa::path(get, path = "/v1/executions/{id}/events", tag = "executions", operation_id = "watchExecution", params(IdPath),
    responses((status = 200, description = "Each `ExecutionEvent` as it comes", content_type = "text/event-stream", body = schema::ServerSentEvent), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn events(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Response> {
    let execution = find(&house, &caller, &id)?;
    Ok(told(execution, CancelOnDisconnect::alone()))
}

/// The same over a WebSocket, on which `{"cancel": true}` cancels it
#[utoipa::path(get, path = "/v1/executions/{id}/socket", tag = "executions", operation_id = "openExecutionSocket", params(IdPath),
    responses((status = 101, description = "An `ExecutionEvent` a message"), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn socket(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    Extension(stay): Extension<Arc<RequestLease>>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let execution = find(&house, &caller, &id)?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::wrong("websocket", rejection.body_text()).hint("GET …/events needs none")
    })?;
    Ok(upgrade.protocols([PROTOCOL]).max_message_size(64 << 10).on_upgrade(|socket| async move {
        tokio::select! {
            () = converse(socket, execution) => {}
            () = stay.ends() => {}
        }
    }))
}

async fn converse(mut socket: WebSocket, execution: Arc<dyn Listed>) {
    let mut reading = OutputCursor::new(execution.clone(), CancelOnDisconnect::alone());
    loop {
        tokio::select! {
            told = reading.next() => match told {
                Some(told) => {
                    let message = serde_json::to_string(&told).unwrap_or_default();
                    if socket.send(Message::Text(message.into())).await.is_err() {
                        return;
                    }
                }
                None => {
                    let _ = socket.send(Message::Close(None)).await;
                    return;
                }
            },
            said = socket.recv() => match said {
                Some(Ok(Message::Text(text))) => {
                    let said: Value = serde_json::from_str(&text).unwrap_or_default();
                    if said["cancel"] == true {
                        execution.course().cancel();
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
}
