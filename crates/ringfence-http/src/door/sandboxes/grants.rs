//! Opening something to a sandbox that stands.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use ringfence_api::{Answer as Said, Ask, Asker, Denial};
use ringfence_audit::now_ms;
use ringfence_engine::Opening;
use ringfence_engine::session::{InForce, Requested};
use ringfence_policy::{AbsPath, Access, HostRule, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::super::schema;
use super::super::schema::answers::{Absent, Gone, NoBody, NotMeant, Refused};
use super::super::skills::apart;
use super::super::words::{Body, Named, OfId};
use super::find;
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::house::is_ours;
use crate::sandboxes::{Granted, Sandbox};
use crate::tenants::{Caller, Scope};

/// What is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::door) enum Wish {
    Read,
    Write,
    Connect,
}

impl Wish {
    fn word(self) -> &'static str {
        match self {
            Wish::Read => "read",
            Wish::Write => "write",
            Wish::Connect => "connect",
        }
    }
}

/// What is to be open.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewGrant)]
pub(in crate::door) struct Wanted {
    access: Wish,
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
pub(in crate::door) struct Told {
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
pub(in crate::door) struct All {
    grants: Vec<Granted>,
}

/// Somebody who has said it beforehand.
struct Beforehand(Said);

impl fmt::Debug for Beforehand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Beforehand({})", self.0)
    }
}

impl Asker for Beforehand {
    fn ask(&self, _: &Ask) -> Said {
        self.0
    }
}

/// Open something to a sandbox that stands
///
/// It needs the scope `asks` as well. A tenant's own token opens nothing that the tenant's policy does
/// not; one that is for all tenants opens what a person could, and nothing of the service's own data.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "grantToSandbox", request_body = Wanted, params(OfId),
    responses((status = 200, description = "What came of it", body = Told), NoBody, Absent, Gone, Refused))]
pub(in crate::door) async fn grant(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Body(wanted): Body<Wanted>,
) -> Answer<Json<Told>> {
    let sandbox = find(&house, &caller, &id)?;
    caller.may(Scope::Asks, sandbox.user())?;
    if !matches!(wanted.answer, Said::AllowSession | Said::AllowPermanent) {
        return Err(Fault::wrong("answer", "a grant is `allow_session` or `allow_permanent`"));
    }
    let opening = opening(&sandbox, &wanted)?;
    apart(move || {
        must_be_within(&house, &caller, &sandbox, &opening)?;
        drop(sandbox.standing()?);
        let requested = sandbox.opened.request(
            &opening,
            "the service",
            Some(Arc::new(Beforehand(wanted.answer))),
        );
        let told = understood(&opening, requested);
        if told.status != "denied" {
            let granted = Granted {
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
#[utoipa::path(get, path = "/v1/sandboxes/{id}/grants", tag = "sandboxes", operation_id = "listGrants", params(OfId),
    responses((status = 200, description = "In the order in which it was", body = All), NotMeant, Absent, Refused))]
pub(in crate::door) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
) -> Answer<Json<All>> {
    Ok(Json(All { grants: find(&house, &caller, &id)?.granted() }))
}

fn opening(sandbox: &Sandbox, wanted: &Wanted) -> Answer<Opening> {
    let resource = &wanted.resource;
    let access = match wanted.access {
        Wish::Read => Access::Read,
        Wish::Write => Access::Write,
        Wish::Connect => {
            let hint = "write HOST:PORT";
            let rule = HostRule::parse(resource).map_err(|error| {
                Fault::wrong("host", format!("`{resource}` is no host: {error}")).hint(hint)
            })?;
            if rule.port.is_none() {
                return Err(Fault::wrong("host", format!("`{rule}` names no port"))
                    .hint(format!("write {rule}:443")));
            }
            return Ok(Opening::Host(rule));
        }
    };
    if resource.is_empty() || resource.len() > 4096 || resource.contains('\0') {
        return Err(Fault::wrong("path", "`resource` names no path"));
    }
    let path = AbsPath::new(sandbox.workspace.as_path().join(Path::new(resource)));
    path.map(|path| Opening::Path(path, access))
        .ok_or_else(|| Fault::wrong("path", "`resource` names no path"))
}

/// The place that a path leads to through links, as far as it exists. Commands of the sandbox can change
/// it meanwhile; what is opened is decided when it is mounted.
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
    house: &Shared,
    caller: &Caller,
    sandbox: &Sandbox,
    opening: &Opening,
) -> Answer<()> {
    let beyond = |why: &str| {
        Err(Fault::new(StatusCode::FORBIDDEN, "ceiling", why)
            .hint("whoever runs the service can change the tenant's policy"))
    };
    if let Opening::Path(path, _) = opening
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
        Opening::Path(path, access) => ceiling.decide(path, *access).verdict == Verdict::Allowed,
        Opening::Host(rule) => ceiling.network.about(rule).is_some_and(|passage| passage.is_open()),
    };
    if is_open { Ok(()) } else { beyond("the tenant's policy does not open it") }
}

fn understood(opening: &Opening, requested: Requested) -> Told {
    let resource = match opening {
        Opening::Path(path, _) => path.to_string_lossy().into_owned(),
        Opening::Host(rule) => rule.to_string(),
    };
    let (status, message, denial) = match requested {
        Requested::Open(origin) => {
            ("granted", format!("it is open already, by {} ({origin})", origin.text), None)
        }
        Requested::Shut(denial) => (
            "denied",
            format!("nobody can open it: {} ({})", denial.rule, denial.origin),
            Some(denial),
        ),
        Requested::Unasked(permission) => ("denied", permission.reason, None),
        Requested::Said(_, InForce::Now) => ("granted", "it is open".to_owned(), None),
        Requested::Said(_, InForce::Anew) => {
            let lost = "the sandbox was made anew for it: the shell's directory, variables and jobs are gone";
            ("granted", format!("it is open; {lost}"), None)
        }
        Requested::Said(_, InForce::Later(why)) => (
            "pending",
            format!("it is allowed, but not open yet ({why}): ask again when no command runs"),
            None,
        ),
        Requested::Said(_, InForce::Never) => ("denied", "it stays shut".to_owned(), None),
    };
    Told { status, resource, message, denial }
}
