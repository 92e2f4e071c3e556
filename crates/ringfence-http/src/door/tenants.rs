//! Tenants, their tokens, policies and quotas.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_audit::{Act, now_ms};
use ringfence_policy::{Flags, Source, parse};
use ringfence_skills::Name;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema::answers::{Absent, Conflict, NoBody, NotMeant, Refused};
use super::skills::{apart, note};
use super::words::{Body, Named, OfId, OfUser, perhaps};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::house::put;
use crate::tenants::{ADMIN, Caller, Kept, Made, Quotas, Scope};

/// Whose token it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Me {
    token: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<Name>,
    scopes: Vec<Scope>,
    version: &'static str,
}

/// What this token is for
#[utoipa::path(get, path = "/v1/me", tag = "service", operation_id = "whoAmI",
    responses((status = 200, description = "Whose it is", body = Me), Refused))]
pub(super) async fn me(Extension(caller): Extension<Caller>) -> Json<Me> {
    let scopes = caller.scopes().to_vec();
    Json(Me { token: caller.id, user_id: caller.user, scopes, version: env!("CARGO_PKG_VERSION") })
}

/// A tenant.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tenant {
    #[schema(value_type = String)]
    user_id: Name,
    quotas: Quotas,
    /// What all its skills have.
    bytes: u64,
    skills: u64,
    #[schema(value_type = Vec<String>)]
    agents: Vec<Name>,
    /// Commands that wait or run.
    running: usize,
}

/// Tenants.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenants)]
pub(super) struct Several {
    tenants: Vec<Tenant>,
}

fn tenant(house: &Shared, user: &Name) -> Answer<Tenant> {
    let usage = house.store.usage(user).map_err(|error| Fault::ours(&error))?;
    let agents = house.store.agents(user).map_err(|error| Fault::ours(&error))?;
    let running = house.executions.running_of(user);
    Ok(Tenant {
        user_id: user.clone(),
        quotas: house.tenants.quotas(user),
        bytes: usage.bytes,
        skills: usage.skills,
        agents,
        running,
    })
}

/// List tenants
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", operation_id = "listTenants",
    responses((status = 200, description = "Those that this token may see", body = Several), Refused))]
pub(super) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Answer<Json<Several>> {
    caller.has(Scope::ReadSkills)?;
    apart(move || {
        let users = match &caller.user {
            Some(user) => vec![user.clone()],
            None => house.store.users().map_err(|error| Fault::ours(&error))?,
        };
        let tenants: Answer<Vec<Tenant>> = users.iter().map(|user| tenant(&house, user)).collect();
        Ok(Json(Several { tenants: tenants? }))
    })
    .await
}

/// What a tenant has, and may use
#[utoipa::path(get, path = "/v1/tenants/{userId}", tag = "tenants", operation_id = "getTenant", params(OfUser),
    responses((status = 200, description = "How much it has, and may have", body = Tenant), NotMeant, Refused))]
pub(super) async fn show(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfUser>,
) -> Answer<Json<Tenant>> {
    caller.may(Scope::ReadSkills, &of.user_id)?;
    apart(move || tenant(&house, &of.user_id).map(Json)).await
}

/// Say how much a tenant may use
#[utoipa::path(put, path = "/v1/tenants/{userId}/quotas", tag = "tenants", operation_id = "setQuotas", request_body = Quotas, params(OfUser),
    responses((status = 200, description = "What holds now", body = Quotas), NoBody, Refused))]
pub(super) async fn set_quotas(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfUser>,
    Body(quotas): Body<Quotas>,
) -> Answer<Json<Quotas>> {
    caller.sets(&of.user_id)?;
    if !quotas.is_meant() {
        return Err(Fault::wrong(
            "quotas",
            "each is at most 1000000, but for `storageBytes`, and `requestsPerSecond` is 1 or more",
        ));
    }
    apart(move || {
        house.tenants.set_quotas(&of.user_id, quotas).map_err(|error| Fault::ours(&error))?;
        house.executions.resize(&of.user_id, quotas.executions as usize);
        note(&house, &of.user_id, Act::Manage, "quotas", None);
        Ok(Json(quotas))
    })
    .await
}

/// A policy, as its file has it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub(super) struct Text {
    /// TOML, as `ringfence policy schema` describes it.
    policy: String,
}

/// The policy of a tenant, which comes on top of the service's
#[utoipa::path(get, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "getPolicy", params(OfUser),
    responses((status = 200, description = "Its text; empty where there is none", body = Text), NotMeant, Refused))]
pub(super) async fn policy(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfUser>,
) -> Answer<Json<Text>> {
    caller.may(Scope::Admin, &of.user_id)?;
    let file = house.tenant(of.user_id.as_ref()).join("ringfence/policy.toml");
    apart(move || match std::fs::read_to_string(file.as_path()) {
        Ok(policy) => Ok(Json(Text { policy })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Json(Text { policy: String::new() }))
        }
        Err(error) => Err(Fault::ours(&error)),
    })
    .await
}

/// Set the policy of a tenant
///
/// It holds for every command that begins from now on. One that means nothing is refused, and
/// the one before stays. An empty one takes it away.
#[utoipa::path(put, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "setPolicy", request_body = Text, params(OfUser),
    responses((status = 200, description = "What holds now", body = Text), NoBody, Refused))]
pub(super) async fn set_policy(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(of): Named<OfUser>,
    Body(text): Body<Text>,
) -> Answer<Json<Text>> {
    caller.sets(&of.user_id)?;
    apart(move || {
        house.settle(&of.user_id).map_err(|error| Fault::ours(&error))?;
        let file = house.tenant(of.user_id.as_ref()).join("ringfence/policy.toml");
        if text.policy.is_empty() {
            match std::fs::remove_file(file.as_path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Fault::ours(&error));
                }
                _ => note(&house, &of.user_id, Act::Manage, "policy", None),
            }
            return Ok(Json(text));
        }
        let wrong = |error: ringfence_policy::PolicyError| {
            let fault = Fault::wrong("policy", ringfence_api::whole(&error));
            error.hint().map_or(fault.clone(), |hint| fault.hint(hint))
        };
        let layer = parse(&text.policy, &file, Source::User).map_err(wrong)?;
        let service = house.data.join("policy.toml");
        let beneath = ringfence_engine::layers_of(&service, &Source::User)
            .map_err(|error| Fault::ours(&error))?;
        let somewhere = house.data.join("skills");
        let facts = house.surroundings(of.user_id.as_ref(), &somewhere).facts;
        let layers: Vec<_> = beneath.into_iter().chain([layer]).collect();
        ringfence_policy::resolve(&layers, &Flags::none(somewhere), &facts).map_err(wrong)?;
        put(file.as_path(), text.policy.as_bytes()).map_err(|error| Fault::ours(&error))?;
        note(&house, &of.user_id, Act::Manage, "policy", None);
        Ok(Json(text))
    })
    .await
}

/// What a new token is to be for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewToken {
    /// The only tenant it is for; without one, it is for all.
    #[schema(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    #[schema(min_items = 1)]
    scopes: Vec<Scope>,
    /// Words for people.
    #[serde(default)]
    #[schema(max_length = 200)]
    label: String,
    /// After how many seconds it expires; never later than the token it is made with.
    #[serde(default, deserialize_with = "perhaps")]
    expires_in: Option<u64>,
}

/// A token, without its word.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Token {
    id: String,
    label: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<Name>,
    scopes: Vec<Scope>,
    created_ms: u64,
    expires_ms: Option<u64>,
    /// The word itself: told this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Token {
    fn of(kept: Kept, token: Option<String>) -> Self {
        let Kept { id, label, user, scopes, created_ms, expires_ms, .. } = kept;
        Self { id, label, user_id: user, scopes, created_ms, expires_ms, token }
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub(super) struct Tokens {
    tokens: Vec<Token>,
}

/// List tokens, without their words
#[utoipa::path(get, path = "/v1/tokens", tag = "tenants", operation_id = "listTokens",
    responses((status = 200, description = "All that this token may manage", body = Tokens), Refused))]
pub(super) async fn tokens(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Answer<Json<Tokens>> {
    caller.has(Scope::Admin)?;
    let is_theirs = |kept: &Kept| caller.user.is_none() || kept.user == caller.user;
    Ok(Json(Tokens {
        tokens: house
            .tenants
            .tokens()
            .into_iter()
            .filter(is_theirs)
            .map(|kept| Token::of(kept, None))
            .collect(),
    }))
}

/// Make a token
///
/// It may do no more than the token it is made with, expires no later, and is revoked with it.
#[utoipa::path(post, path = "/v1/tokens", tag = "tenants", operation_id = "makeToken", request_body = NewToken,
    responses((status = 201, description = "With its word, this once", body = Token), NoBody, Refused))]
pub(super) async fn make_token(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewToken>,
) -> Answer<Response> {
    caller.has(Scope::Admin)?;
    let user =
        new.user_id.as_deref().map(Name::try_from).transpose()?.or_else(|| caller.user.clone());
    if let Some(user) = &user {
        caller.may(Scope::Admin, user)?;
    }
    if new.scopes.is_empty() || new.label.chars().count() > 200 {
        return Err(Fault::wrong(
            "token",
            "a token has one scope or more, and a label of at most 200 characters",
        ));
    }
    for scope in &new.scopes {
        caller.has(*scope)?;
    }
    let wanted =
        new.expires_in.map(|seconds| now_ms().saturating_add(seconds.saturating_mul(1000)));
    // It ends with the token that makes it, or before.
    let expires_ms = [wanted, caller.expires_ms].into_iter().flatten().min();
    let minted_by = Some(caller.id).filter(|id| id != ADMIN);
    let whose = user.clone();
    let made = Made { label: new.label, user, scopes: new.scopes, expires_ms, minted_by };
    apart(move || {
        let (kept, word) = house.tenants.make(made).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                Fault::new(StatusCode::UNAUTHORIZED, "token", "this token was revoked a moment ago")
            }
            _ => Fault::ours(&error),
        })?;
        house.managed(whose.as_ref(), &format!("token {} was made", kept.id));
        Ok((StatusCode::CREATED, Json(Token::of(kept, Some(word)))).into_response())
    })
    .await
}

/// Revoke a token, and every token that was made with it
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tenants", operation_id = "revokeToken", params(OfId),
    responses((status = 204, description = "It is worth nothing from now on"), NotMeant, Absent, Conflict, Refused))]
pub(super) async fn revoke(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
) -> Answer<StatusCode> {
    caller.has(Scope::Admin)?;
    if id == ADMIN {
        return Err(Fault::new(
            StatusCode::CONFLICT,
            "admin-token",
            "the administrator's token cannot be revoked while the service runs",
        )
        .hint("set RINGFENCE_ADMIN_TOKEN for another one"));
    }
    let unknown = || {
        Fault::absent("no-such-token", "there is no such token").hint("GET /v1/tokens lists them")
    };
    let is_theirs =
        |kept: &Kept| kept.id == id && (caller.user.is_none() || kept.user == caller.user);
    let kept = house.tenants.tokens().into_iter().find(is_theirs).ok_or_else(unknown)?;
    apart(move || {
        let revoked = house.tenants.revoke(&kept.id).map_err(|error| Fault::ours(&error))?;
        if revoked.is_empty() {
            return Err(unknown());
        }
        for token in revoked {
            house.managed(token.user.as_ref(), &format!("token {} was revoked", token.id));
        }
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
