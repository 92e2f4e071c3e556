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

use super::extract::{IdPath, JsonBody, PathParams, UserPath, optional_integer};
use super::schema::errors::{
    AuthErrors, BodyErrors, ConflictError, NotFoundError, ParameterErrors,
};
use super::skills::{record_action, run_blocking};
use crate::SharedState;
use crate::error::{ApiError, ApiResult};
use crate::state::write_synced;
use crate::tenants::{ADMIN, ApiCaller, Quotas, StoredToken, TokenScope, TokenSpec};

/// The identity of a token.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WhoAmI)]
pub(super) struct WhoAmIBody {
    token: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<SkillName>,
    scopes: Vec<TokenScope>,
    version: &'static str,
}

/// Get the identity and scopes of this token
#[utoipa::path(get, path = "/v1/me", tag = "service", operation_id = "whoAmI",
    responses((status = 200, description = "The token's identity", body = WhoAmIBody), AuthErrors))]
pub(super) async fn who_am_i(Extension(caller): Extension<ApiCaller>) -> Json<WhoAmIBody> {
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
#[schema(as = Tenant)]
pub(super) struct TenantBody {
    #[schema(value_type = String)]
    user_id: SkillName,
    quotas: Quotas,
    /// The total size of its skills.
    bytes: u64,
    skills: u64,
    #[schema(value_type = Vec<String>)]
    agents: Vec<SkillName>,
    /// Commands that are queued or running.
    running: usize,
}

/// Tenants.
#[derive(Serialize, ToSchema)]
#[schema(as = Tenants)]
pub(super) struct TenantListBody {
    tenants: Vec<TenantBody>,
}

fn tenant(app: &SharedState, user: &SkillName) -> ApiResult<TenantBody> {
    let usage = app.store.usage(user).map_err(|error| ApiError::internal(&error))?;
    let agents = app.store.agents(user).map_err(|error| ApiError::internal(&error))?;
    let running = app.executions.count_unfinished_of(user);
    Ok(TenantBody {
        user_id: user.clone(),
        quotas: app.tenants.quotas(user),
        bytes: usage.bytes,
        skills: usage.skills,
        agents,
        running,
    })
}

/// List tenants
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", operation_id = "listTenants",
    responses((status = 200, description = "The tenants this token may see", body = TenantListBody), AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<TenantListBody>> {
    caller.require_scope(TokenScope::ReadSkills)?;
    run_blocking(move || {
        let users = match &caller.user {
            Some(user) => vec![user.clone()],
            None => app.store.users().map_err(|error| ApiError::internal(&error))?,
        };
        let tenants: ApiResult<Vec<TenantBody>> =
            users.iter().map(|user| tenant(&app, user)).collect();
        Ok(Json(TenantListBody { tenants: tenants? }))
    })
    .await
}

/// Get the usage and quotas of a tenant
#[utoipa::path(get, path = "/v1/tenants/{userId}", tag = "tenants", operation_id = "getTenant", params(UserPath),
    responses((status = 200, description = "Usage and quotas", body = TenantBody), ParameterErrors, AuthErrors))]
pub(super) async fn show(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<UserPath>,
) -> ApiResult<Json<TenantBody>> {
    caller.require_access(TokenScope::ReadSkills, &path.user_id)?;
    run_blocking(move || tenant(&app, &path.user_id).map(Json)).await
}

/// Set the quotas of a tenant
#[utoipa::path(put, path = "/v1/tenants/{userId}/quotas", tag = "tenants", operation_id = "setQuotas", request_body = Quotas, params(UserPath),
    responses((status = 200, description = "The new quotas", body = Quotas), BodyErrors, AuthErrors))]
pub(super) async fn set_quotas(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<UserPath>,
    JsonBody(quotas): JsonBody<Quotas>,
) -> ApiResult<Json<Quotas>> {
    caller.require_operator(&path.user_id)?;
    if !quotas.is_valid() {
        return Err(ApiError::bad_request(
            "quotas",
            "each quota except `storageBytes` must be at most 1000000, and `requestsPerSecond` at least 1",
        ));
    }
    run_blocking(move || {
        app.tenants
            .set_quotas(&path.user_id, quotas)
            .map_err(|error| ApiError::internal(&error))?;
        app.executions.resize(&path.user_id, quotas.executions as usize);
        record_action(&app, &path.user_id, RecordAction::Manage, "quotas", None);
        Ok(Json(quotas))
    })
    .await
}

/// The text of a policy file.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Policy)]
pub(super) struct PolicyTextBody {
    /// TOML, as `ringfence policy schema` describes it.
    policy: String,
}

/// Get the policy of a tenant, which adds to the service's
#[utoipa::path(get, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "getPolicy", params(UserPath),
    responses((status = 200, description = "The policy text; empty if there is none", body = PolicyTextBody), ParameterErrors, AuthErrors))]
pub(super) async fn policy(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<UserPath>,
) -> ApiResult<Json<PolicyTextBody>> {
    caller.require_access(TokenScope::Admin, &path.user_id)?;
    let file = app.tenant(path.user_id.as_ref()).join("ringfence/policy.toml");
    run_blocking(move || match std::fs::read_to_string(file.as_path()) {
        Ok(policy) => Ok(Json(PolicyTextBody { policy })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(Json(PolicyTextBody { policy: String::new() }))
        }
        Err(error) => Err(ApiError::internal(&error)),
    })
    .await
}

/// Set the policy of a tenant
///
/// It applies to every command that starts from now on. An invalid policy is rejected, and the
/// previous one stays. An empty text removes the policy.
#[utoipa::path(put, path = "/v1/tenants/{userId}/policy", tag = "tenants", operation_id = "setPolicy", request_body = PolicyTextBody, params(UserPath),
    responses((status = 200, description = "The new policy", body = PolicyTextBody), BodyErrors, AuthErrors))]
pub(super) async fn set_policy(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(path): PathParams<UserPath>,
    JsonBody(text): JsonBody<PolicyTextBody>,
) -> ApiResult<Json<PolicyTextBody>> {
    caller.require_operator(&path.user_id)?;
    run_blocking(move || {
        app.create_tenant_dirs(&path.user_id).map_err(|error| ApiError::internal(&error))?;
        let file = app.tenant(path.user_id.as_ref()).join("ringfence/policy.toml");
        if text.policy.is_empty() {
            match std::fs::remove_file(file.as_path()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ApiError::internal(&error));
                }
                _ => record_action(&app, &path.user_id, RecordAction::Manage, "policy", None),
            }
            return Ok(Json(text));
        }
        let wrong = |error: ringfence_policy::PolicyError| {
            let fault = ApiError::bad_request("policy", ringfence_api::error_chain(&error));
            error.hint().map_or(fault.clone(), |hint| fault.hint(hint))
        };
        let layer = parse(&text.policy, &file, Source::User).map_err(wrong)?;
        if layer.policy.sandbox.provider.is_some() {
            let what = "a tenant's policy cannot choose the sandbox provider";
            let fault = ApiError::bad_request("policy", what);
            return Err(fault.hint("remove `provider` from `[sandbox]`"));
        }
        let service = app.data.join("policy.toml");
        let beneath = ringfence_engine::read_file_layers(&service, &Source::User)
            .map_err(|error| ApiError::internal(&error))?;
        let somewhere = app.data.join("skills");
        let facts = app.skill_environment(path.user_id.as_ref(), &somewhere).facts;
        let layers: Vec<_> = beneath.into_iter().chain([layer]).collect();
        ringfence_policy::resolve(&layers, &Flags::none(somewhere), &facts).map_err(wrong)?;
        write_synced(file.as_path(), text.policy.as_bytes())
            .map_err(|error| ApiError::internal(&error))?;
        record_action(&app, &path.user_id, RecordAction::Manage, "policy", None);
        Ok(Json(text))
    })
    .await
}

/// The options of a new token.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewToken)]
pub(super) struct NewTokenBody {
    /// The only tenant it is valid for; by default it is valid for all tenants.
    #[schema(pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: Option<String>,
    #[schema(min_items = 1)]
    scopes: Vec<TokenScope>,
    /// A description for users.
    #[serde(default)]
    #[schema(max_length = 200)]
    label: String,
    /// The lifetime in seconds; a token never outlives the token that created it.
    #[serde(default, deserialize_with = "optional_integer")]
    expires_in: Option<u64>,
}

/// A token, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub(super) struct TokenBody {
    id: String,
    label: String,
    #[schema(value_type = Option<String>)]
    user_id: Option<SkillName>,
    scopes: Vec<TokenScope>,
    created_ms: u64,
    expires_ms: Option<u64>,
    /// The secret token text: returned only once.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl TokenBody {
    fn from_token(kept: StoredToken, token: Option<String>) -> Self {
        let StoredToken { id, label, user, scopes, created_ms, expires_ms, .. } = kept;
        Self { id, label, user_id: user, scopes, created_ms, expires_ms, token }
    }
}

/// Tokens.
#[derive(Serialize, ToSchema)]
#[schema(as = Tokens)]
pub(super) struct TokenListBody {
    tokens: Vec<TokenBody>,
}

/// List tokens, without their secrets
#[utoipa::path(get, path = "/v1/tokens", tag = "tenants", operation_id = "listTokens",
    responses((status = 200, description = "All tokens this token may manage", body = TokenListBody), AuthErrors))]
pub(super) async fn tokens(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<TokenListBody>> {
    caller.require_scope(TokenScope::Admin)?;
    let is_theirs = |kept: &StoredToken| caller.user.is_none() || kept.user == caller.user;
    Ok(Json(TokenListBody {
        tokens: app
            .tenants
            .tokens()
            .into_iter()
            .filter(is_theirs)
            .map(|kept| TokenBody::from_token(kept, None))
            .collect(),
    }))
}

/// Create a token
///
/// It has no more rights than the token that creates it, expires no later, and is revoked with it.
#[utoipa::path(post, path = "/v1/tokens", tag = "tenants", operation_id = "makeToken", request_body = NewTokenBody,
    responses((status = 201, description = "The token with its secret, returned only once", body = TokenBody), BodyErrors, AuthErrors))]
pub(super) async fn make_token(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    JsonBody(new): JsonBody<NewTokenBody>,
) -> ApiResult<Response> {
    caller.require_scope(TokenScope::Admin)?;
    let user = new
        .user_id
        .as_deref()
        .map(SkillName::try_from)
        .transpose()?
        .or_else(|| caller.user.clone());
    if let Some(user) = &user {
        caller.require_access(TokenScope::Admin, user)?;
    }
    if new.scopes.is_empty() || new.label.chars().count() > 200 {
        return Err(ApiError::bad_request(
            "token",
            "a token needs at least one scope, and a label of at most 200 characters",
        ));
    }
    for scope in &new.scopes {
        caller.require_scope(*scope)?;
    }
    let wanted =
        new.expires_in.map(|seconds| now_ms().saturating_add(seconds.saturating_mul(1000)));
    // A token never outlives its creator.
    let expires_ms = [wanted, caller.expires_ms].into_iter().flatten().min();
    let minted_by = Some(caller.id).filter(|id| id != ADMIN);
    let whose = user.clone();
    let made = TokenSpec { label: new.label, user, scopes: new.scopes, expires_ms, minted_by };
    run_blocking(move || {
        let (kept, word) = app.tenants.create_token(made).map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => ApiError::new(
                StatusCode::UNAUTHORIZED,
                "token",
                "this token was revoked a moment ago",
            ),
            _ => ApiError::internal(&error),
        })?;
        app.record_change(whose.as_ref(), &format!("token {} was made", kept.id));
        Ok((StatusCode::CREATED, Json(TokenBody::from_token(kept, Some(word)))).into_response())
    })
    .await
}

/// Revoke a token and every token created with it
#[utoipa::path(delete, path = "/v1/tokens/{id}", tag = "tenants", operation_id = "revokeToken", params(IdPath),
    responses((status = 204, description = "The token is revoked"), ParameterErrors, NotFoundError, ConflictError, AuthErrors))]
pub(super) async fn revoke(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
) -> ApiResult<StatusCode> {
    caller.require_scope(TokenScope::Admin)?;
    if id == ADMIN {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "admin-token",
            "the administrator's token cannot be revoked while the service runs",
        )
        .hint("set RINGFENCE_ADMIN_TOKEN to another token and restart the service"));
    }
    let unknown =
        || ApiError::not_found("no-such-token", "no such token").hint("GET /v1/tokens lists them");
    let is_theirs =
        |kept: &StoredToken| kept.id == id && (caller.user.is_none() || kept.user == caller.user);
    let kept = app.tenants.tokens().into_iter().find(is_theirs).ok_or_else(unknown)?;
    run_blocking(move || {
        let revoked = app.tenants.revoke(&kept.id).map_err(|error| ApiError::internal(&error))?;
        if revoked.is_empty() {
            return Err(unknown());
        }
        for token in revoked {
            app.record_change(token.user.as_ref(), &format!("token {} was revoked", token.id));
        }
        Ok(StatusCode::NO_CONTENT)
    })
    .await
}
