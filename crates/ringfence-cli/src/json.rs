//! Outcomes as JSON.

use ringfence_api::{Outcome, Output};
use serde_json::{Map, Value, json};

/// The outcome as one object, in the words of the interface.
pub(crate) fn outcome(outcome: &Outcome) -> Value {
    let first = outcome.denials.first();
    let mut object = Map::new();
    stream(&mut object, "stdout", &outcome.stdout);
    stream(&mut object, "stderr", &outcome.stderr);
    let rest = json!({
        "exitCode": outcome.exit_code(),
        "blocked": outcome.blocked(),
        "blockedReason": first.filter(|_| outcome.blocked()).map(|denial| format!("{} ({})", denial.rule, denial.origin)),
        "blockedResource": first.filter(|_| outcome.blocked()).map(|denial| &denial.target),
        "denials": outcome.denials,
        "timedOut": outcome.timed_out,
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
    Value::Object(object)
}

/// Text where it is text; bytes that are not are given exactly beside it.
fn stream(object: &mut Map<String, Value>, name: &str, output: &Output) {
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

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { digit as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[track_caller]
    fn check(input: &[u8], expect: &str) {
        assert_eq!(super::base64(input), expect);
    }

    #[test]
    fn base64_is_the_usual_one() {
        check(b"", "");
        check(b"f", "Zg==");
        check(b"fo", "Zm8=");
        check(b"foo", "Zm9v");
        check(b"\xff\x00\xfe", "/wD+");
    }
}
