//! How it is, and what is going on.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;

use super::schema::ServerSentEvent;
use super::schema::answers::{Outside, Refused, Unable};
use crate::Shared;
use crate::answer::{Answer, Fault};
use crate::tenants::{Caller, Scope};

/// For so long nobody looks again whether commands can be confined.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the service is there.
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "isHealthy", security(()),
    responses((status = 200, description = "It is there", content_type = "text/plain", body = String), Outside))]
pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// Whether it can confine commands at this moment.
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "isReady", security(()),
    responses((status = 200, description = "It can", content_type = "text/plain", body = String), Unable, Outside))]
pub(super) async fn ready(State(house): State<Shared>) -> Answer<&'static str> {
    // Anybody may ask: all who do so within a second share one look.
    let mut looked = house.looked.lock().await;
    if looked.is_none_or(|(since, _)| since.elapsed() > LOOK) {
        let trial = {
            let house = house.clone();
            tokio::task::spawn_blocking(move || house.trial()).await
        };
        let is_ready = trial.map_err(|error| Fault::ours(&error))?.inspect_err(|error| super::log::failed(error)).is_ok();
        *looked = Some((Instant::now(), is_ready));
    }
    match *looked {
        Some((_, true)) => Ok("ready\n"),
        _ => Err(Fault::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "no command could be confined").after(5)),
    }
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "readMetrics",
    responses((status = 200, description = "In Prometheus' own words", content_type = "text/plain", body = String), Refused))]
pub(super) async fn metrics(State(house): State<Shared>, Extension(caller): Extension<Caller>) -> Answer<Response> {
    caller.has(Scope::Audit)?;
    if caller.user.is_some() {
        return Err(Fault::new(StatusCode::FORBIDDEN, "tenant", "these numbers are of all tenants")
            .hint("use a token that is for no user in particular"));
    }
    let gauges = [
        ("executions_running", "Commands that wait or run.", house.executions.running() as u64),
        ("sandboxes", "Sandboxes that stand.", house.sandboxes.list().len() as u64),
        ("asks_waiting", "Questions that wait for an answer.", house.asks.list().len() as u64),
    ];
    let text = house.metrics.text(&gauges);
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text).into_response())
}

/// What happens, as it happens: executions that begin and end, refusals, questions.
#[utoipa::path(get, path = "/v1/events", tag = "watching", operation_id = "watchEvents",
    responses((status = 200, description = "Each `Event` as it comes, until the connection ends", content_type = "text/event-stream", body = ServerSentEvent), Refused))]
pub(super) async fn events(
    State(house): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    caller.has(Scope::Audit)?;
    let hears = house.events.hear(caller.user.as_ref());
    let stream = stream::unfold((hears, caller), |(mut hears, caller)| async move {
        loop {
            let event = match hears.recv().await {
                Ok(event) if caller.sees(&event.user) => {
                    Event::default().event(event.kind).data(serde_json::to_string(&event).unwrap_or_default())
                }
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => Event::default().event("missed").data(json!({ "missed": missed }).to_string()),
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(event), (hears, caller)));
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}
