//! Opening something to a sandbox that stands.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use ringfence_api::{Ask, AskAnswer as Said, Asker, Denial};
use ringfence_audit::now_ms;
use ringfence_engine::GrantTarget;
use ringfence_engine::session::{GrantEffect, GrantResult};
use ringfence_policy::{AbsPath, Access, HostRule, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::extract::{IdPath, JsonBody, PathParams};
use super::super::schema;
use super::super::schema::errors::{
    AuthErrors, BodyErrors, GoneError, NotFoundError, ParameterErrors,
};
use super::super::skills::apart;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{SandboxGrantRecord, ServiceSandbox};
use crate::state::is_ours;
use crate::tenants::{ApiCaller, TokenScope};

/// What is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::server) enum GrantAccessParam {
    Read,
    Write,
    Connect,
}

impl GrantAccessParam {
    fn word(self) -> &'static str {
        match self {
            GrantAccessParam::Read => "read",
            GrantAccessParam::Write => "write",
            GrantAccessParam::Connect => "connect",
        }
    }
}

/// What is to be open.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewGrant)]
pub(in crate::server) struct GrantBody {
    access: GrantAccessParam,
    /// A path, or HOST:PORT.
    #[schema(min_length = 1, max_length = 4096)]
    resource: String,
    /// `allow_session` (as long as it stands) or `allow_permanent` (in the tenant's policy).
    #[serde(default = "for_the_session")]
    #[schema(value_type = schema::Answer, default = "allow_session")]
    answer: Said,
}

fn for_the_session() -> Said {
    Said::AllowSession
}

/// What came of it.
#[derive(Serialize, ToSchema)]
#[schema(as = GrantAnswer)]
pub(in crate::server) struct GrantResultBody {
    /// `granted`, `pending` or `denied`.
    status: &'static str,
    resource: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Denial>)]
    denial: Option<Denial>,
}

/// All that was opened.
#[derive(Serialize, ToSchema)]
#[schema(as = Grants)]
pub(in crate::server) struct GrantListBody {
    grants: Vec<SandboxGrantRecord>,
}

/// Somebody who has said it beforehand.
struct PresetAsker(Said);

impl fmt::Debug for PresetAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Beforehand({})", self.0)
    }
}

impl Asker for PresetAsker {
    fn ask(&self, _: &Ask) -> Said {
        self.0
    }
}

/// Open something to a sandbox that stands
///
/// It needs the scope `asks` as well. A tenant's own token opens nothing that the tenant's policy
/// does not; one that is for all tenants opens what a person could, and nothing of the service's
/// own data.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "grantToSandbox", request_body = GrantBody, params(IdPath),
    responses((status = 200, description = "What came of it", body = GrantResultBody), BodyErrors, NotFoundError, GoneError, AuthErrors))]
pub(in crate::server) async fn grant(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(wanted): JsonBody<GrantBody>,
) -> ApiResult<Json<GrantResultBody>> {
    let sandbox = find(&house, &caller, &id)?;
    caller.may(TokenScope::Asks, sandbox.user())?;
    if !matches!(wanted.answer, Said::AllowSession | Said::AllowPermanent) {
        return Err(ApiError::wrong("answer", "a grant is `allow_session` or `allow_permanent`"));
    }
    let opening = opening(&sandbox, &wanted)?;
    apart(move || {
        must_be_within(&house, &caller, &sandbox, &opening)?;
        drop(sandbox.standing()?);
        let requested = sandbox.opened.request(
            &opening,
            "the service",
            Some(Arc::new(PresetAsker(wanted.answer))),
        );
        let told = understood(&opening, requested);
        if told.status != "denied" {
            let granted = SandboxGrantRecord {
                access: wanted.access.word(),
                resource: told.resource.clone(),
                answer: wanted.answer,
                time_ms: now_ms(),
                by: caller.id.clone(),
            };
            sandbox.grants(granted);
        }
        Ok(Json(told))
    })
    .await
}

/// What was opened to a sandbox while it stands
#[utoipa::path(get, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "listGrants", params(IdPath),
    responses((status = 200, description = "In the order in which it was", body = GrantListBody), ParameterErrors, NotFoundError, AuthErrors))]
pub(in crate::server) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<GrantListBody>> {
    Ok(Json(GrantListBody { grants: find(&house, &caller, &id)?.granted() }))
}

fn opening(sandbox: &ServiceSandbox, wanted: &GrantBody) -> ApiResult<GrantTarget> {
    let resource = &wanted.resource;
    let access = match wanted.access {
        GrantAccessParam::Read => Access::Read,
        GrantAccessParam::Write => Access::Write,
        GrantAccessParam::Connect => {
            let hint = "write HOST:PORT";
            let rule = HostRule::parse(resource).map_err(|error| {
                ApiError::wrong("host", format!("`{resource}` is no host: {error}")).hint(hint)
            })?;
            if rule.port.is_none() {
                return Err(ApiError::wrong("host", format!("`{rule}` names no port"))
                    .hint(format!("write {rule}:443")));
            }
            return Ok(GrantTarget::Host(rule));
        }
    };
    if resource.is_empty() || resource.len() > 4096 || resource.contains('\0') {
        return Err(ApiError::wrong("path", "`resource` names no path"));
    }
    let path = AbsPath::new(sandbox.workspace.as_path().join(Path::new(resource)));
    path.map(|path| GrantTarget::Path(path, access))
        .ok_or_else(|| ApiError::wrong("path", "`resource` names no path"))
}

/// The place that a path leads to through links, as far as it exists. Commands of the sandbox can
/// change it meanwhile; what is opened is decided when it is mounted.
fn led(path: &AbsPath) -> AbsPath {
    let whole = path.as_path();
    for above in whole.ancestors() {
        if let Ok(real) = std::fs::canonicalize(above) {
            let rest = whole.strip_prefix(above).unwrap_or(Path::new(""));
            return AbsPath::new(real.join(rest)).unwrap_or_else(|| path.clone());
        }
    }
    path.clone()
}

/// Whether a caller may open this: a tenant what its policy opens, nobody what is the service's.
fn must_be_within(
    house: &SharedState,
    caller: &ApiCaller,
    sandbox: &ServiceSandbox,
    opening: &GrantTarget,
) -> ApiResult<()> {
    let beyond = |why: &str| {
        Err(ApiError::new(StatusCode::FORBIDDEN, "ceiling", why)
            .hint("whoever runs the service can change the tenant's policy"))
    };
    if let GrantTarget::Path(path, _) = opening
        && (is_ours(path, &house.data, &sandbox.workspace)
            || is_ours(&led(path), &house.data, &sandbox.workspace))
    {
        return beyond("that is the service's own");
    }
    if caller.user.is_none() {
        return Ok(());
    }
    let ceiling = house.sandbox_policy(sandbox.user(), &sandbox.workspace)?.grants;
    let is_open = match opening {
        GrantTarget::Path(path, access) => {
            ceiling.decide(path, *access).verdict == Verdict::Allowed
        }
        GrantTarget::Host(rule) => {
            ceiling.network.about(rule).is_some_and(|passage| passage.is_open())
        }
    };
    if is_open { Ok(()) } else { beyond("the tenant's policy does not open it") }
}

fn understood(opening: &GrantTarget, requested: GrantResult) -> GrantResultBody {
    let resource = match opening {
        GrantTarget::Path(path, _) => path.to_string_lossy().into_owned(),
        GrantTarget::Host(rule) => rule.to_string(),
    };
    let (status, message, denial) = match requested {
        GrantResult::Open(origin) => {
            ("granted", format!("it is open already, by {} ({origin})", origin.text), None)
        }
        GrantResult::Shut(denial) => (
            "denied",
            format!("nobody can open it: {} ({})", denial.rule, denial.origin),
            Some(denial),
        ),
        GrantResult::Unasked(permission) => ("denied", permission.reason, None),
        GrantResult::Said(_, GrantEffect::Now) => ("granted", "it is open".to_owned(), None),
        GrantResult::Said(_, GrantEffect::Anew) => {
            let lost = "the sandbox was made anew for it: the shell's directory, variables and jobs are gone";
            ("granted", format!("it is open; {lost}"), None)
        }
        GrantResult::Said(_, GrantEffect::Later(why)) => (
            "pending",
            format!("it is allowed, but not open yet ({why}): ask again when no command runs"),
            None,
        ),
        GrantResult::Said(_, GrantEffect::Never) => ("denied", "it stays shut".to_owned(), None),
    };
    GrantResultBody { status, resource, message, denial }
}
