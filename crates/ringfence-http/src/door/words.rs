//! What requests say, read so that whatever is wrong is answered in our own words.

use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use ringfence_skills::{Name, SkillId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::answer::Fault;

/// So long somebody may take to send a body.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nobody keeps a place by saying nothing.
pub(super) fn too_slow() -> Fault {
    Fault::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "the body did not come in time").hint("send it again, in one go")
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Fault;

    async fn from_request(request: Request, state: &S) -> Result<Self, Fault> {
        let read = tokio::time::timeout(PATIENCE, axum::Json::<T>::from_request(request, state)).await;
        match read.map_err(|_| too_slow())? {
            Ok(axum::Json(value)) => Ok(Self(value)),
            Err(JsonRejection::MissingJsonContentType(_)) => {
                Err(Fault::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", "the body has to be JSON")
                    .hint("send `Content-Type: application/json`"))
            }
            Err(rejection) => {
                let status = rejection.status();
                let code = if status == StatusCode::PAYLOAD_TOO_LARGE { "too-large" } else { "body" };
                Err(Fault::new(status, code, rejection.body_text()).hint("/openapi.json says what it has to be"))
            }
        }
    }
}

/// What stands behind the question mark.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        let read: Result<Query<T>, QueryRejection> = Query::from_request_parts(parts, state).await;
        let wrong = |rejection: QueryRejection| Fault::wrong("query", rejection.body_text()).hint("/openapi.json says what it may be");
        read.map(|Query(value)| Self(value)).map_err(wrong)
    }
}

/// What stands in the path.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        let read: Result<Path<T>, PathRejection> = Path::from_request_parts(parts, state).await;
        let wrong = |rejection: PathRejection| {
            Fault::wrong("name", rejection.body_text())
                .hint("a name has up to 64 of A-Z a-z 0-9 . _ @ - and begins with a letter or a digit")
        };
        read.map(|Path(value)| Self(value)).map_err(wrong)
    }
}

/// `{userId}/{agentId}`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shelf {
    pub(super) user_id: Name,
    pub(super) agent_id: Name,
}

/// `{userId}/{agentId}/{skillId}`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfSkill {
    user_id: Name,
    agent_id: Name,
    skill_id: Name,
}

impl OfSkill {
    pub(super) fn id(self) -> SkillId {
        SkillId { user: self.user_id, agent: self.agent_id, skill: self.skill_id }
    }
}

/// `{userId}`
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OfUser {
    pub(super) user_id: Name,
}

/// `{id}`
#[derive(Deserialize)]
pub(super) struct OfId {
    pub(super) id: String,
}
