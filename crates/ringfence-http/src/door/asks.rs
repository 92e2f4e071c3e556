//! Questions that wait for an answer.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schema;
use super::schema::answers::{Absent, NoBody, Refused};
use super::words::{Body, Named, OfId};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::asks::Question;
use crate::tenants::{Caller, Scope};

/// What waits.
#[derive(Serialize, ToSchema)]
#[schema(as = Asks)]
pub(super) struct Waiting {
    /// Oldest first.
    #[schema(value_type = Vec<schema::Question>)]
    asks: Vec<Question>,
}

/// What somebody says.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Said)]
pub(super) struct Said {
    /// One of the question's `options`.
    #[schema(value_type = schema::Answer)]
    answer: ringfence_api::Answer,
}

/// Questions that wait for somebody's answer
#[utoipa::path(get, path = "/v1/asks", tag = "watching", operation_id = "listAsks",
    responses((status = 200, description = "Oldest first", body = Waiting), Refused))]
pub(super) async fn list(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Answer<Json<Waiting>> {
    caller.has(Scope::Asks)?;
    Ok(Json(Waiting {
        asks: house.asks.list().into_iter().filter(|ask| caller.sees(&ask.user_id)).collect(),
    }))
}

/// Answer one
///
/// A tenant's own token allows nothing that the tenant's policy does not.
#[utoipa::path(post, path = "/v1/asks/{id}", tag = "watching", operation_id = "answerAsk", request_body = Said, params(OfId),
    responses((status = 204, description = "It was heard"), NoBody, Absent, Refused))]
pub(super) async fn answer(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
    Named(OfId { id }): Named<OfId>,
    Body(said): Body<Said>,
) -> Answer<StatusCode> {
    caller.has(Scope::Asks)?;
    let gone = || {
        Fault::absent("no-such-ask", "nobody waits for that answer any more")
            .hint("GET /v1/asks lists what waits")
    };
    let ask = house.asks.find(&id).filter(|ask| caller.sees(&ask.user_id)).ok_or_else(gone)?;
    let is_yes = said.answer != ringfence_api::Answer::Deny;
    if is_yes && caller.user.is_some() && !ask.is_within_policy {
        return Err(Fault::new(
            StatusCode::FORBIDDEN,
            "ceiling",
            "the tenant's policy does not open it",
        )
        .hint("a token that is for no tenant can allow it, or change the tenant's policy"));
    }
    if house.asks.answer(&id, said.answer) { Ok(StatusCode::NO_CONTENT) } else { Err(gone()) }
}
