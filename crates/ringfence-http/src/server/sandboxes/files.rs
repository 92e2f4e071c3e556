//! Files of a sandbox, through tools that decide as the sandbox does and never leave its directory.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::{self, Stream};
use ringfence_api::error_chain;
use ringfence_policy::AbsPath;
use ringfence_tools::{
    ListEntry, ListParams, PutParams, ReadParams, ReadResultBody, ToolError, WriteSource,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::bodies::{PendingBytes, stage_body};
use super::super::extract::{IdPath, PathParams, QueryParams, too_slow};
use super::super::schema;
use super::super::schema::errors::{
    AuthErrors, ConflictError, GoneError, NotFoundError, ParameterErrors, PolicyDeniedError,
    QuotaError, RequestTimeoutError, TooLargeError, UnavailableError,
};
use super::super::skills::run_blocking;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult, is_full};
use crate::sandboxes::{DirChanges, ServiceSandbox, relative_path};
use crate::tenants::ApiCaller;

/// The largest file that is written or read as a whole.
const LARGEST: usize = 32 << 20;

/// Time limit for an upload.
const PATIENCE: Duration = Duration::from_secs(300);

/// Selects a file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct FileQuery {
    /// Relative to the sandbox's directory; empty for the directory itself.
    #[serde(default)]
    path: String,
}

/// Selects a file or a directory, and how much of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct FileReadQuery {
    /// Relative to the sandbox's directory; empty for the directory itself.
    #[serde(default)]
    path: String,
    /// The depth of a directory listing.
    #[param(minimum = 1, maximum = 128)]
    depth: Option<usize>,
    /// The maximum number of directory entries.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
}

/// A directory or a file.
#[derive(Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = SandboxFile)]
pub(in crate::server) enum FileBody {
    /// A directory.
    Directory {
        path: String,
        #[schema(value_type = Vec<schema::ListEntry>)]
        entries: Vec<ListEntry>,
        truncated: bool,
    },
    /// A file.
    File {
        path: String,
        size: u64,
        /// The content, if it is text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// The content in base64, if it is not text.
        #[serde(skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        truncated: bool,
    },
}

/// A written file.
#[derive(Serialize, ToSchema)]
#[schema(as = PutFile)]
pub(in crate::server) struct FileWrittenBody {
    path: String,
    created: bool,
    size: u64,
}

/// A created directory.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeDirectory)]
pub(in crate::server) struct DirectoryMadeBody {
    path: String,
}

/// Resolves a path relative to the sandbox's directory, wherever its commands start.
fn within(sandbox: &ServiceSandbox, path: &str) -> PathBuf {
    if path.is_empty() {
        sandbox.workspace.as_path().to_owned()
    } else {
        sandbox.workspace.as_path().join(path)
    }
}

fn relative(sandbox: &ServiceSandbox, path: &AbsPath) -> String {
    path.relative_to(&sandbox.workspace)
        .map_or_else(|| path.to_string(), |path| path.to_string_lossy().into_owned())
}

/// Maps a tool's error to a response, and publishes a denial as an event.
fn tool_error(app: &SharedState, sandbox: &ServiceSandbox, error: &ToolError) -> ApiError {
    if let Some(denial) = error.denial() {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        app.events.publish("denial", sandbox.user(), about);
    }
    let status = match error {
        // Not 403, which concerns the token.
        ToolError::Denied { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ToolError::NotFound { .. } | ToolError::NoDirectory { .. } => StatusCode::NOT_FOUND,
        ToolError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ToolError::Input { .. } => StatusCode::BAD_REQUEST,
        ToolError::OfAnotherKind { .. }
        | ToolError::Exists { .. }
        | ToolError::Unsettled { .. }
        | ToolError::Policy { .. } => StatusCode::CONFLICT,
        ToolError::System { .. } if is_full(error) => return ApiError::internal(error),
        // The state of the directory: not empty, not accessible, name too long.
        ToolError::System { .. } => StatusCode::CONFLICT,
        _ => return ApiError::internal(error),
    };
    ApiError::new(status, error.code(), error_chain(error))
}

fn is_a_file(error: &ToolError) -> bool {
    matches!(error, ToolError::OfAnotherKind { kind: "a file", .. })
}

/// List a directory of a sandbox, or show a file
///
/// With `Accept: application/octet-stream` the response is the whole file as bytes.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "showSandboxFile", params(IdPath, FileReadQuery),
    responses((status = 200, description = "The directory or file", content((FileBody = "application/json"), (Vec<u8> = "application/octet-stream"))), ParameterErrors, NotFoundError, ConflictError, GoneError, TooLargeError, PolicyDeniedError, AuthErrors))]
pub(in crate::server) async fn get(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(shown): QueryParams<FileReadQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let sandbox = find(&app, &caller, &id)?;
    let is_odd = |number: Option<usize>, most: usize| {
        number.is_some_and(|number| !(1..=most).contains(&number))
    };
    if is_odd(shown.depth, 128) || is_odd(shown.limit, 100_000) {
        return Err(ApiError::bad_request(
            "query",
            "`depth` must be 1 to 128, and `limit` 1 to 100000",
        ));
    }
    let is_raw = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"application/octet-stream"));
    run_blocking(move || {
        let tools = sandbox.tools()?;
        let no = |error: ToolError| tool_error(&app, &sandbox, &error);
        if is_raw {
            let taken =
                tools.read_whole(&within(&sandbox, &shown.path), LARGEST as u64).map_err(no)?;
            return Ok((
                [(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))],
                taken.bytes,
            )
                .into_response());
        }
        let list = ListParams {
            depth: shown.depth,
            limit: shown.limit,
            ..ListParams::new(within(&sandbox, &shown.path))
        };
        let there = match tools.list(&list) {
            Ok(listing) => FileBody::Directory {
                path: relative(&sandbox, &listing.path),
                entries: listing.entries,
                truncated: listing.truncated,
            },
            Err(error) if is_a_file(&error) => {
                let ReadResultBody { path, text, base64, size, truncated, .. } =
                    tools.read(&ReadParams::new(within(&sandbox, &shown.path))).map_err(no)?;
                FileBody::File { path: relative(&sandbox, &path), size, text, base64, truncated }
            }
            Err(error) => return Err(no(error)),
        };
        Ok(Json(there).into_response())
    })
    .await
}

/// Write a file of a sandbox
///
/// The body is the whole content. Missing parent directories are created.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "putSandboxFile", request_body(content = Vec<u8>, content_type = "application/octet-stream"), params(IdPath, FileQuery),
    responses((status = 200, description = "The file was written", body = FileWrittenBody), ParameterErrors, NotFoundError, RequestTimeoutError, ConflictError, GoneError, TooLargeError, PolicyDeniedError, QuotaError, AuthErrors))]
pub(in crate::server) async fn put(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
    request: Request,
) -> ApiResult<Json<FileWrittenBody>> {
    let sandbox = find(&app, &caller, &id)?;
    let mut held = PendingBytes::staged(&app, &caller);
    let staged = stage_body(&app, request.into_body(), &mut held, LARGEST as u64);
    let (file, length) = tokio::time::timeout(PATIENCE, staged).await.map_err(|_| too_slow())??;
    run_blocking(move || {
        let _held = held;
        let tools = sandbox.tools()?;
        sandbox.count_upload(length)?;
        let (path, content) =
            (within(&sandbox, &which.path), WriteSource::File { file: &file, length });
        let request =
            PutParams { path: &path, content, create_parents: true, new_only: false, fsync: false };
        let written = tools.put(&request).map_err(|error| tool_error(&app, &sandbox, &error))?;
        Ok(Json(FileWrittenBody {
            path: relative(&sandbox, &written.path),
            created: written.created,
            size: written.size,
        }))
    })
    .await
}

/// Create a directory of a sandbox, and its parents
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "makeSandboxDirectory", params(IdPath, FileQuery),
    responses((status = 200, description = "The directory exists", body = DirectoryMadeBody), ParameterErrors, NotFoundError, ConflictError, GoneError, PolicyDeniedError, QuotaError, AuthErrors))]
pub(in crate::server) async fn make(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
) -> ApiResult<Json<DirectoryMadeBody>> {
    let sandbox = find(&app, &caller, &id)?;
    run_blocking(move || {
        let tools = sandbox.tools()?;
        let made = tools
            .make_directories(&within(&sandbox, &which.path))
            .map_err(|error| tool_error(&app, &sandbox, &error))?;
        Ok(Json(DirectoryMadeBody { path: relative(&sandbox, &made) }))
    })
    .await
}

/// Selects a file or directory to remove.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct Removed {
    /// Relative to the sandbox's directory.
    path: String,
    /// If true, removes a directory with everything in it.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, a link or a directory of a sandbox
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "removeSandboxFile", params(IdPath, Removed),
    responses((status = 204, description = "It was removed"), ParameterErrors, NotFoundError, ConflictError, GoneError, PolicyDeniedError, AuthErrors))]
pub(in crate::server) async fn remove(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(removed): QueryParams<Removed>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&app, &caller, &id)?;
    run_blocking(move || {
        let (tools, path) = (sandbox.tools()?, within(&sandbox, &removed.path));
        let gone = if removed.recursive { tools.remove_all(&path) } else { tools.remove(&path) };
        gone.map_err(|error| {
            let fault = tool_error(&app, &sandbox, &error);
            let is_full = matches!(&error, ToolError::System { source, .. } if source.kind() == std::io::ErrorKind::DirectoryNotEmpty);
            if is_full { fault.hint("`recursive=true` removes its content as well") } else { fault }
        })?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Watch a directory of a sandbox
///
/// Sends `created`, `changed` and `removed` with the path, for everything below it; `missed` if
/// events were lost.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/watch", tag = "sandboxes", operation_id = "watchSandbox", params(IdPath, FileQuery),
    responses((status = 200, description = "A stream that ends with the connection or the sandbox", content_type = "text/event-stream", body = schema::ServerSentEvent), ParameterErrors, NotFoundError, GoneError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn watch(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let sandbox = find(&app, &caller, &id)?;
    let outside = || {
        ApiError::not_found("not-found", format!("no such directory: `{}`", which.path))
            .hint("use a path relative to the sandbox's directory")
    };
    let path = relative_path(&sandbox.workspace, &which.path).ok_or_else(outside)?;
    let changes = DirChanges::open(&app, sandbox, &path)?;
    let events = stream::unfold(changes, |mut changes| async move {
        let (kind, value) = changes.next().await?;
        Some((Ok(Event::default().event(kind).data(value.to_string())), changes))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
