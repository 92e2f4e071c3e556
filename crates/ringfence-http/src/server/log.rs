//! The service's own log: one JSON object a line, on standard error. No body, no query, no token.

use std::io::Write;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use ringfence_api::whole;
use ringfence_audit::{now_ms, rfc3339};
use serde_json::{Value, json};

/// A request was answered. The path is the router's, without what callers put in.
pub(crate) fn answered(
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

/// Something of ours failed.
pub(crate) fn failed(error: &dyn std::error::Error) {
    write(
        &json!({ "time": rfc3339(now_ms()), "level": "error", "event": "failure", "message": whole(error) }),
    );
}

fn write(line: &Value) {
    // As a whole: standard error keeps nothing back, and lines of others may come in between.
    let line = format!("{line}\n");
    // Where nobody reads it there is nobody to be told.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}
