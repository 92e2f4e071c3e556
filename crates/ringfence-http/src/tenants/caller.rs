//! The caller of a request.

use axum::http::StatusCode;
use ringfence_skills::SkillName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::StoredToken;
use crate::error::{ApiError, ApiResult};

/// A permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum TokenScope {
    /// List and read skills.
    #[serde(rename = "skills:read")]
    ReadSkills,
    /// Upload, edit and remove skills.
    #[serde(rename = "skills:write")]
    WriteSkills,
    /// Run commands in skills.
    #[serde(rename = "execute")]
    Execute,
    /// Create and use sandboxes.
    #[serde(rename = "sandboxes")]
    Sandboxes,
    /// Answer questions.
    #[serde(rename = "asks")]
    Asks,
    /// Read the audit log.
    #[serde(rename = "audit")]
    Audit,
    /// Create tokens, set policies and quotas.
    #[serde(rename = "admin")]
    Admin,
}

impl TokenScope {
    pub(crate) const ALL: [TokenScope; 7] = [
        TokenScope::ReadSkills,
        TokenScope::WriteSkills,
        TokenScope::Execute,
        TokenScope::Sandboxes,
        TokenScope::Asks,
        TokenScope::Audit,
        TokenScope::Admin,
    ];

    fn word(self) -> &'static str {
        match self {
            TokenScope::ReadSkills => "skills:read",
            TokenScope::WriteSkills => "skills:write",
            TokenScope::Execute => "execute",
            TokenScope::Sandboxes => "sandboxes",
            TokenScope::Asks => "asks",
            TokenScope::Audit => "audit",
            TokenScope::Admin => "admin",
        }
    }
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct ApiCaller {
    /// The token's id.
    pub(crate) id: String,
    /// The only tenant the token is valid for; `None` for all tenants.
    pub(crate) user: Option<SkillName>,
    /// The expiry time of the token.
    pub(crate) expires_ms: Option<u64>,
    scopes: Vec<TokenScope>,
}

impl ApiCaller {
    pub(super) fn from_token(kept: &StoredToken) -> Self {
        Self {
            id: kept.id.clone(),
            user: kept.user.clone(),
            expires_ms: kept.expires_ms,
            scopes: kept.scopes.clone(),
        }
    }

    /// Fails unless the caller has the scope for that tenant.
    pub(crate) fn require_access(&self, scope: TokenScope, user: &SkillName) -> ApiResult<()> {
        self.require_scope(scope)?;
        if self.can_see(user) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "other-tenant",
            format!("the token is not valid for `{user}`"),
        )
        .hint("ask the operator of the service for a token of that tenant"))
    }

    /// Fails unless the caller may set that tenant's policy and quotas. No tenant may set its own:
    /// its policy could open the whole host.
    pub(crate) fn require_operator(&self, user: &SkillName) -> ApiResult<()> {
        self.require_access(TokenScope::Admin, user)?;
        if self.user.is_none() {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "tenant",
            "a tenant cannot set its own policy or quotas",
        )
        .hint("use a token without a tenant"))
    }

    /// Fails unless the caller has the scope.
    pub(crate) fn require_scope(&self, scope: TokenScope) -> ApiResult<()> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "scope",
            format!("the token lacks the scope `{}`", scope.word()),
        )
        .hint("ask the operator of the service for a token with this scope"))
    }

    /// The key for rate limits: all tokens of a tenant share one.
    pub(crate) fn rate_key(&self) -> String {
        self.user
            .as_ref()
            .map_or_else(|| format!("token {}", self.id), |user| format!("tenant {user}"))
    }

    pub(crate) fn scopes(&self) -> &[TokenScope] {
        &self.scopes
    }

    /// True if the caller may see that tenant's data.
    pub(crate) fn can_see(&self, user: &SkillName) -> bool {
        self.user.as_ref().is_none_or(|own| own == user)
    }
}
