//! Whoever sent a request.

use axum::http::StatusCode;
use ringfence_skills::SkillName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::StoredToken;
use crate::error::{ApiError, ApiResult};

/// What a token lets its holder do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) enum TokenScope {
    /// Lists and reads skills.
    #[serde(rename = "skills:read")]
    ReadSkills,
    /// Uploads, edits and removes them.
    #[serde(rename = "skills:write")]
    WriteSkills,
    /// Runs commands in them.
    #[serde(rename = "execute")]
    Execute,
    /// Makes sandboxes, and does whatever they let one do.
    #[serde(rename = "sandboxes")]
    Sandboxes,
    /// Answers questions.
    #[serde(rename = "asks")]
    Asks,
    /// Reads the audit log.
    #[serde(rename = "audit")]
    Audit,
    /// Makes tokens, sets policies and quotas.
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

/// Whoever sent a request.
#[derive(Debug, Clone)]
pub(crate) struct ApiCaller {
    /// The token's id.
    pub(crate) id: String,
    /// Whose things they may touch; everybody's if nobody is named.
    pub(crate) user: Option<SkillName>,
    /// When the token is worth nothing any more.
    pub(crate) expires_ms: Option<u64>,
    scopes: Vec<TokenScope>,
}

impl ApiCaller {
    pub(super) fn of(kept: &StoredToken) -> Self {
        Self {
            id: kept.id.clone(),
            user: kept.user.clone(),
            expires_ms: kept.expires_ms,
            scopes: kept.scopes.clone(),
        }
    }

    /// Whether they may do this with things of that tenant.
    pub(crate) fn may(&self, scope: TokenScope, user: &SkillName) -> ApiResult<()> {
        self.has(scope)?;
        if self.sees(user) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "other-tenant",
            format!("this token is not for `{user}`"),
        )
        .hint("ask whoever runs the service for a token of that user"))
    }

    /// Whether they may say what that tenant may do: no tenant says that of itself, for its policy
    /// could open the whole host.
    pub(crate) fn sets(&self, user: &SkillName) -> ApiResult<()> {
        self.may(TokenScope::Admin, user)?;
        if self.user.is_none() {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "tenant",
            "a tenant does not say how much it may do itself",
        )
        .hint("use a token that is for no user in particular"))
    }

    /// Whether they may do this at all.
    pub(crate) fn has(&self, scope: TokenScope) -> ApiResult<()> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "scope",
            format!("this token lacks the scope `{}`", scope.word()),
        )
        .hint("ask whoever runs the service for a token that has it"))
    }

    /// Whose quota a request counts against: all tokens of a tenant share the tenant's.
    pub(crate) fn payer(&self) -> String {
        self.user
            .as_ref()
            .map_or_else(|| format!("token {}", self.id), |user| format!("tenant {user}"))
    }

    pub(crate) fn scopes(&self) -> &[TokenScope] {
        &self.scopes
    }

    /// Whether things of that tenant are theirs to see.
    pub(crate) fn sees(&self, user: &SkillName) -> bool {
        self.user.as_ref().is_none_or(|own| own == user)
    }
}
