//! Sandboxes: made, listed, kept and ended.

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

use super::extract::{IdPath, JsonBody, PathParams, QueryParams, perhaps};
use super::schema::errors::{
    AuthErrors, BodyErrors, NotFoundError, ParameterErrors, UnavailableError,
};
use super::skills::apart;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{LONGEST, SandboxRequest, ServiceSandbox, USUAL, make};
use crate::tenants::{ApiCaller, TokenScope};

/// What a new sandbox is to be like.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewSandbox)]
pub(super) struct CreateSandboxBody {
    /// The tenant; without one, the token's own.
    #[schema(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// How long it stands, unless that is changed.
    #[schema(minimum = 1, maximum = 86400, default = 600)]
    #[serde(default, deserialize_with = "perhaps")]
    ttl_seconds: Option<u64>,
    /// Whether what is about to be refused waits for somebody's answer (`/v1/asks`).
    #[serde(default)]
    ask: bool,
    /// Less than the policy's `[limits]`: `{"memory": "64MiB"}`.
    #[schema(value_type = Option<Object>)]
    limits: Option<BTreeMap<String, Value>>,
    /// Fewer hosts than the policy opens.
    network: Option<SandboxNetworkBody>,
    /// Variables of every command, on top of the policy's.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Where commands begin, from the sandbox's directory on; it is made.
    #[serde(default)]
    #[schema(max_length = 1024)]
    cwd: String,
    /// Up to 16 words of the caller's own, by which sandboxes can be listed.
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// Which hosts are to be reached.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxNetworkBody {
    /// `api.example.org`, `*.example.org:443`; none of them opens what the policy does not.
    allow: Vec<String>,
}

/// A sandbox, as it is now.
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
    /// Its directory, from which paths of files are.
    workspace: String,
    /// Where its commands begin.
    cwd: String,
    labels: BTreeMap<String, String>,
    /// Whether a command has its shell, or waits for it.
    busy: bool,
    /// How many commands were run.
    commands: u64,
    /// Hosts that it reaches.
    hosts: Vec<String>,
    /// Limits, by name: milliseconds, bytes or pieces.
    #[schema(value_type = BTreeMap<String, u64>)]
    limits: BTreeMap<&'static str, u64>,
}

impl SandboxBody {
    fn of(sandbox: &ServiceSandbox) -> Self {
        let grants = &sandbox.opened.policy().grants;
        Self {
            id: sandbox.id.clone(),
            user_id: sandbox.user().clone(),
            created_ms: sandbox.created_ms,
            expires_ms: sandbox.expires_ms(),
            ask: sandbox.wanted.asks,
            workspace: sandbox.workspace.to_string(),
            cwd: sandbox.opened.cwd().to_string(),
            labels: sandbox.wanted.labels.clone(),
            busy: sandbox.is_busy(),
            commands: sandbox.opened.standings().commands,
            hosts: grants.network.allow.iter().map(|listed| listed.rule.to_string()).collect(),
            limits: Limit::ALL
                .iter()
                .filter_map(|limit| Some((limit.word(), grants.limits.of(*limit)?)))
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

/// Make a sandbox
///
/// It has a directory of its own and a shell in it that lives on, under the tenant's policy and
/// never more than that. It ends with its time, and everything in it with it.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "makeSandbox", request_body = CreateSandboxBody,
    responses((status = 201, description = "It stands", body = SandboxBody), BodyErrors, UnavailableError, AuthErrors))]
pub(super) async fn create(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    JsonBody(new): JsonBody<CreateSandboxBody>,
) -> ApiResult<Response> {
    caller.has(TokenScope::Sandboxes)?;
    let named = new.user_id.as_deref().map(SkillName::try_from).transpose()?;
    let nobody = || {
        ApiError::wrong("user", "this token is for no user in particular, so the body names one")
            .hint("`{\"userId\": \"alice\"}`")
    };
    let user = named.or_else(|| caller.user.clone()).ok_or_else(nobody)?;
    caller.may(TokenScope::Sandboxes, &user)?;
    let ttl = ttl(new.ttl_seconds.unwrap_or(USUAL))?;
    let needs =
        SkillNeeds { hosts: hosts(new.network)?, writes: None, limits: limits(new.limits)? };
    let (env, labels, cwd) = (variables(new.env)?, labelled(new.labels)?, begins_in(new.cwd)?);
    let wanted = SandboxRequest { user, ttl, asks: new.ask, needs, env, cwd, labels };
    let [own, all] = house.executions.making(&wanted.user);
    let making = [own.acquire_owned().await, all.acquire_owned().await];
    apart(move || {
        let _making = making;
        let sandbox = make(&house, wanted)?;
        let place = [(header::LOCATION, format!("/v1/sandboxes/{}", sandbox.id))];
        Ok((StatusCode::CREATED, place, Json(SandboxBody::of(&sandbox))).into_response())
    })
    .await
}

fn ttl(seconds: u64) -> ApiResult<Duration> {
    if (1..=LONGEST).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(ApiError::wrong("ttl", format!("`ttlSeconds` is 1 to {LONGEST}"))
        .hint("PATCH extends it as often as one likes"))
}

/// Variables that a sandbox can have.
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
        return Err(ApiError::wrong("env", format!("`{name}` cannot be set"))
            .hint("a name has letters, digits and `_`, a value no NUL"));
    }
    if env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MOST {
        return Err(ApiError::wrong("env", format!("`env` has at most {MOST} bytes")));
    }
    Ok(env)
}

fn labelled(labels: BTreeMap<String, String>) -> ApiResult<BTreeMap<String, String>> {
    let is_name = |name: &str| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte))
    };
    let is_fine = labels.len() <= 16
        && labels.iter().all(|(name, value)| is_name(name) && value.chars().count() <= 256);
    let wrong = || {
        ApiError::wrong(
            "labels",
            "up to 16 labels have names of 1 to 64 of A-Z a-z 0-9 . _ - / and values of up to 256 characters",
        )
    };
    is_fine.then_some(labels).ok_or_else(wrong)
}

/// A directory below that of the sandbox.
fn begins_in(cwd: String) -> ApiResult<PathBuf> {
    let path = PathBuf::from(cwd);
    let is_name = |part: Component<'_>| {
        matches!(part, Component::Normal(name) if name.len() <= 255) || part == Component::CurDir
    };
    let is_fine = path.components().all(is_name)
        && path.as_os_str().len() <= 1024
        && !path.to_string_lossy().contains('\0');
    let wrong = || {
        ApiError::wrong("cwd", "`cwd` is no path within the sandbox's directory")
            .hint("it is from that directory on: `project/src`")
    };
    is_fine.then_some(path).ok_or_else(wrong)
}

fn hosts(network: Option<SandboxNetworkBody>) -> ApiResult<Option<Vec<String>>> {
    let Some(SandboxNetworkBody { allow }) = network else { return Ok(None) };
    for host in &allow {
        HostRule::parse(host).map_err(|error| {
            ApiError::wrong("host", format!("`{host}` is no host: {error}"))
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
            ApiError::wrong("limit", format!("there is no limit `{name}`")).hint(names.join(", "))
        })?;
        let text = match amount {
            Value::String(text) => text,
            other => other.to_string(),
        };
        limit.amount(&text).ok_or_else(|| {
            ApiError::wrong("limit", format!("`{text}` is no amount for `{name}`"))
                .hint(limit.expected())
        })?;
        Ok((name, text))
    };
    limits.into_iter().map(read).collect::<ApiResult<Vec<_>>>().map(Some)
}

/// Which ones.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SandboxFilter {
    /// Only this tenant's.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    /// Only those that have this label: `KEY=VALUE`.
    label: Option<String>,
}

/// List sandboxes that stand
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "listSandboxes", params(SandboxFilter),
    responses((status = 200, description = "Newest first", body = SandboxListBody), ParameterErrors, AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    QueryParams(chosen): QueryParams<SandboxFilter>,
) -> ApiResult<Json<SandboxListBody>> {
    caller.has(TokenScope::Sandboxes)?;
    let user = chosen.user_id.as_deref().map(SkillName::try_from).transpose()?;
    apart(move || {
        let is_labelled = |sandbox: &ServiceSandbox| match chosen
            .label
            .as_deref()
            .map(|label| label.split_once('=').unwrap_or((label, "")))
        {
            Some((name, value)) => sandbox.wanted.labels.get(name).is_some_and(|own| own == value),
            None => true,
        };
        let is_meant = |sandbox: &&Arc<ServiceSandbox>| {
            caller.sees(sandbox.user())
                && user.as_ref().is_none_or(|user| user == sandbox.user())
                && is_labelled(sandbox)
        };
        Ok(Json(SandboxListBody {
            sandboxes: house
                .sandboxes
                .list()
                .iter()
                .filter(is_meant)
                .map(|sandbox| SandboxBody::of(sandbox))
                .collect(),
        }))
    })
    .await
}

fn find(house: &SharedState, caller: &ApiCaller, id: &str) -> ApiResult<Arc<ServiceSandbox>> {
    caller.has(TokenScope::Sandboxes)?;
    let unknown = || {
        ApiError::absent("no-such-sandbox", "there is no such sandbox")
            .hint("GET /v1/sandboxes lists them")
    };
    house.sandboxes.find(id).filter(|sandbox| caller.sees(sandbox.user())).ok_or_else(unknown)
}

/// How a sandbox is
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "getSandbox", params(IdPath),
    responses((status = 200, description = "As it is now", body = SandboxBody), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn show(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<SandboxBody>> {
    let sandbox = find(&house, &caller, &id)?;
    apart(move || Ok(Json(SandboxBody::of(&sandbox)))).await
}

/// How long it is to stand.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ExtendBody {
    /// From now on.
    #[schema(minimum = 1, maximum = 86400)]
    #[serde(deserialize_with = "crate::serde_int::integer")]
    ttl_seconds: u64,
}

/// Say how long a sandbox stands, from now on
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "extendSandbox", request_body = ExtendBody, params(IdPath),
    responses((status = 200, description = "As it is now", body = SandboxBody), BodyErrors, NotFoundError, AuthErrors))]
pub(super) async fn extend(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(extended): JsonBody<ExtendBody>,
) -> ApiResult<Json<SandboxBody>> {
    let sandbox = find(&house, &caller, &id)?;
    sandbox.extend(ttl(extended.ttl_seconds)?);
    apart(move || Ok(Json(SandboxBody::of(&sandbox)))).await
}

/// End a sandbox, and everything in it
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "removeSandbox", params(IdPath),
    responses((status = 204, description = "It has ended, and its directory is gone"), ParameterErrors, NotFoundError, AuthErrors))]
pub(super) async fn remove(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    let sandbox = find(&house, &caller, &id)?;
    sandbox.end();
    sandbox.ended().await;
    Ok(StatusCode::NO_CONTENT)
}
