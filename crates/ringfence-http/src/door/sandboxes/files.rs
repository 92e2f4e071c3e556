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
use ringfence_tools::{Content, Entry, List, Put, Read, Source, ToolError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::bodies::{Held, stage};
use super::super::schema;
use super::super::schema::answers::{
    Absent, Conflict, Denied, Full, Gone, NotMeant, Refused, TooMuch, TooSlow, Unable,
};
use super::super::skills::apart;
use super::super::words::{Asked, Named, OfId, too_slow};
use super::find;
use crate::Shared;
use crate::answer::{Answer, Fault, is_full};
use crate::sandboxes::{Changes, Sandbox, below};
use crate::tenants::Caller;

/// As much a file may have that is brought or fetched as a whole.
const LARGEST: usize = 32 << 20;

/// So long a file may take to arrive.
const PATIENCE: Duration = Duration::from_secs(300);

/// Which file.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::door) struct Which {
    /// From the sandbox's directory on; nothing is the directory itself.
    #[serde(default)]
    path: String,
}

/// Which file, and how much of it.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::door) struct Shown {
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
pub(in crate::door) enum There {
    /// A directory.
    Directory {
        path: String,
        #[schema(value_type = Vec<schema::Entry>)]
        entries: Vec<Entry>,
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
pub(in crate::door) struct Written {
    path: String,
    created: bool,
    size: u64,
}

/// A directory that was made.
#[derive(Serialize, ToSchema)]
#[schema(as = MadeDirectory)]
pub(in crate::door) struct Made {
    path: String,
}

/// A path from the sandbox's directory on, wherever its commands begin.
fn within(sandbox: &Sandbox, path: &str) -> PathBuf {
    if path.is_empty() {
        sandbox.workspace.as_path().to_owned()
    } else {
        sandbox.workspace.as_path().join(path)
    }
}

fn relative(sandbox: &Sandbox, path: &AbsPath) -> String {
    path.relative_to(&sandbox.workspace)
        .map_or_else(|| path.to_string(), |path| path.to_string_lossy().into_owned())
}

/// What a tool did not do.
fn refused(house: &Shared, sandbox: &Sandbox, error: &ToolError) -> Fault {
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
        ToolError::System { .. } if is_full(error) => return Fault::ours(error),
        // What commands made of the directory: not empty, shut, too long.
        ToolError::System { .. } => StatusCode::CONFLICT,
        _ => return Fault::ours(error),
    };
    Fault::new(status, error.code(), whole(error))
}

fn is_a_file(error: &ToolError) -> bool {
    matches!(error, ToolError::OfAnotherKind { kind: "a file", .. })
}

/// List a directory of a sandbox, or show a file
///
/// With `Accept: application/octet-stream` a file is answered as its bytes, all of them.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "showSandboxFile", params(OfId, Shown),
    responses((status = 200, description = "What is there", content((There = "application/json"), (Vec<u8> = "application/octet-stream"))), NotMeant, Absent, Conflict, Gone, TooMuch, Denied, Refused))]
pub(in crate::door) async fn get(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Asked(shown): Asked<Shown>,
    headers: HeaderMap,
) -> Answer<Response> {
    let sandbox = find(&house, &caller, &id)?;
    let is_odd = |number: Option<usize>, most: usize| {
        number.is_some_and(|number| !(1..=most).contains(&number))
    };
    if is_odd(shown.depth, 128) || is_odd(shown.limit, 100_000) {
        return Err(Fault::wrong("query", "`depth` is 1 to 128, and `limit` 1 to 100000"));
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
        let list = List {
            depth: shown.depth,
            limit: shown.limit,
            ..List::new(within(&sandbox, &shown.path))
        };
        let there = match tools.list(&list) {
            Ok(listing) => There::Directory {
                path: relative(&sandbox, &listing.path),
                entries: listing.entries,
                truncated: listing.truncated,
            },
            Err(error) if is_a_file(&error) => {
                let Content { path, text, base64, size, truncated, .. } =
                    tools.read(&Read::new(within(&sandbox, &shown.path))).map_err(no)?;
                There::File { path: relative(&sandbox, &path), size, text, base64, truncated }
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
#[utoipa::path(put, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "putSandboxFile", request_body(content = Vec<u8>, content_type = "application/octet-stream"), params(OfId, Which),
    responses((status = 200, description = "It is there", body = Written), NotMeant, Absent, TooSlow, Conflict, Gone, TooMuch, Denied, Full, Refused))]
pub(in crate::door) async fn put(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Asked(which): Asked<Which>,
    request: Request,
) -> Answer<Json<Written>> {
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
            Put { path: &path, content, create_parents: true, new_only: false, fsync: false };
        let written = tools.put(&wish).map_err(|error| refused(&house, &sandbox, &error))?;
        Ok(Json(Written {
            path: relative(&sandbox, &written.path),
            created: written.created,
            size: written.size,
        }))
    })
    .await
}

/// Make a directory of a sandbox, and those on the way to it
#[utoipa::path(post, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "makeSandboxDirectory", params(OfId, Which),
    responses((status = 200, description = "It is there", body = Made), NotMeant, Absent, Conflict, Gone, Denied, Full, Refused))]
pub(in crate::door) async fn make(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Asked(which): Asked<Which>,
) -> Answer<Json<Made>> {
    let sandbox = find(&house, &caller, &id)?;
    apart(move || {
        let tools = sandbox.tools()?;
        let made = tools
            .make_directories(&within(&sandbox, &which.path))
            .map_err(|error| refused(&house, &sandbox, &error))?;
        Ok(Json(Made { path: relative(&sandbox, &made) }))
    })
    .await
}

/// A name to remove.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::door) struct Removed {
    /// From the sandbox's directory on.
    path: String,
    /// A directory with everything in it.
    #[serde(default)]
    recursive: bool,
}

/// Remove a file, a link or a directory of a sandbox
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/files", tag = "sandboxes", operation_id = "removeSandboxFile", params(OfId, Removed),
    responses((status = 204, description = "It is gone"), NotMeant, Absent, Conflict, Gone, Denied, Refused))]
pub(in crate::door) async fn remove(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Asked(removed): Asked<Removed>,
) -> Answer<StatusCode> {
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
#[utoipa::path(get, path = "/v1/sandboxes/{id}/watch", tag = "sandboxes", operation_id = "watchSandbox", params(OfId, Which),
    responses((status = 200, description = "A stream that ends with the connection or the sandbox", content_type = "text/event-stream", body = schema::ServerSentEvent), NotMeant, Absent, Gone, Unable, Refused))]
pub(in crate::door) async fn watch(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Asked(which): Asked<Which>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let sandbox = find(&house, &caller, &id)?;
    let outside = || {
        Fault::absent("not-found", format!("there is no directory `{}`", which.path))
            .hint("it is from the sandbox's directory on")
    };
    let path = below(&sandbox.workspace, &which.path).ok_or_else(outside)?;
    let changes = Changes::watch(&house, sandbox, &path)?;
    let events = stream::unfold(changes, |mut changes| async move {
        let (kind, value) = changes.next().await?;
        Some((Ok(Event::default().event(kind).data(value.to_string())), changes))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
