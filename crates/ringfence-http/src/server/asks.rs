//! Pending permission questions.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::{IdPath, JsonBody, PathParams};
use super::schema;
use super::schema::errors::{AuthErrors, BodyErrors, NotFoundError};
use crate::SharedState;
use crate::asks::AskView;
use crate::error::{ApiError, ApiResult};
use crate::tenants::{ApiCaller, TokenScope};

/// Pending questions.
#[derive(Serialize, ToSchema)]
#[schema(as = Asks)]
pub(super) struct AskListBody {
    /// Oldest first.
    #[schema(value_type = Vec<schema::AskView>)]
    asks: Vec<AskView>,
}

/// The answer to a question.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = NewAnswer)]
pub(super) struct AnswerBody {
    /// One of the question's `options`.
    #[schema(value_type = schema::AskAnswer)]
    answer: ringfence_api::AskAnswer,
}

/// List pending questions
#[utoipa::path(get, path = "/v1/asks", tag = "watching", operation_id = "listAsks",
    responses((status = 200, description = "Oldest first", body = AskListBody), AuthErrors))]
pub(super) async fn list(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<AskListBody>> {
    caller.require_scope(TokenScope::Asks)?;
    Ok(Json(AskListBody {
        asks: app.asks.list().into_iter().filter(|ask| caller.can_see(&ask.user_id)).collect(),
    }))
}

/// Answer a question
///
/// A tenant's own token cannot allow more than the tenant's policy.
#[utoipa::path(post, path = "/v1/asks/{id}", tag = "watching", operation_id = "answerAsk", request_body = AnswerBody, params(IdPath),
    responses((status = 204, description = "The answer was delivered"), BodyErrors, NotFoundError, AuthErrors))]
pub(super) async fn answer(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(said): JsonBody<AnswerBody>,
) -> ApiResult<StatusCode> {
    caller.require_scope(TokenScope::Asks)?;
    let gone = || {
        ApiError::not_found(
            "no-such-ask",
            "no such question, or no command waits for the answer any more",
        )
        .hint("GET /v1/asks lists pending questions")
    };
    let ask = app.asks.find(&id).filter(|ask| caller.can_see(&ask.user_id)).ok_or_else(gone)?;
    let is_yes = said.answer != ringfence_api::AskAnswer::Deny;
    if is_yes && caller.user.is_some() && !ask.is_within_policy {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "ceiling",
            "the tenant's policy does not allow it",
        )
        .hint("use a token without a tenant to allow it or to change the tenant's policy"));
    }
    if app.asks.answer(&id, said.answer) { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}
