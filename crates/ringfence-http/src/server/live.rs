//! Health, readiness, metrics and the event stream.

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

/// Time for which the result of a readiness check is reused.
const READINESS_CACHE: Duration = Duration::from_secs(1);

/// Check that the service is running
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "isHealthy", security(()),
    responses((status = 200, description = "The service is running", content_type = "text/plain", body = String), PublicErrors))]
pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

/// Check that the service can confine commands and store data
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "isReady", security(()),
    responses((status = 200, description = "Ready; a second line gives the number of tenants with an unusable policy", content_type = "text/plain", body = String), UnavailableError, PublicErrors))]
pub(super) async fn ready(State(app): State<SharedState>) -> ApiResult<String> {
    // Callers need no token here, so all calls within a second share one check.
    let mut readiness = app.readiness.lock().await;
    if let Some((_, answer)) =
        readiness.as_ref().filter(|(since, _)| since.elapsed() <= READINESS_CACHE)
    {
        return answer.clone();
    }
    let answer = {
        let app = app.clone();
        tokio::task::spawn_blocking(move || check_readiness(&app))
            .await
            .map_err(|error| ApiError::internal(&error))?
    };
    *readiness = Some((Instant::now(), answer.clone()));
    answer
}

/// Checks data directory and policy. A tenant's broken policy leaves the service ready: it stops
/// that tenant only, and a service that is not ready gets no requests at all.
fn check_readiness(app: &AppState) -> ApiResult<String> {
    let not = |code, message: &str| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry_after(5)
    };
    if let Err(error) = app.check_writable() {
        super::log::log_failure(&error);
        return Err(if is_full(&error) {
            not("disk-full", "the service's data disk is full")
        } else {
            not("data", "the service cannot write its data")
        });
    }
    app.check_confinement().map_err(|error| {
        super::log::log_failure(&error);
        match &error {
            ServeError::Engine(EngineError::Policy(_) | EngineError::Unreadable { .. }) => {
                not("policy", "the service's own policy cannot be used; see the log")
            }
            _ => not("not-ready", "commands cannot be confined; see the log"),
        }
    })?;
    Ok(match app.broken_policies() {
        0 => "ready\n".to_owned(),
        count => {
            format!("ready\ntenants with an unusable policy: {count}; the log names the files\n")
        }
    })
}

/// Read Prometheus metrics
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "readMetrics",
    responses((status = 200, description = "In Prometheus' text format", content_type = "text/plain", body = String), AuthErrors))]
pub(super) async fn metrics(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Response> {
    caller.require_scope(TokenScope::Audit)?;
    if caller.user.is_some() {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "tenant",
            "the metrics cover all tenants",
        )
        .hint("use a token without a tenant"));
    }
    let gauges = [
        (
            "executions_running",
            "Commands that are queued or running.",
            app.executions.count_unfinished() as u64,
        ),
        ("sandboxes", "Live sandboxes.", app.sandboxes.list().len() as u64),
        ("asks_waiting", "Pending questions.", app.asks.list().len() as u64),
    ];
    let text = app.metrics.text(&gauges);
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4"))], text)
        .into_response())
}

/// Stream events: executions that start and end, denials, questions
#[utoipa::path(get, path = "/v1/events", tag = "watching", operation_id = "watchEvents",
    responses((status = 200, description = "A stream of `Event`s, until the connection ends", content_type = "text/event-stream", body = ServerSentEvent), AuthErrors))]
pub(super) async fn events(
    State(app): State<SharedState>,
    Extension(caller): Extension<ApiCaller>,
) -> ApiResult<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    caller.require_scope(TokenScope::Audit)?;
    let receiver = app.events.subscribe(caller.user.as_ref());
    let stream = stream::unfold((receiver, caller), |(mut receiver, caller)| async move {
        loop {
            let event = match receiver.recv().await {
                Ok(event) if caller.can_see(&event.user) => Event::default()
                    .event(event.kind)
                    .data(serde_json::to_string(&event).unwrap_or_default()),
                Ok(_) => continue,
                Err(RecvError::Lagged(missed)) => {
                    Event::default().event("missed").data(json!({ "missed": missed }).to_string())
                }
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(event), (receiver, caller)));
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}
