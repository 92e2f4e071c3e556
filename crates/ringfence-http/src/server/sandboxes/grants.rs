//! Grants to a live sandbox.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use ringfence_api::{Ask, AskAnswer, Asker, Denial};
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
use super::super::skills::run_blocking;
use super::find;
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::sandboxes::{SandboxGrantRecord, ServiceSandbox};
use crate::state::is_service_data;
use crate::tenants::{ApiCaller, TokenScope};

/// The kind of access.
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

/// The access to allow.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewGrant)]
pub(in crate::server) struct GrantBody {
    access: GrantAccessParam,
    /// A path, or HOST:PORT.
    #[schema(min_length = 1, max_length = 4096)]
    resource: String,
    /// `allow_session` (for the sandbox's lifetime) or `allow_permanent` (in the tenant's policy).
    #[serde(default = "default_answer")]
    #[schema(value_type = schema::AskAnswer, default = "allow_session")]
    answer: AskAnswer,
}

fn default_answer() -> AskAnswer {
    AskAnswer::AllowSession
}

/// The result of a grant.
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

/// The grants of a sandbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Grants)]
pub(in crate::server) struct GrantListBody {
    grants: Vec<SandboxGrantRecord>,
}

/// An asker with a fixed answer.
struct PresetAsker(AskAnswer);

impl fmt::Debug for PresetAsker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Beforehand({})", self.0)
    }
}

impl Asker for PresetAsker {
    fn ask(&self, _: &Ask) -> AskAnswer {
        self.0
    }
}

/// Grant access to a live sandbox
///
/// This also needs the scope `asks`. A tenant's own token cannot grant more than the tenant's
/// policy; a token for all tenants can grant what the user could, except access to the service's
/// own data.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "grantToSandbox", request_body = GrantBody, params(IdPath),
    responses((status = 200, description = "The result", body = GrantResultBody), BodyErrors, NotFoundError, GoneError, AuthErrors))]
pub(in crate::server) async fn grant(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(wanted): JsonBody<GrantBody>,
) -> ApiResult<Json<GrantResultBody>> {
    let sandbox = find(&app, &caller, &id)?;
    caller.require_access(TokenScope::Asks, sandbox.user())?;
    if !matches!(wanted.answer, AskAnswer::AllowSession | AskAnswer::AllowPermanent) {
        return Err(ApiError::bad_request(
            "answer",
            "`answer` must be `allow_session` or `allow_permanent`",
        ));
    }
    let target = grant_target(&sandbox, &wanted)?;
    run_blocking(move || {
        check_ceiling(&app, &caller, &sandbox, &target)?;
        drop(sandbox.require_live()?);
        let requested = sandbox.session.request_grant(
            &target,
            "the service",
            Some(Arc::new(PresetAsker(wanted.answer))),
        );
        let reply = describe_result(&target, requested);
        if reply.status != "denied" {
            let granted = SandboxGrantRecord {
                access: wanted.access.word(),
                resource: reply.resource.clone(),
                answer: wanted.answer,
                time_ms: now_ms(),
                by: caller.id.clone(),
            };
            sandbox.record_grant(granted);
        }
        Ok(Json(reply))
    })
    .await
}

/// List the grants made to a live sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "listGrants", params(IdPath),
    responses((status = 200, description = "Oldest first", body = GrantListBody), ParameterErrors, NotFoundError, AuthErrors))]
pub(in crate::server) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<Json<GrantListBody>> {
    Ok(Json(GrantListBody { grants: find(&app, &caller, &id)?.granted() }))
}

fn grant_target(sandbox: &ServiceSandbox, wanted: &GrantBody) -> ApiResult<GrantTarget> {
    let resource = &wanted.resource;
    let access = match wanted.access {
        GrantAccessParam::Read => Access::Read,
        GrantAccessParam::Write => Access::Write,
        GrantAccessParam::Connect => {
            let hint = "write HOST:PORT";
            let rule = HostRule::parse(resource).map_err(|error| {
                ApiError::bad_request("host", format!("`{resource}` is not a host: {error}"))
                    .hint(hint)
            })?;
            if rule.port.is_none() {
                return Err(ApiError::bad_request("host", format!("`{rule}` has no port"))
                    .hint(format!("write {rule}:443")));
            }
            return Ok(GrantTarget::Host(rule));
        }
    };
    if resource.is_empty() || resource.len() > 4096 || resource.contains('\0') {
        return Err(ApiError::bad_request("path", "`resource` is not a path"));
    }
    let path = AbsPath::new(sandbox.workspace.as_path().join(Path::new(resource)));
    path.map(|path| GrantTarget::Path(path, access))
        .ok_or_else(|| ApiError::bad_request("path", "`resource` is not a path"))
}

/// Resolves symbolic links in the existing part of a path. Commands of the sandbox can change them
/// meanwhile; the mount decides in the end.
fn resolve_links(path: &AbsPath) -> AbsPath {
    let whole = path.as_path();
    for above in whole.ancestors() {
        if let Ok(real) = std::fs::canonicalize(above) {
            let rest = whole.strip_prefix(above).unwrap_or(Path::new(""));
            return AbsPath::new(real.join(rest)).unwrap_or_else(|| path.clone());
        }
    }
    path.clone()
}

/// Fails unless the caller may grant this: a tenant only what its policy allows, no caller the
/// service's own data.
fn check_ceiling(
    app: &SharedState,
    caller: &ApiCaller,
    sandbox: &ServiceSandbox,
    target: &GrantTarget,
) -> ApiResult<()> {
    let forbidden = |why: &str| {
        Err(ApiError::new(StatusCode::FORBIDDEN, "ceiling", why)
            .hint("ask the operator of the service to change the tenant's policy"))
    };
    if let GrantTarget::Path(path, _) = target
        && (is_service_data(path, &app.data, &sandbox.workspace)
            || is_service_data(&resolve_links(path), &app.data, &sandbox.workspace))
    {
        return forbidden("the path belongs to the service's own data");
    }
    if caller.user.is_none() {
        return Ok(());
    }
    let ceiling = app.sandbox_policy(sandbox.user(), &sandbox.workspace)?.grants;
    let is_open = match target {
        GrantTarget::Path(path, access) => {
            ceiling.decide(path, *access).verdict == Verdict::Allowed
        }
        GrantTarget::Host(rule) => {
            ceiling.network.decide_rule(rule).is_some_and(|decision| decision.is_open())
        }
    };
    if is_open { Ok(()) } else { forbidden("the tenant's policy does not allow it") }
}

fn describe_result(target: &GrantTarget, requested: GrantResult) -> GrantResultBody {
    let resource = match target {
        GrantTarget::Path(path, _) => path.to_string_lossy().into_owned(),
        GrantTarget::Host(rule) => rule.to_string(),
    };
    let (status, message, denial) = match requested {
        GrantResult::Open(origin) => {
            ("granted", format!("already allowed by {} ({origin})", origin.text), None)
        }
        GrantResult::Shut(denial) => (
            "denied",
            format!("no grant can allow it: {} ({})", denial.rule, denial.origin),
            Some(denial),
        ),
        GrantResult::Unasked(permission) => ("denied", permission.reason, None),
        GrantResult::Said(_, GrantEffect::Now) => ("granted", "allowed".to_owned(), None),
        GrantResult::Said(_, GrantEffect::Anew) => {
            let lost = "the sandbox was restarted for it: the shell's directory, environment variables and jobs are lost";
            ("granted", format!("allowed; {lost}"), None)
        }
        GrantResult::Said(_, GrantEffect::Later(why)) => (
            "pending",
            format!("allowed, but not yet in effect ({why}): ask again when no command runs"),
            None,
        ),
        GrantResult::Said(_, GrantEffect::Never) => ("denied", "not allowed".to_owned(), None),
    };
    GrantResultBody { status, resource, message, denial }
}
