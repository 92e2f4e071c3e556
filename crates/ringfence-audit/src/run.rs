//! All that is recorded of one run.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::AuditError;
use crate::read::Reader;

/// A record, as it stands in the log.
pub type Fields = Map<String, Value>;

/// The records of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Of what was to be run.
    pub begun: Fields,
    /// Of what was refused in it, in the order of the log.
    pub refused: Vec<Fields>,
    /// Of what was moved away when it had ended.
    pub moved: Vec<Fields>,
    /// Of its end; `None` if it goes on, or was killed with ringfence.
    pub ended: Option<Fields>,
}

/// Which run is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which<'a> {
    /// One that began in this directory or below it.
    In(&'a Path),
    /// One whose name begins or ends so.
    Named(&'a str),
}

/// The last run of those that are meant; `None` if there is none.
pub fn last_run(log: &Path, which: Which<'_>) -> Result<Option<Run>, AuditError> {
    let Some(mut reader) = Reader::open(log, 0)? else { return Ok(None) };
    let mut failed = None;
    let records = std::iter::from_fn(|| match reader.line() {
        Ok(line) => Some(line?.bytes),
        Err(error) => {
            failed = Some(error);
            None
        }
    });
    // What is no record is for `verify` to tell of.
    let found =
        Run::of(records.filter_map(|bytes| serde_json::from_slice::<Fields>(&bytes).ok()), which);
    failed.map_or(Ok(found), Err)
}

/// Programs that a command starts are recorded by the same word.
fn is_begin(record: &Fields) -> bool {
    text(record, "operation") == "execute" && record.contains_key("command")
}

fn text<'a>(record: &'a Fields, key: &str) -> &'a str {
    record.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Which<'_> {
    fn takes(self, begun: &Fields) -> bool {
        match self {
            Which::In(directory) => {
                Path::new(text(begun, "cwd")).starts_with(&*directory.to_string_lossy())
            }
            Which::Named(part) => {
                text(begun, "session").starts_with(part) || text(begun, "session").ends_with(part)
            }
        }
    }
}

impl Run {
    /// The last run of those that are meant, of records in their order.
    pub(crate) fn of(records: impl Iterator<Item = Fields>, which: Which<'_>) -> Option<Run> {
        let mut found: Option<Run> = None;
        for record in records {
            if is_begin(&record) && which.takes(&record) {
                found = Some(Run {
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
    pub(crate) fn begins(record: &Fields) -> bool {
        is_begin(record)
    }

    fn add(&mut self, record: Fields) {
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
