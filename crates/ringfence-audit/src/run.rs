//! All that is recorded of one run.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::AuditError;
use crate::read::LogReader;

/// A record, as it stands in the log.
pub type RecordFields = Map<String, Value>;

/// The records of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecords {
    /// Of what was to be run.
    pub begun: RecordFields,
    /// Of what was refused in it, in the order of the log.
    pub refused: Vec<RecordFields>,
    /// Of what was moved away when it had ended.
    pub moved: Vec<RecordFields>,
    /// Of its end; `None` if it goes on, or was killed with ringfence.
    pub ended: Option<RecordFields>,
}

/// Which run is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSelector<'a> {
    /// One that began in this directory or below it.
    In(&'a Path),
    /// One whose name begins or ends so.
    Named(&'a str),
}

/// The last run of those that are meant; `None` if there is none.
pub fn last_run(log: &Path, which: RunSelector<'_>) -> Result<Option<RunRecords>, AuditError> {
    let Some(mut reader) = LogReader::open(log, 0)? else { return Ok(None) };
    let mut failed = None;
    let records = std::iter::from_fn(|| match reader.line() {
        Ok(line) => Some(line?.bytes),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    // What is no record is for `verify` to tell of.
    let found = RunRecords::of(
        records.filter_map(|bytes| serde_json::from_slice::<RecordFields>(&bytes).ok()),
        which,
    );
    failed.map_or(Ok(found), Err)
}

/// Programs that a command starts are recorded by the same word.
fn is_begin(record: &RecordFields) -> bool {
    text(record, "operation") == "execute" && record.contains_key("command")
}

fn text<'a>(record: &'a RecordFields, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl RunSelector<'_> {
    fn takes(self, begun: &RecordFields) -> bool {
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
    /// The last run of those that are meant, of records in their order.
    pub(crate) fn of(
        records: impl Iterator<Item = RecordFields>,
        which: RunSelector<'_>,
    ) -> Option<RunRecords> {
        let mut found: Option<RunRecords> = None;
        for record in records {
            if is_begin(&record) && which.takes(&record) {
                found = Some(RunRecords {
                    begun: record,
                    refused: Vec::new(),
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

    /// Whether a record is the first of a run.
    pub(crate) fn begins(record: &RecordFields) -> bool {
        is_begin(record)
    }

    fn add(&mut self, record: RecordFields) {
        match (text(&record, "operation"), text(&record, "result")) {
            ("exit", _) => self.ended = Some(record),
            ("quarantine", _) => self.moved.push(record),
            // What was refused after a question is recorded as such, too.
            ("ask", _) => {}
            (_, "blocked") => self.refused.push(record),
            _ => {}
        }
    }
}
