//! Commands in skills: run synchronously, streamed, or in the background.

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
use super::extract::{
    IdPath, JsonBody, PathParams, QueryParams, SkillPath, check_limit, optional_integer,
};
use super::lease::RequestLease;
use super::schema;
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, GoneError, NotFoundError, ParameterErrors,
    UnavailableError,
};
use super::stream::{CancelOnDisconnect, OutputCursor, event_stream, wants_stream};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::{
    Execution, ExecutionRequest, ExecutionState, ExecutionStatus, Listed, MAX_DURATION,
    StartOutcome, start_execution,
};
use crate::tenants::{ApiCaller, TokenScope};

/// A command for a skill.
#[derive(Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Command)]
pub(super) struct ExecuteBody {
    /// A bash command.
    #[schema(min_length = 1, max_length = 65536, pattern = r"^[^\x00]+$")]
    command: String,
    /// The time limit in milliseconds; at most five minutes.
    #[schema(minimum = 1, maximum = 300000)]
    #[serde(
        default,
        deserialize_with = "optional_integer",
        skip_serializing_if = "Option::is_none"
    )]
    timeout_ms: Option<u64>,
    /// If true, a denied access waits for the user's answer (`/v1/asks`).
    #[serde(default)]
    ask: bool,
}

/// Options of an execution.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecuteQuery {
    /// Respond at once, and keep the result for `GET /v1/executions/{id}`.
    #[serde(default, rename = "async")]
    #[param(rename = "async")]
    is_async: bool,
}

/// Run a command in a skill
///
/// The command runs in a sandbox of its own that contains only this skill's directory. With
/// `Accept: text/event-stream` its output is streamed. An `Idempotency-Key` turns a repeated
/// request into the same execution. A client that disconnects before the end cancels the command,
/// unless the request has such a key or is async.
#[utoipa::path(post, path = "/v1/skills/{userId}/{agentId}/{skillId}/execute", tag = "executions", operation_id = "execute", request_body = ExecuteBody, params(SkillPath, ExecuteQuery,
        ("Idempotency-Key" = Option<String>, Header, description = "Turns a repeated request into the same execution", min_length = 1, max_length = 128, pattern = "^[!-~]+$")),
    responses(
        (status = 200, description = "The result; with `Accept: text/event-stream`, a stream of `ExecutionEvent`s",
            content((schema::ExecuteResult = "application/json"), (schema::ServerSentEvent = "text/event-stream"))), 
        (status = 202, description = "The command was accepted", body = ExecutionStatus), BodyErrors, NotFoundError, ConflictError, GoneError, UnavailableError, AuthErrors))]
pub(super) async fn execute(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<SkillPath>,
    QueryParams(query): QueryParams<ExecuteQuery>,
    headers: HeaderMap,
    JsonBody(command): JsonBody<ExecuteBody>,
) -> ApiResult<Response> {
    let skill = path.id();
    caller.require_access(TokenScope::Execute, &skill.user)?;
    let is_streamed = wants_stream(&headers);
    let key = key(&headers, &command)?;
    let timeout = timeout(&command)?;
    if command.command.is_empty()
        || command.command.len() > 64 << 10
        || command.command.contains('\0')
    {
        return Err(ApiError::bad_request(
            "command",
            "the command must have 1 to 65536 bytes and no NUL",
        ));
    }
    let is_kept = query.is_async;
    let is_left_alone = is_kept || key.is_some();
    let wanted = ExecutionRequest {
        skill,
        command: command.command,
        timeout,
        is_kept,
        key,
        asks: command.ask,
    };
    let (execution, begun) = start_execution(&app, wanted).await?;
    let mut answer = if query.is_async {
        (
            StatusCode::ACCEPTED,
            [(header::LOCATION, format!("/v1/executions/{}", execution.id))],
            Json(execution.status().without_internals()),
        )
            .into_response()
    } else if is_streamed {
        event_stream(execution.clone(), make_cancel_guard(&execution, is_left_alone))
    } else {
        let cancel_guard = make_cancel_guard(&execution, is_left_alone);
        let status = execution.ended().await;
        cancel_guard.disarm();
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

fn make_cancel_guard(execution: &Arc<Execution>, is_left_alone: bool) -> CancelOnDisconnect {
    if is_left_alone {
        CancelOnDisconnect::never()
    } else {
        CancelOnDisconnect::new(execution.clone())
    }
}

fn key(headers: &HeaderMap, command: &ExecuteBody) -> ApiResult<Option<(String, String)>> {
    let wrong = || {
        ApiError::bad_request(
            "idempotency-key",
            "the Idempotency-Key must have 1 to 128 printable characters",
        )
    };
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| {
        (1..=128).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    let all = serde_json::to_vec(command).map_err(|error| ApiError::internal(&error))?;
    Ok(Some((key.ok_or_else(wrong)?.to_owned(), digest(&all).to_string())))
}

fn timeout(command: &ExecuteBody) -> ApiResult<Option<Duration>> {
    let longest = MAX_DURATION.as_millis() as u64;
    match command.timeout_ms {
        Some(0) => Err(ApiError::bad_request("timeout", "`timeoutMs` must be at least 1")),
        Some(ms) if ms > longest => {
            Err(ApiError::bad_request("timeout", format!("`timeoutMs` must be at most {longest}"))
                .hint("the hard limit is five minutes"))
        }
        other => Ok(other.map(Duration::from_millis)),
    }
}

fn result(status: ExecutionStatus, execution: &Execution) -> ApiResult<Response> {
    match (status.state, status.result) {
        (ExecutionState::Ended, Some(result)) => Ok(Json(result).into_response()),
        _ => Err(execution.fault()),
    }
}

/// A list of executions.
#[derive(Serialize, ToSchema)]
#[schema(as = Executions)]
pub(super) struct ExecutionListBody {
    #[schema(value_type = Vec<schema::ExecutionSummary>)]
    executions: Vec<ExecutionStatus>,
}

/// Selects executions.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionFilter {
    /// Only of this tenant.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only those that wait or run.
    #[serde(default)]
    running: bool,
    /// The maximum number of executions.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List running and recently ended commands
#[utoipa::path(get, path = "/v1/executions", tag = "executions", operation_id = "listExecutions", params(ExecutionFilter),
    responses((status = 200, description = "Newest first, without output", body = ExecutionListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(filter): QueryParams<ExecutionFilter>,
) -> ApiResult<Json<ExecutionListBody>> {
    caller.require_scope(TokenScope::Execute)?;
    let most = check_limit(filter.limit, 100)?;
    let user = filter.user_id.as_deref().map(SkillName::try_from).transpose()?;
    let mut all: Vec<Arc<dyn Listed>> =
        app.executions.list().into_iter().map(|execution| execution as Arc<dyn Listed>).collect();
    if caller.require_scope(TokenScope::Sandboxes).is_ok() {
        all.extend(app.sandboxes.turns.list().into_iter().map(|turn| turn as Arc<dyn Listed>));
        // Ids start with the creation time.
        all.sort_by(|one, other| other.id().cmp(one.id()));
    }
    // Filtered before copying: results may be large, and other tenants have many.
    let is_selected = |execution: &&Arc<dyn Listed>| {
        caller.can_see(execution.user())
            && user.as_ref().is_none_or(|user| user == execution.user())
            && !(filter.running && execution.is_over())
    };
    let found = all.iter().filter(is_selected).take(most).map(|execution| execution.status());
    Ok(Json(ExecutionListBody { executions: found.map(ExecutionStatus::without_output).collect() }))
}

/// Finds a command of a skill or, with the scope `sandboxes`, of a sandbox.
fn find(app: &SharedState, caller: &ApiCaller, id: &str) -> ApiResult<Arc<dyn Listed>> {
    let unknown = || {
        ApiError::not_found("no-such-execution", "no such execution")
            .hint("GET /v1/executions lists them")
    };
    if let Some(turn) =
        app.sandboxes.turns.find(id).filter(|_| caller.require_scope(TokenScope::Sandboxes).is_ok())
    {
        return if caller.can_see(turn.user()) { Ok(turn) } else { Err(unknown()) };
    }
    caller.require_scope(TokenScope::Execute)?;
    let found = app
        .executions
        .find(id)
        .filter(|execution| caller.can_see(&execution.skill.user))
        .ok_or_else(unknown)?;
    Ok(found)
}

/// Get the state of a command, and its result once it has ended
#[utoipa::path(get, path = "/v1/executions/{id}", tag = "executions", operation_id = "getExecution", params(IdPath),
    responses((status = 200, description = "The current state", body = ExecutionStatus), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn status(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<ExecutionStatus>> {
    Ok(Json(find(&app, &caller, &id)?.whole().without_internals()))
}

/// Cancel a command
///
/// The command is interrupted, and killed if it does not end. A command that has ended stays
/// unchanged.
#[utoipa::path(delete, path = "/v1/executions/{id}", tag = "executions", operation_id = "cancelExecution", params(IdPath),
    responses((status = 202, description = "The cancellation was sent", body = ExecutionStatus), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn cancel(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Response> {
    let execution = find(&app, &caller, &id)?;
    if !execution.is_over() {
        execution.progress().cancel();
        app.asks.deny_all(execution.id());
    }
    Ok((StatusCode::ACCEPTED, Json(execution.status().without_internals())).into_response())
}

/// Stream a command's output, then its result
#[utoipa::path(get, path = "/v1/executions/{id}/events", tag = "executions", operation_id = "watchExecution", params(IdPath),
    responses((status = 200, description = "A stream of `ExecutionEvent`s", content_type = "text/event-stream", body = schema::ServerSentEvent), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn events(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Response> {
    let execution = find(&app, &caller, &id)?;
    Ok(event_stream(execution, CancelOnDisconnect::never()))
}

/// Stream a command over a WebSocket; `{"cancel": true}` cancels it
#[utoipa::path(get, path = "/v1/executions/{id}/socket", tag = "executions", operation_id = "openExecutionSocket", params(IdPath),
    responses((status = 101, description = "Each message is an `ExecutionEvent`"), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn socket(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    Extension(lease): Extension<Arc<RequestLease>>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let execution = find(&app, &caller, &id)?;
    let upgrade = upgrade.map_err(|rejection| {
        ApiError::bad_request("websocket", rejection.body_text())
            .hint("GET …/events works without a WebSocket")
    })?;
    Ok(upgrade.protocols([PROTOCOL]).max_message_size(64 << 10).on_upgrade(|socket| async move {
        tokio::select! {
            () = serve_socket(socket, execution) => {}
            () = lease.expired() => {}
        }
    }))
}

async fn serve_socket(mut socket: WebSocket, execution: Arc<dyn Listed>) {
    let mut reading = OutputCursor::new(execution.clone(), CancelOnDisconnect::never());
    loop {
        tokio::select! {
            event = reading.next() => match event {
                Some(event) => {
                    let message = serde_json::to_string(&event).unwrap_or_default();
                    if socket.send(Message::Text(message.into())).await.is_err() {
                        return;
                    }
                }
                None => {
                    let _ = socket.send(Message::Close(None)).await;
                    return;
                }
            },
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    let message: Value = serde_json::from_str(&text).unwrap_or_default();
                    if message["cancel"] == true {
                        execution.progress().cancel();
                    }
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
}
