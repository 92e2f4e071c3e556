//! Files of a sandbox, by the tools that decide as the sandbox does and never leave its directory.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::{self, Stream};
use ringfence_api::whole;
use ringfence_policy::AbsPath;
use ringfence_tools::{
    ListEntry, ListParams, PutParams, ReadParams, ReadResultBody, Source, ToolError,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::bodies::{Held, stage};
use super::super::extract::{IdPath, PathParams, QueryParams, too_slow};
use super::super::schema;
use super::super::schema::errors::{
    AuthErrors, ConflictError, GoneError, NotFoundError, ParameterErrors, PolicyDeniedError,
    QuotaError, RequestTimeoutError, TooLargeError, UnavailableError,
};
use super::super::skills::apart;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult, is_full};
use crate::sandboxes::{DirChanges, ServiceSandbox, below};
use crate::tenants::ApiCaller;

/// As much a file may have that is brought or fetched as a whole.
const LARGEST: usize = 32 << 20;

/// So long a file may take to arrive.
const PATIENCE: Duration = Duration::from_secs(300);

/// Which file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct FileQuery {
    /// From the sandbox's directory on; nothing is the directory itself.
    #[serde(default)]
    path: String,
}

/// Which file, and how much of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct FileReadQuery {
    /// From the sandbox's directory on; nothing is the directory itself.
    #[serde(default)]
    path: String,
    /// How many levels of a directory.
    #[param(minimum = 1, maximum = 128)]
    depth: Option<usize>,
    /// How many entries of a directory at most.
    #[param(minimum = 1, maximum = 100000)]
    limit: Option<usize>,
}

/// What is there.
#[derive(Serialize, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[schema(as = SandboxFile)]
pub(in crate::server) enum FileBody {
    /// A directory.
    Directory {
        path: String,
        #[schema(value_type = Vec<schema::Entry>)]
        entries: Vec<ListEntry>,
        truncated: bool,
    },
    /// A file.
    File {
        path: String,
        size: u64,
        /// Where it is text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Where it is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        base64: Option<String>,
        truncated: bool,
    },
}

/// What was written.
#[derive(Serialize, ToSchema)]
#[schema(as = PutFile)]
pub(in crate::server) struct FileWrittenBody {
    path: String,
    created: bool,
    size: u64,
}

/// A directory that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeDirectory)]
pub(in crate::server) struct DirectoryMadeBody {
    path: String,
}

/// A path from the sandbox's directory on, wherever its commands begin.
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

/// What a tool did not do.
fn refused(house: &SharedState, sandbox: &ServiceSandbox, error: &ToolError) -> ApiError {
    if let Some(denial) = error.denial() {
        let mut about = serde_json::to_value(denial).unwrap_or_default();
        about["sandbox"] = sandbox.id.clone().into();
        house.events.tell("denial", sandbox.user(), about);
    }
    let status = match error {
        // Not 403, which is about the token.
        ToolError::Denied { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ToolError::NotFound { .. } | ToolError::NoDirectory { .. } => StatusCode::NOT_FOUND,
        ToolError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ToolError::Input { .. } => StatusCode::BAD_REQUEST,
        ToolError::OfAnotherKind { .. }
        | ToolError::Exists { .. }
        | ToolError::Unsettled { .. }
        | ToolError::Policy { .. } => StatusCode::CONFLICT,
        ToolError::System { .. } if is_full(error) => return ApiError::ours(error),
        // What commands made of the directory: not empty, shut, too long.
        ToolError::System { .. } => StatusCode::CONFLICT,
        _ => return ApiError::ours(error),
    };
    ApiError::new(status, error.code(), whole(error))
}

fn is_a_file(error: &ToolError) -> bool {
    matches!(error, ToolError::OfAnotherKind { kind: "a file", .. })
}

/// List a directory of a sandbox, or show a file
///
/// With `Accept: application/octet-stream` a file is answered as its bytes, all of them.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "showSandboxFile", params(IdPath, FileReadQuery),
    responses((status = 200, description = "What is there", content((FileBody = "application/json"), (Vec<u8> = "application/octet-stream"))), ParameterErrors, NotFoundError, ConflictError, GoneError, TooLargeError, PolicyDeniedError, AuthErrors))]
pub(in crate::server) async fn get(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(shown): QueryParams<FileReadQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let sandbox = find(&house, &caller, &id)?;
    let is_odd = |number: Option<usize>, most: usize| {
        number.is_some_and(|number| !(1..=most).contains(&number))
    };
    if is_odd(shown.depth, 128) || is_odd(shown.limit, 100_000) {
        return Err(ApiError::wrong("query", "`depth` is 1 to 128, and `limit` 1 to 100000"));
    }
    let is_raw = headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.as_bytes().starts_with(b"application/octet-stream"));
    apart(move || {
        let tools = sandbox.tools()?;
        let no = |error: ToolError| refused(&house, &sandbox, &error);
        if is_raw {
            let taken = tools.take(&within(&sandbox, &shown.path), LARGEST as u64).map_err(no)?;
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

/// Put a file into a sandbox
///
/// The body is all that is to be in it. Directories that are missing on the way are made.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "putSandboxFile", request_body(content = Vec<u8>, content_type = "application/octet-stream"), params(IdPath, FileQuery),
    responses((status = 200, description = "It is there", body = FileWrittenBody), ParameterErrors, NotFoundError, RequestTimeoutError, ConflictError, GoneError, TooLargeError, PolicyDeniedError, QuotaError, AuthErrors))]
pub(in crate::server) async fn put(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
    request: Request,
) -> ApiResult<Json<FileWrittenBody>> {
    let sandbox = find(&house, &caller, &id)?;
    let mut held = Held::staged(&house, &caller);
    let staged = stage(&house, request.into_body(), &mut held, LARGEST as u64);
    let (file, length) = tokio::time::timeout(PATIENCE, staged).await.map_err(|_| too_slow())??;
    apart(move || {
        let _held = held;
        let tools = sandbox.tools()?;
        sandbox.brings(length)?;
        let (path, content) = (within(&sandbox, &which.path), Source::File { file: &file, length });
        let wish =
            PutParams { path: &path, content, create_parents: true, new_only: false, fsync: false };
        let written = tools.put(&wish).map_err(|error| refused(&house, &sandbox, &error))?;
        Ok(Json(FileWrittenBody {
            path: relative(&sandbox, &written.path),
            created: written.created,
            size: written.size,
        }))
    })
    .await
}

/// Make a directory of a sandbox, and those on the way to it
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "makeSandboxDirectory", params(IdPath, FileQuery),
    responses((status = 200, description = "It is there", body = DirectoryMadeBody), ParameterErrors, NotFoundError, ConflictError, GoneError, PolicyDeniedError, QuotaError, AuthErrors))]
pub(in crate::server) async fn make(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
) -> ApiResult<Json<DirectoryMadeBody>> {
    let sandbox = find(&house, &caller, &id)?;
    apart(move || {
        let tools = sandbox.tools()?;
        let made = tools
            .make_directories(&within(&sandbox, &which.path))
            .map_err(|error| refused(&house, &sandbox, &error))?;
        Ok(Json(DirectoryMadeBody { path: relative(&sandbox, &made) }))
    })
    .await
}

/// A name to remove.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::server) struct Removed {
    /// From the sandbox's directory on.
    path: String,
    /// A directory with everything in it.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, a link or a directory of a sandbox
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "removeSandboxFile", params(IdPath, Removed),
    responses((status = 204, description = "It is gone"), ParameterErrors, NotFoundError, ConflictError, GoneError, PolicyDeniedError, AuthErrors))]
pub(in crate::server) async fn remove(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(removed): QueryParams<Removed>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&house, &caller, &id)?;
    apart(move || {
        let (tools, path) = (sandbox.tools()?, within(&sandbox, &removed.path));
        let gone = if removed.recursive { tools.remove_all(&path) } else { tools.remove(&path) };
        gone.map_err(|error| {
            let fault = refused(&house, &sandbox, &error);
            let is_full = matches!(&error, ToolError::System { source, .. } if source.kind() == std::io::ErrorKind::DirectoryNotEmpty);
            if is_full { fault.hint("`recursive=true` removes what is in it, too") } else { fault }
        })?;
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}

/// Watch a directory of a sandbox
///
/// `created`, `changed` and `removed`, with the path, of everything below it; `missed` where there
/// was more than could be told.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/watch", tag = "sandboxes", operation_id = "watchSandbox", params(IdPath, FileQuery),
    responses((status = 200, description = "A stream that ends with the connection or the sandbox", content_type = "text/event-stream", body = schema::ServerSentEvent), ParameterErrors, NotFoundError, GoneError, UnavailableError, AuthErrors))]
pub(in crate::server) async fn watch(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    QueryParams(which): QueryParams<FileQuery>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let sandbox = find(&house, &caller, &id)?;
    let outside = || {
        ApiError::absent("not-found", format!("there is no directory `{}`", which.path))
            .hint("it is from the sandbox's directory on")
    };
    let path = below(&sandbox.workspace, &which.path).ok_or_else(outside)?;
    let changes = DirChanges::watch(&house, sandbox, &path)?;
    let events = stream::unfold(changes, |mut changes| async move {
        let (kind, value) = changes.next().await?;
        Some((Ok(Event::default().event(kind).data(value.to_string())), changes))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
