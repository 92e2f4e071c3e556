//! Formats records as a table.

use serde_json::{Map, Value};

use crate::output::{ColorMode, fit_cell, printable};

/// A table, written row by row.
#[derive(Debug)]
pub(crate) struct LogTable {
    /// The terminal width; without a terminal, rows are not cut.
    width: Option<usize>,
    paint: ColorMode,
    /// The day of the last row.
    day: String,
}

const AGENT: usize = 12;
const OPERATION: usize = 10;
const RESULT: usize = 7;

impl LogTable {
    pub(crate) fn new(width: Option<usize>, paint: ColorMode) -> Self {
        Self { width, paint, day: String::new() }
    }

    /// Formats one record. On a terminal, a line with the date precedes the rows of each day.
    pub(crate) fn row(&mut self, record: &Map<String, Value>) -> String {
        let text = |key: &str| printable(record.get(key).and_then(Value::as_str).unwrap_or("-"));
        let (result, what) = (text("result"), what(record));
        let columns = format!(
            "{}  {}  ",
            fit_cell(&text("agent"), AGENT),
            fit_cell(&text("operation"), OPERATION)
        );
        let shown = fit_cell(&result, RESULT);
        let painted = match result.as_str() {
            "blocked" => self.paint.bad(&shown),
            "failed" => self.paint.weak(&shown),
            _ => shown,
        };
        let moment = text("timestamp");
        let Some(width) = self.width else {
            return format!("{moment}  {columns}{painted}  {what}\n");
        };
        let (day, time) = moment.split_once('T').unwrap_or((&moment, ""));
        let time = fit_cell(time.get(..8).unwrap_or(time), 8);
        let left = width.saturating_sub(8 + 2 + AGENT + 2 + OPERATION + 2 + RESULT + 2);
        let what = fit_cell(&what, left);
        let row = format!("{}  {columns}{painted}  {}\n", self.paint.faint(&time), what.trim_end());
        if day == self.day {
            return row;
        }
        self.day = day.to_owned();
        format!("{}\n{row}", self.paint.strong(&format!("{day} UTC")))
    }
}

/// Returns the target, with its exit status, count and reason.
fn what(record: &Map<String, Value>) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str).map(printable);
    let mut what = text("target").unwrap_or_default();
    if let Some(status) = record.get("exitCode") {
        what.push_str(&format!(" → {status}"));
    }
    if let Some(count) = record.get("count").and_then(Value::as_u64).filter(|count| *count > 1) {
        what.push_str(&format!(" ×{count}"));
    }
    if let Some(reason) = text("reason") {
        what.push_str(&format!("  ({reason})"));
    }
    what
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record() -> Map<String, Value> {
        let value = json!({
            "timestamp": "2026-01-28T10:30:05.000Z", "agent": null, "session": "s", "operation": "create",
            "target": "/p/\u{1b}[2Jevil\n\u{202e}", "result": "blocked", "policy": "p", "reason": "r", "count": 2,
        });
        value.as_object().unwrap().clone()
    }

    #[test]
    fn pipe_gets_uncut_rows() {
        let row = LogTable::new(None, ColorMode::Plain).row(&record());
        let expect = "2026-01-28T10:30:05.000Z  -             create      blocked  /p/\u{fffd}[2Jevil\\n\u{fffd} ×2  (r)\n";
        assert_eq!(row, expect);
    }

    #[test]
    fn terminal_gets_cut_rows_below_their_date() {
        let mut table = LogTable::new(Some(60), ColorMode::Plain);
        let expect =
            "10:30:05  -             create      blocked  /p/\u{fffd}[2Jevil\\n\u{fffd}…\n";
        assert_eq!(table.row(&record()), format!("2026-01-28 UTC\n{expect}"));
        assert_eq!(table.row(&record()), expect);
        assert!(expect.trim_end().chars().count() <= 60);
        assert!(table.row(&Map::new()).starts_with("- UTC\n"));
    }
}
