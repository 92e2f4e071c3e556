//! Outcomes as JSON.

use ringfence_api::{Outcome, Permission, StreamOutput, base64};
use serde_json::{Map, Value, json};

/// Formats the outcome of the session, with the permission that could be asked for, if none was.
pub(crate) fn outcome_json(
    outcome: &Outcome,
    session: &str,
    permission: Option<Permission>,
) -> Value {
    let blocked_by = outcome.blocked_by();
    let mut object = Map::new();
    stream(&mut object, "stdout", &outcome.stdout);
    stream(&mut object, "stderr", &outcome.stderr);
    let rest = json!({
        "session": session,
        "exitCode": outcome.exit_code(),
        "blocked": outcome.is_blocked(),
        "blockedReason": blocked_by.map(|denial| format!("{} ({})", denial.rule, denial.origin)),
        "blockedResource": blocked_by.map(|denial| &denial.target),
        "permission": permission,
        "denials": outcome.denials,
        "denialsDropped": outcome.denials_dropped,
        "granted": outcome.granted,
        "connections": outcome.connections,
        "connectionsDropped": outcome.connections_dropped,
        "timedOut": outcome.timed_out,
        "breaches": outcome.breaches,
        "truncated": outcome.stdout.dropped > 0 || outcome.stderr.dropped > 0,
        "durationMs": outcome.duration_ms,
        "usage": outcome.usage,
        "enforced": outcome.enforced,
        "gaps": outcome.gaps,
        "quarantined": outcome.quarantined,
    });
    if let Value::Object(rest) = rest {
        object.extend(rest);
    }
    if let Some(refusal) = &outcome.refusal {
        object.insert("refusal".into(), json!(refusal));
    }
    if let Some(observed) = &outcome.observed {
        object.insert("allowed".into(), json!(observed.allowed));
        object.insert("allowedDropped".into(), observed.dropped.into());
    }
    Value::Object(object)
}

/// Adds the output of background processes, if any.
pub(crate) fn add_background(object: &mut Value, output: &StreamOutput) {
    if let Value::Object(object) = object
        && *output != StreamOutput::default()
    {
        stream(object, "background", output);
    }
}

/// Adds a stream as text; if it is not UTF-8, also as base64.
fn stream(object: &mut Map<String, Value>, name: &str, output: &StreamOutput) {
    let bytes = output.bytes();
    match String::from_utf8(bytes) {
        Ok(text) => {
            object.insert(name.into(), text.into());
        }
        Err(error) => {
            object.insert(name.into(), String::from_utf8_lossy(error.as_bytes()).into());
            object.insert(format!("{name}Base64"), base64(error.as_bytes()).into());
        }
    }
    if output.dropped > 0 {
        object.insert(format!("{name}Dropped"), output.dropped.into());
    }
}
