//! The service log: one JSON object per line on standard error. No bodies, queries or tokens.

use std::io::Write;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use ringfence_api::error_chain;
use ringfence_audit::{now_ms, rfc3339};
use serde_json::{Value, json};

/// Logs a response. The path is the route, without the caller's parameters.
pub(crate) fn log_response(
    method: &Method,
    path: &str,
    status: StatusCode,
    took: Duration,
    token: Option<&str>,
) {
    let level = if status.is_server_error() { "error" } else { "info" };
    write(&json!({
        "time": rfc3339(now_ms()), "level": level, "event": "request", "method": method.as_str(), "path": path,
        "status": status.as_u16(), "ms": took.as_millis() as u64, "token": token,
    }));
}

/// Logs an internal failure.
pub(crate) fn log_failure(error: &dyn std::error::Error) {
    write(
        &json!({ "time": rfc3339(now_ms()), "level": "error", "event": "failure", "message": error_chain(error) }),
    );
}

fn write(line: &Value) {
    // One write per line: standard error is unbuffered, and lines of other threads may interleave.
    let line = format!("{line}\n");
    // A failed write to standard error cannot be reported.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
