//! Server-sent events.

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

/// Decodes RFC 4648 base64 with padding; `None` if it is invalid.
pub(super) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | u32::from(value(byte)?);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    text.len().is_multiple_of(4).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips() {
        for bytes in [&b""[..], b"\xff", b"\xff\x00", b"\xff\x00z", b"any carnal pleas"] {
            assert_eq!(decode_base64(&ringfence_api::base64(bytes)).as_deref(), Some(bytes));
        }
        assert_eq!(decode_base64("a"), None);
        assert_eq!(decode_base64("a$=="), None);
    }
}
