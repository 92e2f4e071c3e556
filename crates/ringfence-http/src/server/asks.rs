//! Questions that wait for an answer.

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

/// What waits.
#[derive(Serialize, ToSchema)]
#[schema(as = Asks)]
pub(super) struct AskListBody {
    /// Oldest first.
    #[schema(value_type = Vec<schema::Question>)]
    asks: Vec<AskView>,
}

/// What somebody says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Said)]
pub(super) struct AnswerBody {
    /// One of the question's `options`.
    #[schema(value_type = schema::Answer)]
    answer: ringfence_api::AskAnswer,
}

/// Questions that wait for somebody's answer
#[utoipa::path(get, path = "/v1/asks", tag = "watching", operation_id = "listAsks",
    responses((status = 200, description = "Oldest first", body = AskListBody), AuthErrors))]
pub(super) async fn list(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Json<AskListBody>> {
    caller.has(TokenScope::Asks)?;
    Ok(Json(AskListBody {
        asks: house.asks.list().into_iter().filter(|ask| caller.sees(&ask.user_id)).collect(),
    }))
}

/// Answer one
///
/// A tenant's own token allows nothing that the tenant's policy does not.
#[utoipa::path(post, path = "/v1/asks/{id}", tag = "watching", operation_id = "answerAsk", request_body = AnswerBody, params(IdPath),
    responses((status = 204, description = "It was heard"), BodyErrors, NotFoundError, AuthErrors))]
pub(super) async fn answer(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
    PathParams(IdPath { id }): PathParams<IdPath>,
    JsonBody(said): JsonBody<AnswerBody>,
) -> ApiResult<StatusCode> {
    caller.has(TokenScope::Asks)?;
    let gone = || {
        ApiError::absent("no-such-ask", "nobody waits for that answer any more")
            .hint("GET /v1/asks lists what waits")
    };
    let ask = house.asks.find(&id).filter(|ask| caller.sees(&ask.user_id)).ok_or_else(gone)?;
    let is_yes = said.answer != ringfence_api::AskAnswer::Deny;
    if is_yes && caller.user.is_some() && !ask.is_within_policy {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "ceiling",
            "the tenant's policy does not open it",
        )
        .hint("a token that is for no tenant can allow it, or change the tenant's policy"));
    }
    if house.asks.answer(&id, said.answer) { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}
