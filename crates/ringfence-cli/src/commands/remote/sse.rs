//! Server-sent events.

use ringfence_api::decode_base64;
use serde_json::Value;

use super::RemoteError;
use super::wire::HttpResponse;

/// A server-sent event.
pub(super) struct SseEvent {
    pub(super) name: String,
    pub(super) data: Value,
}

/// Reads the next event; `None` at the end of the stream.
pub(super) fn next_event(answer: &mut HttpResponse) -> Result<Option<SseEvent>, RemoteError> {
    let (mut name, mut data) = (String::new(), Vec::new());
    while let Some(line) = answer.line()? {
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" if !line.is_empty() => {}
            "" if data.is_empty() => name.clear(),
            "" => {
                return Ok(Some(SseEvent {
                    name,
                    data: serde_json::from_str(&data.join("\n")).unwrap_or_default(),
                }));
            }
            "event" => name = value.to_owned(),
            "data" => data.push(value.to_owned()),
            _ => {}
        }
    }
    Ok(None)
}

/// Returns the exact bytes of an output event.
pub(super) fn event_bytes(data: &Value) -> Vec<u8> {
    let exact = data["base64"].as_str().and_then(decode_base64);
    exact.unwrap_or_else(|| data["text"].as_str().unwrap_or_default().as_bytes().to_vec())
}
