//! Tenants, their tokens, policies and quotas.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use ringfence_audit::{RecordAction, now_ms};
use ringfence_policy::{Flags, Source, parse};
use ringfence_skills::SkillName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{IdPath, JsonBody, PathParams, UserPath, perhaps};
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, NotFoundError, ParameterErrors,
};
use super::skills::{apart, note};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::state::put;
use crate::tenants::{ADMIN, ApiCaller, Quotas, StoredToken, TokenScope, TokenSpec};

/// Whose token it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhoAmIBody {
    token: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<SkillName>,
    scopes: Vec<TokenScope>,
    version: &'static str,
}

/// What this token is for
#[utoipa::path(get, path = "/v1/me", tag = "service", operation_id = "whoAmI",
    responses((status = 200, description = "Whose it is", body = WhoAmIBody), AuthErrors))]
pub(super) async fn me(Extension(caller): Extension<ApiCaller>) -> Json<WhoAmIBody> {
    let scopes = caller.scopes().to_vec();
    Json(WhoAmIBody {
        token: caller.id,
        user_id: caller.user,
        scopes,
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// A tenant.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct TenantBody {
    #[schema(value_type = String)]
    user_id: SkillName,
    quotas: Quotas,
    /// What all its skills have.
    bytes: u64,
    skills: u64,
    #[schema(value_type = Vec<String>)]
    agents: Vec<SkillName>,
    /// Commands that wait or run.
    running: usize,
}

/// Tenants.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenants)]
pub(super) struct TenantListBody {
    tenants: Vec<TenantBody>,
}

fn tenant(house: &SharedState, user: &SkillName) -> ApiResult<TenantBody> {
    let usage = house.store.usage(user).map_err(|error| ApiError::ours(&error))?;
    let agents = house.store.agents(user).map_err(|error| ApiError::ours(&error))?;
    let running = house.executions.running_of(user);
    Ok(TenantBody {
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
    responses((status = 200, description = "Those that this token may see", body = TenantListBody), AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<TenantListBody>> {
    caller.has(TokenScope::ReadSkills)?;
    apart(move || {
        let users = match &caller.user {
            Some(user) => vec![user.clone()],
            None => house.store.users().map_err(|error| ApiError::ours(&error))?,
        };
        let tenants: ApiResult<Vec<TenantBody>> =
            users.iter().map(|user| tenant(&house, user)).collect();
        Ok(Json(TenantListBody { tenants: tenants? }))
    })
    .await
}

/// What a tenant has, and may use
#[utoipa::path(get, path = "/v1/tenants/{userId}", tag = "tenants", operation_id = "getTenant", params(UserPath),
    responses((status = 200, description = "How much it has, and may have", body = TenantBody), ParameterErrors, AuthErrors))]
pub(super) async fn show(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<UserPath>,
) -> ApiResult<Json<TenantBody>> {
    caller.may(TokenScope::ReadSkills, &of.user_id)?;
    apart(move || tenant(&house, &of.user_id).map(Json)).await
}

/// Say how much a tenant may use
#[utoipa::path(put, path = "/v1/tenants/{userId}/quotas", tag = "tenants", operation_id = "setQuotas", request_body = Quotas, params(UserPath),
    responses((status = 200, description = "What holds now", body = Quotas), BodyErrors, AuthErrors))]
pub(super) async fn set_quotas(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<UserPath>,
    JsonBody(quotas): JsonBody<Quotas>,
) -> ApiResult<Json<Quotas>> {
    caller.sets(&of.user_id)?;
    if !quotas.is_meant() {
        return Err(ApiError::wrong(
            "quotas",
            "each is at most 1000000, but for `storageBytes`, and `requestsPerSecond` is 1 or more",
        ));
    }
    apart(move || {
        house.tenants.set_quotas(&of.user_id, quotas).map_err(|error| ApiError::ours(&error))?;
        house.executions.resize(&of.user_id, quotas.executions as usize);
        note(&house, &of.user_id, RecordAction::Manage, "quotas", None);
        Ok(Json(quotas))
    })
    .await
}

/// A policy, as its file has it.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub(super) struct PolicyTextBody {
    /// TOML, as `ringfence policy schema` describes it.
    policy: String,
}

/// The policy of a tenant, which comes on top of the service's
#[utoipa::path(get, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "getPolicy", params(UserPath),
    responses((status = 200, description = "Its text; empty where there is none", body = PolicyTextBody), ParameterErrors, AuthErrors))]
pub(super) async fn policy(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<UserPath>,
) -> ApiResult<Json<PolicyTextBody>> {
    caller.may(TokenScope::Admin, &of.user_id)?;
    let file = house.tenant(of.user_id.as_ref()).join("ringfence/policy.toml");
    apart(move || match std::fs::read_to_string(file.as_path()) {
        Ok(policy) => Ok(Json(PolicyTextBody { policy })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Json(PolicyTextBody { policy: String::new() }))
        }
        Err(error) => Err(ApiError::ours(&error)),
    })
    .await
}

/// Set the policy of a tenant
///
/// It holds for every command that begins from now on. One that means nothing is refused, and
/// the one before stays. An empty one takes it away.
#[utoipa::path(put, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "setPolicy", request_body = PolicyTextBody, params(UserPath),
    responses((status = 200, description = "What holds now", body = PolicyTextBody), BodyErrors, AuthErrors))]
pub(super) async fn set_policy(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(of): PathParams<UserPath>,
    JsonBody(text): JsonBody<PolicyTextBody>,
) -> ApiResult<Json<PolicyTextBody>> {
    caller.sets(&of.user_id)?;
    apart(move || {
        house.settle(&of.user_id).map_err(|error| ApiError::ours(&error))?;
        let file = house.tenant(of.user_id.as_ref()).join("ringfence/policy.toml");
        if text.policy.is_empty() {
            match std::fs::remove_file(file.as_path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ApiError::ours(&error));
                }
                _ => note(&house, &of.user_id, RecordAction::Manage, "policy", None),
            }
            return Ok(Json(text));
        }
        let wrong = |error: ringfence_policy::PolicyError| {
            let fault = ApiError::wrong("policy", ringfence_api::whole(&error));
            error.hint().map_or(fault.clone(), |hint| fault.hint(hint))
        };
        let layer = parse(&text.policy, &file, Source::User).map_err(wrong)?;
        let service = house.data.join("policy.toml");
        let beneath = ringfence_engine::layers_of(&service, &Source::User)
            .map_err(|error| ApiError::ours(&error))?;
        let somewhere = house.data.join("skills");
        let facts = house.surroundings(of.user_id.as_ref(), &somewhere).facts;
        let layers: Vec<_> = beneath.into_iter().chain([layer]).collect();
        ringfence_policy::resolve(&layers, &Flags::none(somewhere), &facts).map_err(wrong)?;
        put(file.as_path(), text.policy.as_bytes()).map_err(|error| ApiError::ours(&error))?;
        note(&house, &of.user_id, RecordAction::Manage, "policy", None);
        Ok(Json(text))
    })
    .await
}

/// What a new token is to be for.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NewTokenBody {
    /// The only tenant it is for; without one, it is for all.
    #[schema(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    #[schema(min_items = 1)]
    scopes: Vec<TokenScope>,
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
pub(super) struct TokenBody {
    id: String,
    label: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<SkillName>,
    scopes: Vec<TokenScope>,
    created_ms: u64,
    expires_ms: Option<u64>,
    /// The word itself: told this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl TokenBody {
    fn of(kept: StoredToken, token: Option<String>) -> Self {
        let StoredToken { id, label, user, scopes, created_ms, expires_ms, .. } = kept;
        Self { id, label, user_id: user, scopes, created_ms, expires_ms, token }
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
pub(super) struct TokenListBody {
    tokens: Vec<TokenBody>,
}

/// List tokens, without their words
#[utoipa::path(get, path = "/v1/tokens", tag = "tenants", operation_id = "listTokens",
    responses((status = 200, description = "All that this token may manage", body = TokenListBody), AuthErrors))]
pub(super) async fn tokens(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<TokenListBody>> {
    caller.has(TokenScope::Admin)?;
    let is_theirs = |kept: &StoredToken| caller.user.is_none() || kept.user == caller.user;
    Ok(Json(TokenListBody {
        tokens: house
            .tenants
            .tokens()
            .into_iter()
            .filter(is_theirs)
            .map(|kept| TokenBody::of(kept, None))
            .collect(),
    }))
}

/// Make a token
///
/// It may do no more than the token it is made with, expires no later, and is revoked with it.
#[utoipa::path(post, path = "/v1/tokens", tag = "tenants", operation_id = "makeToken", request_body = NewTokenBody,
    responses((status = 201, description = "With its word, this once", body = TokenBody), BodyErrors, AuthErrors))]
pub(super) async fn make_token(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    JsonBody(new): JsonBody<NewTokenBody>,
) -> ApiResult<Response> {
    caller.has(TokenScope::Admin)?;
    let user = new
        .user_id
        .as_deref()
        .map(SkillName::try_from)
        .transpose()?
        .or_else(|| caller.user.clone());
    if let Some(user) = &user {
        caller.may(TokenScope::Admin, user)?;
    }
    if new.scopes.is_empty() || new.label.chars().count() > 200 {
        return Err(ApiError::wrong(
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
    let made = TokenSpec { label: new.label, user, scopes: new.scopes, expires_ms, minted_by };
    apart(move || {
        let (kept, word) = house.tenants.make(made).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => ApiError::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "this token was revoked a moment ago",
            ),
            _ => ApiError::ours(&error),
        })?;
        house.managed(whose.as_ref(), &format!("token {} was made", kept.id));
        Ok((StatusCode::CREATED, Json(TokenBody::of(kept, Some(word)))).into_response())
    })
    .await
}

/// Revoke a token, and every token that was made with it
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tenants", operation_id = "revokeToken", params(IdPath),
    responses((status = 204, description = "It is worth nothing from now on"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(super) async fn revoke(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    caller.has(TokenScope::Admin)?;
    if id == ADMIN {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "admin-token",
            "the administrator's token cannot be revoked while the service runs",
        )
        .hint("set RINGFENCE_ADMIN_TOKEN for another one"));
    }
    let unknown = || {
        ApiError::absent("no-such-token", "there is no such token")
            .hint("GET /v1/tokens lists them")
    };
    let is_theirs =
        |kept: &StoredToken| kept.id == id && (caller.user.is_none() || kept.user == caller.user);
    let kept = house.tenants.tokens().into_iter().find(is_theirs).ok_or_else(unknown)?;
    apart(move || {
        let revoked = house.tenants.revoke(&kept.id).map_err(|error| ApiError::ours(&error))?;
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
