//! Selects the records to show.

use ringfence_audit::parse_rfc3339;
use serde_json::{Map, Value};

use super::LogArgs;
use crate::commands::resolve_args::parse_duration_ms;
use crate::error::CliError;

/// The conditions that a record must meet.
#[derive(Debug, Default)]
pub(super) struct RecordFilter {
    /// The earliest time; 0 means no limit.
    pub(super) since_ms: u64,
    agent: Option<String>,
    session: Option<String>,
    operation: Option<String>,
    result: Option<&'static str>,
}

impl RecordFilter {
    pub(super) fn from_args(arguments: &LogArgs, now_ms: u64) -> Result<Self, CliError> {
        Ok(Self {
            since_ms: arguments.since.as_deref().map_or(Ok(0), |word| since(word, now_ms))?,
            agent: arguments.agent.clone(),
            session: arguments.session.clone(),
            operation: arguments.operation.clone(),
            result: arguments.blocked_only.then_some("blocked"),
        })
    }

    pub(super) fn matches(&self, record: &Map<String, Value>) -> bool {
        let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or_default();
        let is = |wanted: Option<&str>, key: &str| wanted.is_none_or(|wanted| text(key) == wanted);
        is(self.agent.as_deref(), "agent")
            && is(self.operation.as_deref(), "operation")
            && is(self.result, "result")
            && self.session.as_deref().is_none_or(|part| {
                text("session").starts_with(part) || text("session").ends_with(part)
            })
            && (self.since_ms == 0
                || parse_rfc3339(text("timestamp")).is_some_and(|moment| moment >= self.since_ms))
    }
}

/// Parses a point in time, or a duration before now.
fn since(word: &str, now_ms: u64) -> Result<u64, CliError> {
    let days = || word.strip_suffix('d')?.parse::<u64>().ok()?.checked_mul(86_400_000);
    let ago = days().or_else(|| parse_duration_ms(word).ok()).map(|ago| now_ms.saturating_sub(ago));
    ago.or_else(|| parse_rfc3339(word)).ok_or_else(|| CliError::Usage {
        what: format!("`{word}` is neither a duration nor a date"),
        hint: "use for example `--since 2h`, `3d`, `2026-01-28` or `2026-01-28T10:30:00Z`".into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_769_596_205_000;

    #[track_caller]
    fn check_since(word: &str, expect: Option<u64>) {
        assert_eq!(since(word, NOW).ok(), expect, "{word}");
    }

    #[test]
    fn since_accepts_durations_and_dates() {
        check_since("2h", Some(NOW - 7_200_000));
        check_since("90", Some(NOW - 90_000));
        check_since("3d", Some(NOW - 3 * 86_400_000));
        check_since("2026-01-28T10:30:05Z", Some(NOW));
        check_since("2026-01-28", Some(1_769_558_400_000));
        check_since("99999999d", Some(0));
        for nonsense in ["", "d", "yesterday", "2h30", "-2h"] {
            check_since(nonsense, None);
        }
    }

    #[track_caller]
    fn check(choice: RecordFilter, expect: bool) {
        let record = json!({
            "timestamp": "2026-01-28T10:30:05.000Z", "agent": "a", "session": "0199-abc", "operation": "read", "result": "blocked",
        });
        assert_eq!(choice.matches(record.as_object().unwrap()), expect, "{choice:?}");
    }

    #[test]
    fn every_condition_of_a_filter_counts() {
        let some = |text: &str| Some(text.to_owned());
        check(RecordFilter::default(), true);
        check(
            RecordFilter {
                agent: some("a"),
                operation: some("read"),
                result: Some("blocked"),
                ..RecordFilter::default()
            },
            true,
        );
        check(RecordFilter { agent: some("b"), ..RecordFilter::default() }, false);
        check(RecordFilter { operation: some("rea"), ..RecordFilter::default() }, false);
        check(RecordFilter { result: Some("allowed"), ..RecordFilter::default() }, false);
        for (part, expect) in [("0199", true), ("abc", true), ("0199-abc", true), ("99", false)] {
            check(RecordFilter { session: some(part), ..RecordFilter::default() }, expect);
        }
        check(RecordFilter { since_ms: NOW, ..RecordFilter::default() }, true);
        check(RecordFilter { since_ms: NOW + 1, ..RecordFilter::default() }, false);
    }
}
