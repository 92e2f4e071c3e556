//! Commands in the shell of a sandbox.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_api::ShellCommand;
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::extract::{IdPath, JsonBody, PathParams};
use super::super::schema;
use super::super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, GoneError, NotFoundError, ParameterErrors,
    UnavailableError,
};
use super::super::stream::{CancelOnDisconnect, event_stream, wants_stream};
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::{Listed, MAX_DURATION, Watchable};
use crate::sandboxes::{KEPT, queue_command, start_background};
use crate::tenants::ApiCaller;

/// A command for the shell of a sandbox.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SandboxCommand)]
pub(in crate::server) struct SandboxExecBody {
    /// A bash command.
    #[schema(min_length = 1, max_length = 65536, pattern = r"^[^\x00]+$")]
    command: String,
    /// The time limit in milliseconds; at most five minutes.
    #[schema(minimum = 1, maximum = 300000)]
    #[serde(default, deserialize_with = "crate::serde_int::optional_integer")]
    timeout_ms: Option<u64>,
    /// The standard input.
    #[serde(default)]
    #[schema(max_length = 1048576)]
    stdin: String,
    /// Runs the command outside the shell until it ends or the sandbox ends. The response is then
    /// 202 with an id, and `timeoutMs` is the only time limit.
    #[serde(default)]
    background: bool,
}

impl SandboxExecBody {
    fn line(self) -> ApiResult<ShellCommand> {
        let longest = MAX_DURATION.as_millis() as u64;
        if self.command.is_empty() || self.command.len() > 64 << 10 || self.command.contains('\0') {
            return Err(ApiError::bad_request(
                "command",
                "the command must have 1 to 65536 bytes and no NUL",
            ));
        }
        if self.stdin.len() > 1 << 20 {
            return Err(ApiError::bad_request("stdin", "`stdin` is larger than 1 MiB")
                .hint("upload it with PUT …/files and read it from there"));
        }
        if self.timeout_ms.is_some_and(|ms| !(1..=longest).contains(&ms)) {
            return Err(ApiError::bad_request(
                "timeout",
                format!("`timeoutMs` must be 1 to {longest}"),
            )
            .hint("the hard limit is five minutes"));
        }
        Ok(ShellCommand {
            deadline: self.timeout_ms.map(Duration::from_millis),
            input: self.stdin.into_bytes().into(),
            limit: KEPT,
            ..ShellCommand::new(self.command)
        })
    }
}

/// Run a command in the shell of a sandbox
///
/// The shell persists: directory, environment variables and functions stay. Commands run one at a
/// time. With `Accept: text/event-stream` the output is streamed. A client that disconnects before
/// the end cancels the command.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "sandboxes", operation_id = "runInSandbox", request_body = SandboxExecBody, params(IdPath),
    responses(
        (status = 200, description = "The result; with `Accept: text/event-stream`, a stream of `ExecutionEvent`s",
            content((schema::ExecuteResult = "application/json"), (schema::ServerSentEvent = "text/event-stream"))), 
        (status = 202, description = "The command runs in the background; `/v1/executions/{id}` has its state", body = crate::executions::ExecutionStatus),
        BodyErrors, NotFoundError, ConflictError, GoneError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn exec(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    headers: HeaderMap,
    JsonBody(command): JsonBody<SandboxExecBody>,
) -> ApiResult<Response> {
    let sandbox = find(&app, &caller, &id)?;
    if command.background {
        let turn = start_background(&app, &sandbox, command.line()?)?;
        let place = [(header::LOCATION, format!("/v1/executions/{}", turn.id()))];
        return Ok(
            (StatusCode::ACCEPTED, place, Json(turn.status().without_internals())).into_response()
        );
    }
    let turn = queue_command(&app, &sandbox, command.line()?)?;
    let cancel_guard = CancelOnDisconnect::new(turn.clone());
    if wants_stream(&headers) {
        return Ok(event_stream(turn, cancel_guard));
    }
    let result = turn.ended().await;
    cancel_guard.disarm();
    // The output was kept for this request; it is no longer needed.
    app.sandboxes.turns.trim(turn.user());
    Ok(Json(result?).into_response())
}

/// Interrupt the command that uses the shell
#[utoipa::path(post, path = "/v1/sandboxes/{id}/interrupt", tag = "sandboxes", operation_id = "interruptSandbox", params(IdPath),
    responses((status = 202, description = "The command was interrupted"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(in crate::server) async fn interrupt(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&app, &caller, &id)?;
    if sandbox.interrupt() {
        Ok(StatusCode::ACCEPTED)
    } else {
        Err(ApiError::new(StatusCode::CONFLICT, "idle", "no command is running in the shell"))
    }
}
