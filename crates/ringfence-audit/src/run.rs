//! All records of one run.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::AuditError;
use crate::read::LogReader;

/// The fields of a record.
pub type RecordFields = Map<String, Value>;

/// The records of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecords {
    /// The start.
    pub begun: RecordFields,
    /// The denials, in the order of the log.
    pub refused: Vec<RecordFields>,
    /// The connections to allowed hosts that failed.
    pub failed: Vec<RecordFields>,
    /// The quarantined files.
    pub moved: Vec<RecordFields>,
    /// The end; `None` if it still runs, or was killed together with ringfence.
    pub ended: Option<RecordFields>,
}

/// Selects a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelector<'a> {
    /// A run that began in this directory or below it.
    In(&'a Path),
    /// A run whose name begins or ends with this text.
    Named(&'a str),
}

/// The last selected run; `None` if there is none. `is_skipped` gets the start of a run.
pub fn last_run(
    log: &Path,
    which: RunSelector<'_>,
    is_skipped: fn(&RecordFields) -> bool,
) -> Result<Option<RunRecords>, AuditError> {
    let Some(mut reader) = LogReader::open(log, 0)? else { return Ok(None) };
    let mut failed = None;
    let records = std::iter::from_fn(|| match reader.line() {
        Ok(line) => Some(line?.bytes),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    // Lines that are not records are reported by `verify`.
    let found = RunRecords::last_selected(
        records.filter_map(|bytes| serde_json::from_slice::<RecordFields>(&bytes).ok()),
        which,
        is_skipped,
    );
    failed.map_or(Ok(found), Err)
}

/// True for the start of a run. Programs that a command starts have the same operation.
fn is_begin(record: &RecordFields) -> bool {
    text(record, "operation") == "execute" && record.contains_key("command")
}

fn text<'a>(record: &'a RecordFields, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl RunSelector<'_> {
    fn matches(self, begun: &RecordFields) -> bool {
        match self {
            RunSelector::In(directory) => {
                Path::new(text(begun, "cwd")).starts_with(&*directory.to_string_lossy())
            }
            RunSelector::Named(part) => {
                text(begun, "session").starts_with(part) || text(begun, "session").ends_with(part)
            }
        }
    }
}

impl RunRecords {
    /// The last selected run in `records`.
    pub(crate) fn last_selected(
        records: impl Iterator<Item = RecordFields>,
        which: RunSelector<'_>,
        is_skipped: fn(&RecordFields) -> bool,
    ) -> Option<RunRecords> {
        let mut found: Option<RunRecords> = None;
        for record in records {
            if is_begin(&record) && which.matches(&record) && !is_skipped(&record) {
                found = Some(RunRecords {
                    begun: record,
                    refused: Vec::new(),
                    failed: Vec::new(),
                    moved: Vec::new(),
                    ended: None,
                });
            } else if let Some(run) =
                found.as_mut().filter(|run| run.begun.get("session") == record.get("session"))
            {
                run.add(record);
            }
        }
        found
    }

    /// True if a record is the first of a run.
    pub(crate) fn is_start(record: &RecordFields) -> bool {
        is_begin(record)
    }

    fn add(&mut self, record: RecordFields) {
        match (text(&record, "operation"), text(&record, "result")) {
            ("exit", _) => self.ended = Some(record),
            ("quarantine", _) => self.moved.push(record),
            // A denial after a question has its own record.
            ("ask", _) => {}
            ("connect", "failed") => self.failed.push(record),
            (_, "blocked") => self.refused.push(record),
            _ => {}
        }
    }
}
