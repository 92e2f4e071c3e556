//! Error responses.

use std::borrow::Cow;
use std::io;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_api::error_chain;
use ringfence_engine::EngineError;
use ringfence_provider::ProviderError;
use ringfence_skills::{SkillNameError, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The body of every error response.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemJson {
    /// A stable error code.
    pub(crate) code: Cow<'static, str>,
    /// The attempted operation and the cause of the failure.
    pub(crate) message: String,
    /// The next step for the caller.
    pub(crate) hint: Option<String>,
}

impl ProblemJson {
    /// The outcome of an execution is no longer known.
    pub(crate) fn outcome_lost() -> Self {
        Self {
            code: "lost".into(),
            message: "the outcome is no longer known".into(),
            hint: Some("start it again".into()),
        }
    }
}

/// An error response to a request.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) problem: ProblemJson,
    /// Seconds to wait before a retry.
    pub(crate) retry_after: Option<u64>,
}

pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            problem: ProblemJson { code: code.into(), message: message.into(), hint: None },
            retry_after: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.problem.hint = Some(hint.into());
        self
    }

    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// The disk of the data directory is full.
    pub(crate) fn disk_full() -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", "the service's data disk is full")
            .hint("ask the operator of the service to free disk space")
    }

    /// The tenant's policy cannot be used, so nothing is run.
    fn unusable_policy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "policy", "the policy of this tenant cannot be used, so nothing is run")
            .hint("see the service's log for the reason; `PUT /v1/tenants/{userId}/policy` replaces the tenant's policy")
    }

    pub(crate) fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// An internal failure; the cause goes to the log, not to tenants.
    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        crate::server::log::log_failure(error);
        if is_full(error) {
            return Self::disk_full();
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "internal error in the service")
            .hint("the operator of the service finds the reason in its log")
    }
}

/// True if the error comes from a full disk or an exhausted disk quota.
pub(crate) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let from_errno =
            error.downcast_ref::<rustix::io::Errno>().map(|errno| io::Error::from(*errno).kind());
        if matches!(
            kind.or(from_errno),
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        ) {
            return true;
        }
        // `io::Error` does not return the wrapped error as its source.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = wrapped
            .map(|wrapped| wrapped as &(dyn std::error::Error + 'static))
            .or_else(|| error.source());
    }
    false
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(self.problem)).into_response();
        if let Some(seconds) = self.retry_after {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            answer
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl From<SkillNameError> for ApiError {
    fn from(error: SkillNameError) -> Self {
        Self::bad_request(error.code(), error.to_string()).hint(error.hint())
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::NoSkill { .. } | StoreError::NoFile { .. } => StatusCode::NOT_FOUND,
            StoreError::Archive { .. }
            | StoreError::Needs { .. }
            | StoreError::Path { .. }
            | StoreError::NotAFile { .. }
            | StoreError::NotText { .. }
            | StoreError::Lines { .. } => StatusCode::BAD_REQUEST,
            StoreError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            StoreError::Changed { .. }
            | StoreError::Busy { .. }
            | StoreError::NeedsUnknown { .. }
            | StoreError::NeedsChanged { .. } => StatusCode::CONFLICT,
            StoreError::Quota { .. } | StoreError::Uncountable { .. } => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            StoreError::Root { .. } | StoreError::InUse { .. } | StoreError::System { .. } => {
                return Self::internal(&error);
            }
        };
        let hint = error.hint();
        let fault = Self::new(status, error.code(), error_chain(&error));
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match &error {
            // The caller named a missing program, or no command.
            EngineError::Provider(
                ProviderError::NotExecuted { .. } | ProviderError::NotACommand { .. },
            ) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.code(), error_chain(&error)),
            EngineError::Provider(ProviderError::Gone { .. }) => {
                Self::new(StatusCode::GONE, "gone", error.to_string())
            }
            EngineError::Narrowed { .. } => {
                Self::new(StatusCode::CONFLICT, error.code(), error.to_string())
                    .hint("delete the sandbox and create another")
            }
            EngineError::Policy(_)
            | EngineError::Unreadable { .. }
            | EngineError::Unconfined { .. }
            | EngineError::SandboxOff => {
                crate::server::log::log_failure(&error);
                Self::unusable_policy()
            }
            EngineError::Unwanted => Self::new(
                StatusCode::CONFLICT,
                "cancelled",
                "the command was cancelled before it started",
            ),
            _ => Self::internal(&error),
        }
    }
}
