//! What is answered where something cannot be done.

use std::borrow::Cow;
use std::io;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringfence_api::whole;
use ringfence_engine::EngineError;
use ringfence_provider::ProviderError;
use ringfence_skills::{SkillNameError, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What every error is answered with.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ProblemJson {
    /// A stable word.
    pub(crate) code: Cow<'static, str>,
    /// What was attempted, and why it failed.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl ProblemJson {
    /// Nobody knows any more what became of it.
    pub(crate) fn lost() -> Self {
        Self {
            code: "lost".into(),
            message: "what became of it is not known any more".into(),
            hint: Some("begin it again".into()),
        }
    }
}

/// Why a request is not carried out.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) problem: ProblemJson,
    /// When to try again, in seconds.
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

    pub(crate) fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds.max(1));
        self
    }

    pub(crate) fn wrong(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    /// There is no room for what the service has to write.
    pub(crate) fn disk_full() -> Self {
        Self::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk-full",
            "the disk that the service keeps its data on is full",
        )
        .hint("the operator of the service has to make room")
    }

    /// The policy that holds for a tenant cannot be used, so nothing is run by it.
    fn unusable_policy() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "policy", "the policy that holds for this tenant cannot be used, so nothing is run")
            .hint("the log of the service has the reason; `PUT /v1/tenants/{userId}/policy` replaces the tenant's own")
    }

    pub(crate) fn absent(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    /// Something of ours failed; what it was is for the log, not for tenants.
    pub(crate) fn ours(error: &(dyn std::error::Error + 'static)) -> Self {
        crate::server::log::failed(error);
        if is_full(error) {
            return Self::disk_full();
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the service could not do it")
            .hint("whoever runs it finds the reason in its log")
    }
}

/// True where an error comes from a disk, or a quota on it, that is full.
pub(crate) fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let of_call =
            error.downcast_ref::<rustix::io::Errno>().map(|errno| io::Error::from(*errno).kind());
        if matches!(
            kind.or(of_call),
            Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        ) {
            return true;
        }
        // `io::Error` does not name what it wraps as its source.
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
        Self::wrong(error.code(), error.to_string()).hint(error.hint())
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
                return Self::ours(&error);
            }
        };
        let hint = error.hint();
        let fault = Self::new(status, error.code(), whole(&error));
        match hint {
            Some(hint) => fault.hint(hint),
            None => fault,
        }
    }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match &error {
            // A program that is not there, or none: what the caller wrote.
            EngineError::Provider(
                ProviderError::NotExecuted { .. } | ProviderError::NoLine { .. },
            ) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, error.code(), whole(&error)),
            EngineError::Provider(ProviderError::Gone { .. }) => {
                Self::new(StatusCode::GONE, "gone", error.to_string())
            }
            EngineError::Narrowed { .. } => {
                Self::new(StatusCode::CONFLICT, error.code(), error.to_string())
                    .hint("delete the sandbox, and make another")
            }
            EngineError::Policy(_) | EngineError::Unreadable { .. } => {
                crate::server::log::failed(&error);
                Self::unusable_policy()
            }
            EngineError::Unwanted => {
                Self::new(StatusCode::CONFLICT, "cancelled", "it was cancelled before it began")
            }
            _ => Self::ours(&error),
        }
    }
}
