//! Sandboxes: create, list, extend and end.

pub(super) mod commands;
pub(super) mod files;
pub(super) mod grants;
pub(super) mod terminal;

use std::collections::BTreeMap;
use std::path::{Component, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_policy::{HostRule, Limit};
use ringfence_skills::{SkillName, SkillNeeds};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::extract::{IdPath, JsonBody, PathParams, QueryParams, optional_integer};
use super::schema::errors::{
    AuthErrors, BodyErrors, NotFoundError, ParameterErrors, UnavailableError,
};
use super::skills::run_blocking;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{DEFAULT_TTL, MAX_TTL, SandboxRequest, ServiceSandbox, create_sandbox};
use crate::tenants::{ApiCaller, TokenScope};

/// The options of a new sandbox.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewSandbox)]
pub(super) struct CreateSandboxBody {
    /// The tenant. Default: the token's own tenant.
    #[schema(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// The lifetime in seconds; it can be changed later.
    #[schema(minimum = 1, maximum = 86400, default = 600)]
    #[serde(default, deserialize_with = "optional_integer")]
    ttl_seconds: Option<u64>,
    /// If true, a denied access waits for the user's answer (`/v1/asks`).
    #[serde(default)]
    ask: bool,
    /// Limits below the policy's `[limits]`: `{"memory": "64MiB"}`.
    #[schema(value_type = Option<Object>)]
    limits: Option<BTreeMap<String, Value>>,
    /// Fewer hosts than the policy allows.
    network: Option<SandboxNetworkBody>,
    /// Environment variables of every command, in addition to the policy's.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// The first directory of commands, relative to the sandbox's directory; it is created.
    #[serde(default)]
    #[schema(max_length = 1024)]
    cwd: String,
    /// Up to 16 labels of the caller's choice, for filtering lists.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The hosts that may be reached.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxNetworkBody {
    /// `api.example.org`, `*.example.org:443`; a host that the policy does not allow stays denied.
    allow: Vec<String>,
}

/// The current state of a sandbox.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sandbox)]
pub(super) struct SandboxBody {
    id: String,
    #[schema(value_type = String)]
    user_id: SkillName,
    created_ms: u64,
    expires_ms: u64,
    ask: bool,
    /// Its directory; file paths are relative to it.
    workspace: String,
    /// The first directory of its commands.
    cwd: String,
    labels: BTreeMap<String, String>,
    /// True while a command uses its shell or waits for it.
    busy: bool,
    /// The number of commands run so far.
    commands: u64,
    /// Hosts that it may reach.
    hosts: Vec<String>,
    /// Limits by name, in milliseconds, bytes or counts.
    #[schema(value_type = BTreeMap<String, u64>)]
    limits: BTreeMap<&'static str, u64>,
}

impl SandboxBody {
    fn from_sandbox(sandbox: &ServiceSandbox) -> Self {
        let grants = &sandbox.session.policy().grants;
        Self {
            id: sandbox.id.clone(),
            user_id: sandbox.user().clone(),
            created_ms: sandbox.created_ms,
            expires_ms: sandbox.expires_ms(),
            ask: sandbox.wanted.asks,
            workspace: sandbox.workspace.to_string(),
            cwd: sandbox.session.cwd().to_string(),
            labels: sandbox.wanted.labels.clone(),
            busy: sandbox.is_busy(),
            commands: sandbox.session.status().commands,
            hosts: grants.network.allow.iter().map(|listed| listed.rule.to_string()).collect(),
            limits: Limit::ALL
                .iter()
                .filter_map(|limit| Some((limit.word(), grants.limits.get(*limit)?)))
                .collect(),
        }
    }
}

/// Sandboxes.
#[derive(Serialize, ToSchema)]
#[schema(as = Sandboxes)]
pub(super) struct SandboxListBody {
    sandboxes: Vec<SandboxBody>,
}

/// Create a sandbox
///
/// It has a directory of its own and a persistent shell, and never more access than the tenant's
/// policy allows. When its lifetime ends, the sandbox and everything in it are removed.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "makeSandbox", request_body = CreateSandboxBody,
    responses((status = 201, description = "The sandbox was created", body = SandboxBody), BodyErrors, UnavailableError, AuthErrors))]
pub(super) async fn create(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    JsonBody(new): JsonBody<CreateSandboxBody>,
) -> ApiResult<Response> {
    caller.require_scope(TokenScope::Sandboxes)?;
    let named = new.user_id.as_deref().map(SkillName::try_from).transpose()?;
    let no_user = || {
        ApiError::bad_request("user", "the token has no tenant, so the body must name one")
            .hint("`{\"userId\": \"alice\"}`")
    };
    let user = named.or_else(|| caller.user.clone()).ok_or_else(no_user)?;
    caller.require_access(TokenScope::Sandboxes, &user)?;
    let ttl = ttl(new.ttl_seconds.unwrap_or(DEFAULT_TTL))?;
    let needs =
        SkillNeeds { hosts: hosts(new.network)?, writes: None, limits: limits(new.limits)? };
    let (env, labels, cwd) =
        (variables(new.env)?, check_labels(new.labels)?, start_directory(new.cwd)?);
    let wanted = SandboxRequest { user, ttl, asks: new.ask, needs, env, cwd, labels };
    let [own, all] = app.executions.start_semaphores(&wanted.user);
    let making = [own.acquire_owned().await, all.acquire_owned().await];
    run_blocking(move || {
        let _making = making;
        let sandbox = create_sandbox(&app, wanted)?;
        let place = [(header::LOCATION, format!("/v1/sandboxes/{}", sandbox.id))];
        Ok((StatusCode::CREATED, place, Json(SandboxBody::from_sandbox(&sandbox))).into_response())
    })
    .await
}

fn ttl(seconds: u64) -> ApiResult<Duration> {
    if (1..=MAX_TTL).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(ApiError::bad_request("ttl", format!("`ttlSeconds` must be 1 to {MAX_TTL}"))
        .hint("PATCH extends the lifetime, any number of times"))
}

/// Checks the environment variables of a sandbox.
fn variables(env: BTreeMap<String, String>) -> ApiResult<BTreeMap<String, String>> {
    const MOST: usize = 64 << 10;
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.is_empty()
            && !name.as_bytes()[0].is_ascii_digit()
    };
    let is_odd = |(name, value): &(&String, &String)| {
        !is_name(name) || name.starts_with("RINGFENCE_") || value.contains('\0')
    };
    if let Some((name, _)) = env.iter().find(is_odd) {
        return Err(ApiError::bad_request("env", format!("`{name}` cannot be set"))
            .hint("use letters, digits and `_` in names, and no NUL in values"));
    }
    if env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MOST {
        return Err(ApiError::bad_request("env", format!("`env` is larger than {MOST} bytes")));
    }
    Ok(env)
}

fn check_labels(labels: BTreeMap<String, String>) -> ApiResult<BTreeMap<String, String>> {
    let is_name = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
    };
    let is_fine = labels.len() <= 16
        && labels.iter().all(|(name, value)| is_name(name) && value.chars().count() <= 256);
    let wrong = || {
        ApiError::bad_request(
            "labels",
            "at most 16 labels, with names of 1 to 64 of A-Z a-z 0-9 . _ - / and values of up to 256 characters",
        )
    };
    is_fine.then_some(labels).ok_or_else(wrong)
}

/// Checks a directory below that of the sandbox.
fn start_directory(cwd: String) -> ApiResult<PathBuf> {
    let path = PathBuf::from(cwd);
    let is_name = |part: Component<'_>| {
        matches!(part, Component::Normal(name) if name.len() <= 255) || part == Component::CurDir
    };
    let is_fine = path.components().all(is_name)
        && path.as_os_str().len() <= 1024
        && !path.to_string_lossy().contains('\0');
    let wrong = || {
        ApiError::bad_request("cwd", "`cwd` is not a path inside the sandbox's directory")
            .hint("use a path relative to that directory: `project/src`")
    };
    is_fine.then_some(path).ok_or_else(wrong)
}

fn hosts(network: Option<SandboxNetworkBody>) -> ApiResult<Option<Vec<String>>> {
    let Some(SandboxNetworkBody { allow }) = network else { return Ok(None) };
    for host in &allow {
        HostRule::parse(host).map_err(|error| {
            ApiError::bad_request("host", format!("`{host}` is not a host: {error}"))
                .hint("write HOST or HOST:PORT")
        })?;
    }
    Ok(Some(allow))
}

fn limits(limits: Option<BTreeMap<String, Value>>) -> ApiResult<Option<Vec<(String, String)>>> {
    let Some(limits) = limits else { return Ok(None) };
    let read = |(name, amount): (String, Value)| {
        let limit = Limit::ALL.iter().find(|limit| limit.word() == name);
        let limit = limit.ok_or_else(|| {
            let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.word()).collect();
            ApiError::bad_request("limit", format!("no such limit: `{name}`"))
                .hint(names.join(", "))
        })?;
        let text = match amount {
            Value::String(text) => text,
            other => other.to_string(),
        };
        limit.parse_amount(&text).ok_or_else(|| {
            ApiError::bad_request("limit", format!("`{text}` is not a valid value for `{name}`"))
                .hint(limit.expected_format())
        })?;
        Ok((name, text))
    };
    limits.into_iter().map(read).collect::<ApiResult<Vec<_>>>().map(Some)
}

/// Selects sandboxes.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SandboxFilter {
    /// Only of this tenant.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only with this label: `KEY=VALUE`.
    label: Option<String>,
}

/// List live sandboxes
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "listSandboxes", params(SandboxFilter),
    responses((status = 200, description = "Newest first", body = SandboxListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(filter): QueryParams<SandboxFilter>,
) -> ApiResult<Json<SandboxListBody>> {
    caller.require_scope(TokenScope::Sandboxes)?;
    let user = filter.user_id.as_deref().map(SkillName::try_from).transpose()?;
    run_blocking(move || {
        let is_labelled = |sandbox: &ServiceSandbox| match filter
            .label
            .as_deref()
            .map(|label| label.split_once('=').unwrap_or((label, "")))
        {
            Some((name, value)) => sandbox.wanted.labels.get(name).is_some_and(|own| own == value),
            None => true,
        };
        let is_selected = |sandbox: &&Arc<ServiceSandbox>| {
            caller.can_see(sandbox.user())
                && user.as_ref().is_none_or(|user| user == sandbox.user())
                && is_labelled(sandbox)
        };
        Ok(Json(SandboxListBody {
            sandboxes: app
                .sandboxes
                .list()
                .iter()
                .filter(is_selected)
                .map(|sandbox| SandboxBody::from_sandbox(sandbox))
                .collect(),
        }))
    })
    .await
}

fn find(app: &SharedState, caller: &ApiCaller, id: &str) -> ApiResult<Arc<ServiceSandbox>> {
    caller.require_scope(TokenScope::Sandboxes)?;
    let unknown = || {
        ApiError::not_found("no-such-sandbox", "no such sandbox")
            .hint("GET /v1/sandboxes lists them")
    };
    app.sandboxes.find(id).filter(|sandbox| caller.can_see(sandbox.user())).ok_or_else(unknown)
}

/// Get the state of a sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "getSandbox", params(IdPath),
    responses((status = 200, description = "The current state", body = SandboxBody), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn show(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<SandboxBody>> {
    let sandbox = find(&app, &caller, &id)?;
    run_blocking(move || Ok(Json(SandboxBody::from_sandbox(&sandbox)))).await
}

/// The new lifetime of a sandbox.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewLease)]
pub(super) struct ExtendBody {
    /// The lifetime in seconds, from now on.
    #[schema(minimum = 1, maximum = 86400)]
    #[serde(deserialize_with = "crate::serde_int::integer")]
    ttl_seconds: u64,
}

/// Set the remaining lifetime of a sandbox
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "extendSandbox", request_body = ExtendBody, params(IdPath),
    responses((status = 200, description = "The current state", body = SandboxBody), BodyErrors, NotFoundError, AuthErrors))]
pub(super) async fn extend(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(extended): JsonBody<ExtendBody>,
) -> ApiResult<Json<SandboxBody>> {
    let sandbox = find(&app, &caller, &id)?;
    sandbox.extend(ttl(extended.ttl_seconds)?);
    run_blocking(move || Ok(Json(SandboxBody::from_sandbox(&sandbox)))).await
}

/// End a sandbox and everything in it
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "removeSandbox", params(IdPath),
    responses((status = 204, description = "The sandbox has ended, and its directory is removed"), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn remove(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&app, &caller, &id)?;
    sandbox.end();
    sandbox.ended().await;
    Ok(StatusCode::NO_CONTENT)
}
