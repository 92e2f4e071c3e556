//! The service's log events. They carry no bodies, queries or tokens.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use ringfence_api::error_chain;
use tracing::{error, info};

/// Logs a response. The path is the route, without the caller's parameters; `token` is the id of a
/// token.
pub(crate) fn log_response(
    method: &Method,
    path: &str,
    status: StatusCode,
    took: Duration,
    token: Option<&str>,
) {
    let (method, code, ms) = (method.as_str(), status.as_u16(), took.as_millis() as u64);
    if status.is_server_error() {
        error!(target: "http", event = "request", method, path, status = code, ms, token);
    } else {
        info!(target: "http", event = "request", method, path, status = code, ms, token);
    }
}

/// Logs an internal failure.
pub(crate) fn log_failure(failure: &dyn std::error::Error) {
    error!(target: "http", event = "failure", "{}", error_chain(failure));
}
