//! Request extractors with the service's own error messages.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use ringfence_skills::{SkillId, SkillName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use super::bodies::next_bytes;
use super::lease::RequestLease;
use crate::error::ApiError;
pub(super) use crate::serde_int::optional_integer;

/// Time limit for a client to send a body.
const PATIENCE: Duration = Duration::from_secs(60);

/// A silent client must not hold a connection.
pub(super) fn too_slow() -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "the body did not arrive in time")
        .hint("send it again without pauses")
}

/// A JSON body.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let request =
            tokio::time::timeout(PATIENCE, read_body(request)).await.map_err(|_| too_slow())??;
        match axum::Json::<T>::from_request(request, state).await {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content-type",
                "the body must be JSON",
            )
            .hint("send `Content-Type: application/json`")),
            Err(rejection) => {
                let status = rejection.status();
                let code =
                    if status == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "body" };
                Err(ApiError::new(status, code, rejection.body_text())
                    .hint("/openapi.json has the schema"))
            }
        }
    }
}

/// Reads the whole body and counts it for its tenant. A body that is too large or not JSON is not
/// read to its end: the next extractor rejects it.
async fn read_body(request: Request) -> Result<Request, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let lease = request.extensions().get::<Arc<RequestLease>>().cloned();
    let (Some(lease), true) =
        (lease, kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("json")))
    else {
        return Ok(request);
    };
    let (parts, mut body) = request.into_parts();
    let mut bytes = Vec::new();
    while let Some(more) = next_bytes(&mut body).await? {
        lease.count_body(more.len() as u64)?;
        bytes.extend_from_slice(&more);
        if bytes.len() > super::BODY {
            break;
        }
    }
    Ok(Request::from_parts(parts, bytes.into()))
}

/// The query parameters.
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        let wrong = |rejection: QueryRejection| {
            ApiError::bad_request("query", rejection.body_text())
                .hint("/openapi.json has the parameters")
        };
        read.map(|Query(value)| Self(value)).map_err(wrong)
    }
}

/// The path parameters.
pub(super) struct PathParams<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let read: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        let wrong = |rejection: PathRejection| {
            ApiError::bad_request("name", rejection.body_text()).hint(
                "a name has up to 64 of A-Z a-z 0-9 . _ @ - and starts with a letter or a digit",
            )
        };
        read.map(|Path(value)| Self(value)).map_err(wrong)
    }
}

/// The limit of a list, checked.
pub(super) fn check_limit(limit: Option<usize>, usual: usize) -> Result<usize, ApiError> {
    match limit {
        Some(limit @ 1..=1000) => Ok(limit),
        None => Ok(usual),
        Some(_) => Err(ApiError::bad_request("limit", "`limit` must be 1 to 1000")),
    }
}

/// `{userId}/{agentId}`
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(super) struct AgentPath {
    /// The tenant.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    pub(super) user_id: SkillName,
    /// The agent.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    pub(super) agent_id: SkillName,
}

/// `{userId}/{agentId}/{skillId}`
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(super) struct SkillPath {
    /// The tenant.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    user_id: SkillName,
    /// The agent.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    agent_id: SkillName,
    /// The skill.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    skill_id: SkillName,
}

impl SkillPath {
    pub(super) fn id(self) -> SkillId {
        SkillId { user: self.user_id, agent: self.agent_id, skill: self.skill_id }
    }
}

/// `{userId}`
#[derive(Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(super) struct UserPath {
    /// The tenant.
    #[param(value_type = String, pattern = r"^[A-Za-z0-9](\.?[A-Za-z0-9_@-])*$", min_length = 1, max_length = 64)]
    pub(super) user_id: SkillName,
}

/// `{id}`
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct IdPath {
    /// The id, as returned by the service.
    #[param(min_length = 1)]
    pub(super) id: String,
}
