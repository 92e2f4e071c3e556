//! Commands in the shell of a sandbox.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::extract::{IdPath, JsonBody, PathParams};
use super::super::schema;
use super::super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, GoneError, NotFoundError, ParameterErrors,
    UnavailableError,
};
use super::super::stream::{CancelOnDisconnect, told, wants_stream};
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::executions::{LONGEST, Listed, Watchable};
use crate::sandboxes::{QueuedLine, begin, begin_background};
use crate::tenants::ApiCaller;

/// A command for the shell of a sandbox.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = SandboxCommand)]
pub(in crate::server) struct SandboxExecBody {
    /// A line for bash.
    #[schema(min_length = 1, max_length = 65536, pattern = r"^[^\x00]+$")]
    command: String,
    /// How long it may take; never longer than five minutes.
    #[schema(minimum = 1, maximum = 300000)]
    #[serde(default, deserialize_with = "crate::serde_int::perhaps")]
    timeout_ms: Option<u64>,
    /// What it reads.
    #[serde(default)]
    #[schema(max_length = 1048576)]
    stdin: String,
    /// Runs it beside the shell until it ends, or the sandbox does. It is answered with 202 and
    /// an id then, and has no time limit but `timeoutMs`.
    #[serde(default)]
    background: bool,
}

impl SandboxExecBody {
    fn line(self) -> ApiResult<QueuedLine> {
        let longest = LONGEST.as_millis() as u64;
        if self.command.is_empty() || self.command.len() > 64 << 10 || self.command.contains('\0') {
            return Err(ApiError::wrong("command", "a command has 1 to 65536 bytes, and no NUL"));
        }
        if self.stdin.len() > 1 << 20 {
            return Err(ApiError::wrong("stdin", "`stdin` has at most 1 MiB")
                .hint("PUT …/files, and read it from there"));
        }
        if self.timeout_ms.is_some_and(|ms| !(1..=longest).contains(&ms)) {
            return Err(ApiError::wrong("timeout", format!("`timeoutMs` is 1 to {longest}"))
                .hint("five minutes are the hard limit"));
        }
        let timeout = self.timeout_ms.map(Duration::from_millis);
        Ok(QueuedLine { command: self.command, timeout, input: self.stdin.into_bytes() })
    }
}

/// Run a command in the shell of a sandbox
///
/// The shell lives on: directory, variables and functions stay. Commands take turns. With `Accept:
/// text/event-stream` what it writes is told as it comes. Whoever leaves before the end cancels it.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "sandboxes", operation_id = "runInSandbox", request_body = SandboxExecBody, params(IdPath),
    responses(
        (status = 200, description = "What became of it; with `Accept: text/event-stream`, each `ExecutionEvent` as it comes",
            content((schema::ExecuteResult = "application/json"), (schema::ServerSentEvent = "text/event-stream"))), 
        (status = 202, description = "It runs in the background; `/v1/executions/{id}` tells of it", body = crate::executions::ExecutionStatus),
        BodyErrors, NotFoundError, ConflictError, GoneError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn exec(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    headers: HeaderMap,
    JsonBody(command): JsonBody<SandboxExecBody>,
) -> ApiResult<Response> {
    let sandbox = find(&house, &caller, &id)?;
    if command.background {
        let turn = begin_background(&house, &sandbox, command.line()?)?;
        let place = [(header::LOCATION, format!("/v1/executions/{}", turn.id()))];
        return Ok((StatusCode::ACCEPTED, place, Json(turn.status().told())).into_response());
    }
    let turn = begin(&house, &sandbox, command.line()?)?;
    let leaves = CancelOnDisconnect::of(turn.clone());
    if wants_stream(&headers) {
        return Ok(told(turn, leaves));
    }
    let result = turn.ended().await;
    leaves.stays();
    // Its output was kept while this request waited for it.
    house.sandboxes.turns.trim(turn.user());
    Ok(Json(result?).into_response())
}

/// Interrupt the command that has the shell
#[utoipa::path(post, path = "/v1/sandboxes/{id}/interrupt", tag = "sandboxes", operation_id = "interruptSandbox", params(IdPath),
    responses((status = 202, description = "It was told"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(in crate::server) async fn interrupt(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&house, &caller, &id)?;
    if sandbox.interrupt() {
        Ok(StatusCode::ACCEPTED)
    } else {
        Err(ApiError::new(StatusCode::CONFLICT, "idle", "no command has the shell"))
    }
}
