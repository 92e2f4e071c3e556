//! Records for people.

use serde_json::{Map, Value};

use crate::output::{ColorMode, cell, printable};

/// Rows of a table, as records come.
#[derive(Debug)]
pub(crate) struct LogTable {
    /// Of the terminal; nothing is cut where there is none.
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

    /// One record. On a terminal the day stands above the rows it has.
    pub(crate) fn row(&mut self, record: &Map<String, Value>) -> String {
        let text = |key: &str| printable(record.get(key).and_then(Value::as_str).unwrap_or("-"));
        let (result, what) = (text("result"), what(record));
        let columns =
            format!("{}  {}  ", cell(&text("agent"), AGENT), cell(&text("operation"), OPERATION));
        let shown = cell(&result, RESULT);
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
        let time = cell(time.get(..8).unwrap_or(time), 8);
        let left = width.saturating_sub(8 + 2 + AGENT + 2 + OPERATION + 2 + RESULT + 2);
        let what = cell(&what, left);
        let row = format!("{}  {columns}{painted}  {}\n", self.paint.faint(&time), what.trim_end());
        if day == self.day {
            return row;
        }
        self.day = day.to_owned();
        format!("{}\n{row}", self.paint.strong(&format!("{day} UTC")))
    }
}

/// The target, and what became of it.
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
    fn a_pipe_gets_whole_rows() {
        let row = LogTable::new(None, ColorMode::Plain).row(&record());
        let expect = "2026-01-28T10:30:05.000Z  -             create      blocked  /p/\u{fffd}[2Jevil\\n\u{fffd} ×2  (r)\n";
        assert_eq!(row, expect);
    }

    #[test]
    fn a_terminal_gets_rows_that_fit_under_their_days() {
        let mut table = LogTable::new(Some(60), ColorMode::Plain);
        let expect =
            "10:30:05  -             create      blocked  /p/\u{fffd}[2Jevil\\n\u{fffd}…\n";
        assert_eq!(table.row(&record()), format!("2026-01-28 UTC\n{expect}"));
        assert_eq!(table.row(&record()), expect);
        assert!(expect.trim_end().chars().count() <= 60);
        assert!(table.row(&Map::new()).starts_with("- UTC\n"));
    }
}
