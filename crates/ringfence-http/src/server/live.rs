//! How it is, and what is going on.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use ringfence_engine::EngineError;
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::schema::ServerSentEvent;
use super::schema::errors::{AuthErrors, PublicErrors, UnavailableError};
use crate::error::{ApiError, ApiResult, is_full};
use crate::state::AppState;
use crate::tenants::{ApiCaller, TokenScope};
use crate::{ServeError, SharedState};

/// For so long nobody looks again whether commands can be confined.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the service is there.
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "isHealthy", security(()),
    responses((status = 200, description = "It is there", content_type = "text/plain", body = String), PublicErrors))]
pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// Tells if it can confine commands and keep data at this moment.
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "isReady", security(()),
    responses((status = 200, description = "It can; a second line says how many tenants have a policy that cannot be used", content_type = "text/plain", body = String), UnavailableError, PublicErrors))]
pub(super) async fn ready(State(house): State<SharedState>) -> ApiResult<String> {
    // Anybody may ask: all who do so within a second share one look.
    let mut looked = house.looked.lock().await;
    if let Some((_, answer)) = looked.as_ref().filter(|(since, _)| since.elapsed() <= LOOK) {
        return answer.clone();
    }
    let answer = {
        let house = house.clone();
        tokio::task::spawn_blocking(move || look(&house))
            .await
            .map_err(|error| ApiError::ours(&error))?
    };
    *looked = Some((Instant::now(), answer.clone()));
    answer
}

/// One tenant's broken policy leaves the service ready: it stops that tenant only, and a service
/// that is not ready gets no requests for any.
fn look(house: &AppState) -> ApiResult<String> {
    let not = |code, message: &str| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message).after(5)
    };
    if let Err(error) = house.has_room() {
        super::log::failed(&error);
        return Err(if is_full(&error) {
            not("disk-full", "the disk that the service keeps its data on is full")
        } else {
            not("data", "the service cannot write its data")
        });
    }
    house.trial().map_err(|error| {
        super::log::failed(&error);
        match &error {
            ServeError::Engine(EngineError::Policy(_) | EngineError::Unreadable { .. }) => {
                not("policy", "the service's own policy cannot be used; the log has the reason")
            }
            _ => not("not-ready", "no command could be confined; the log has the reason"),
        }
    })?;
    Ok(match house.broken_policies() {
        0 => "ready\n".to_owned(),
        count => format!(
            "ready\ntenants whose policy cannot be used: {count}; the log names the files\n"
        ),
    })
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "readMetrics",
    responses((status = 200, description = "In Prometheus' own words", content_type = "text/plain", body = String), AuthErrors))]
pub(super) async fn metrics(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Response> {
    caller.has(TokenScope::Audit)?;
    if caller.user.is_some() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "tenant",
            "these numbers are of all tenants",
        )
        .hint("use a token that is for no user in particular"));
    }
    let gauges = [
        ("executions_running", "Commands that wait or run.", house.executions.running() as u64),
        ("sandboxes", "Sandboxes that stand.", house.sandboxes.list().len() as u64),
        ("asks_waiting", "Questions that wait for an answer.", house.asks.list().len() as u64),
    ];
    let text = house.metrics.text(&gauges);
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text)
        .into_response())
}

/// What happens, as it happens: executions that begin and end, refusals, questions.
#[utoipa::path(get, path = "/v1/events", tag = "watching", operation_id = "watchEvents",
    responses((status = 200, description = "Each `Event` as it comes, until the connection ends", content_type = "text/event-stream", body = ServerSentEvent), AuthErrors))]
pub(super) async fn events(
    State(house): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    caller.has(TokenScope::Audit)?;
    let hears = house.events.hear(caller.user.as_ref());
    let stream = stream::unfold((hears, caller), |(mut hears, caller)| async move {
        loop {
            let event = match hears.recv().await {
                Ok(event) if caller.sees(&event.user) => Event::default()
                    .event(event.kind)
                    .data(serde_json::to_string(&event).unwrap_or_default()),
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => {
                    Event::default().event("missed").data(json!({ "missed": missed }).to_string())
                }
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(event), (hears, caller)));
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}
