//! Sandboxes: made, listed, kept and ended.

pub(super) mod commands;
pub(super) mod files;
pub(super) mod grants;
pub(super) mod terminal;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_policy::{HostRule, Limit};
use ringfence_skills::{Name, Needs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::schema::answers::{Absent, NoBody, NotMeant, Refused, Unable};
use super::skills::apart;
use super::words::{Asked, Body, Named, OfId, perhaps};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::sandboxes::{LONGEST, Sandbox, USUAL, Wanted, make};
use crate::tenants::{Caller, Scope};

/// What a new sandbox is to be like.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewSandbox)]
pub(super) struct New {
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
    network: Option<Network>,
}

/// Which hosts are to be reached.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Network {
    /// `api.example.org`, `*.example.org:443`; none of them opens what the policy does not.
    allow: Vec<String>,
}

/// A sandbox, as it is now.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Sandbox)]
pub(super) struct Standing {
    id: String,
    #[schema(value_type = String)]
    user_id: Name,
    created_ms: u64,
    expires_ms: u64,
    ask: bool,
    /// Where its commands begin, and files are put.
    workspace: String,
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

impl Standing {
    fn of(sandbox: &Sandbox) -> Self {
        let grants = &sandbox.opened.policy().grants;
        Self {
            id: sandbox.id.clone(),
            user_id: sandbox.user().clone(),
            created_ms: sandbox.created_ms,
            expires_ms: sandbox.expires_ms(),
            ask: sandbox.wanted.asks,
            workspace: sandbox.workspace.to_string(),
            busy: sandbox.is_busy(),
            commands: sandbox.opened.standings().commands,
            hosts: grants.network.allow.iter().map(|listed| listed.rule.to_string()).collect(),
            limits: Limit::ALL.iter().filter_map(|limit| Some((limit.word(), grants.limits.of(*limit)?))).collect(),
        }
    }
}

/// Sandboxes.
#[derive(Serialize, ToSchema)]
#[schema(as = Sandboxes)]
pub(super) struct Several {
    sandboxes: Vec<Standing>,
}

/// Make a sandbox
///
/// It has a directory of its own and a shell in it that lives on, under the tenant's policy and
/// never more than that. It ends with its time, and everything in it with it.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "makeSandbox", request_body = New,
    responses((status = 201, description = "It stands", body = Standing), NoBody, Unable, Refused))]
pub(super) async fn create(State(house): State<Shared>, Extension(caller): Extension<Caller>, Body(new): Body<New>) -> Answer<Response> {
    caller.has(Scope::Sandboxes)?;
    let named = new.user_id.as_deref().map(Name::try_from).transpose()?;
    let nobody =
        || Fault::wrong("user", "this token is for no user in particular, so the body names one").hint("`{\"userId\": \"alice\"}`");
    let user = named.or_else(|| caller.user.clone()).ok_or_else(nobody)?;
    caller.may(Scope::Sandboxes, &user)?;
    let ttl = ttl(new.ttl_seconds.unwrap_or(USUAL))?;
    let needs = Needs { hosts: hosts(new.network)?, writes: None, limits: limits(new.limits)? };
    let wanted = Wanted { user, ttl, asks: new.ask, needs };
    let making = house.executions.making.clone().acquire_owned().await;
    apart(move || {
        let _making = making;
        let sandbox = make(&house, wanted)?;
        let place = [(header::LOCATION, format!("/v1/sandboxes/{}", sandbox.id))];
        Ok((StatusCode::CREATED, place, Json(Standing::of(&sandbox))).into_response())
    })
    .await
}

fn ttl(seconds: u64) -> Answer<Duration> {
    if (1..=LONGEST).contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    Err(Fault::wrong("ttl", format!("`ttlSeconds` is 1 to {LONGEST}")).hint("PATCH extends it as often as one likes"))
}

fn hosts(network: Option<Network>) -> Answer<Option<Vec<String>>> {
    let Some(Network { allow }) = network else { return Ok(None) };
    for host in &allow {
        HostRule::parse(host)
            .map_err(|error| Fault::wrong("host", format!("`{host}` is no host: {error}")).hint("write HOST or HOST:PORT"))?;
    }
    Ok(Some(allow))
}

fn limits(limits: Option<BTreeMap<String, Value>>) -> Answer<Option<Vec<(String, String)>>> {
    let Some(limits) = limits else { return Ok(None) };
    let read = |(name, amount): (String, Value)| {
        let limit = Limit::ALL.iter().find(|limit| limit.word() == name);
        let limit = limit.ok_or_else(|| {
            let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.word()).collect();
            Fault::wrong("limit", format!("there is no limit `{name}`")).hint(names.join(", "))
        })?;
        let text = match amount {
            Value::String(text) => text,
            other => other.to_string(),
        };
        limit.amount(&text).ok_or_else(|| Fault::wrong("limit", format!("`{text}` is no amount for `{name}`")).hint(limit.expected()))?;
        Ok((name, text))
    };
    limits.into_iter().map(read).collect::<Answer<Vec<_>>>().map(Some)
}

/// Which ones.
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Chosen {
    /// Only this tenant's.
    #[param(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
}

/// List sandboxes that stand
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "listSandboxes", params(Chosen),
    responses((status = 200, description = "Newest first", body = Several), NotMeant, Refused))]
pub(super) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Asked(chosen): Asked<Chosen>,
) -> Answer<Json<Several>> {
    caller.has(Scope::Sandboxes)?;
    let user = chosen.user_id.as_deref().map(Name::try_from).transpose()?;
    apart(move || {
        let is_meant = |sandbox: &&Arc<Sandbox>| caller.sees(sandbox.user()) && user.as_ref().is_none_or(|user| user == sandbox.user());
        Ok(Json(Several { sandboxes: house.sandboxes.list().iter().filter(is_meant).map(|sandbox| Standing::of(sandbox)).collect() }))
    })
    .await
}

fn find(house: &Shared, caller: &Caller, id: &str) -> Answer<Arc<Sandbox>> {
    caller.has(Scope::Sandboxes)?;
    let unknown = || Fault::absent("no-such-sandbox", "there is no such sandbox").hint("GET /v1/sandboxes lists them");
    house.sandboxes.find(id).filter(|sandbox| caller.sees(sandbox.user())).ok_or_else(unknown)
}

/// How a sandbox is
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "getSandbox", params(OfId),
    responses((status = 200, description = "As it is now", body = Standing), NotMeant, Absent, Refused))]
pub(super) async fn show(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
) -> Answer<Json<Standing>> {
    let sandbox = find(&house, &caller, &id)?;
    apart(move || Ok(Json(Standing::of(&sandbox)))).await
}

/// How long it is to stand.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Extended {
    /// From now on.
    #[schema(minimum = 1, maximum = 86400)]
    #[serde(deserialize_with = "crate::numbers::integer")]
    ttl_seconds: u64,
}

/// Say how long a sandbox stands, from now on
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "extendSandbox", request_body = Extended, params(OfId),
    responses((status = 200, description = "As it is now", body = Standing), NoBody, Absent, Refused))]
pub(super) async fn extend(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Body(extended): Body<Extended>,
) -> Answer<Json<Standing>> {
    let sandbox = find(&house, &caller, &id)?;
    sandbox.extend(ttl(extended.ttl_seconds)?);
    apart(move || Ok(Json(Standing::of(&sandbox)))).await
}

/// End a sandbox, and everything in it
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "removeSandbox", params(OfId),
    responses((status = 204, description = "It has ended, and its directory is gone"), NotMeant, Absent, Refused))]
pub(super) async fn remove(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
) -> Answer<StatusCode> {
    let sandbox = find(&house, &caller, &id)?;
    sandbox.end();
    sandbox.ended().await;
    Ok(StatusCode::NO_CONTENT)
}
