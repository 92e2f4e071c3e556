//! Searches the log from its end, for recent runs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ringfence_api::Operation;

use crate::directory::{LogDir, file_name};
use crate::error::{AuditError, AuditStep};
use crate::run::{RecordFields, RunRecords, RunSelector};

/// The number of bytes to search, from the end.
const MAX_SEARCH: u64 = 8 << 20;
/// The block size.
const BLOCK_SIZE: u64 = 64 << 10;

/// A recent run, by its full name; `None` if it is not near the end of the log.
///
/// Reads backwards, so that the time does not grow with the log.
pub fn recent_run(log: &Path, session: &str) -> Result<Option<RunRecords>, AuditError> {
    let Some(directory) = LogDir::open_for_reading(log)? else { return Ok(None) };
    let mut left = MAX_SEARCH;
    // The newest first.
    let mut records: Vec<RecordFields> = Vec::new();
    for number in directory.file_numbers()?.into_iter().rev() {
        let name = file_name(number);
        let Some(file) = directory.open_readable(&name)? else { continue };
        let mut lines = ReverseLines::new(file).during("read", directory.path_of(&name))?;
        while left > 0 {
            let Some(line) = lines.next().during("read", directory.path_of(&name))? else { break };
            left = left.saturating_sub(line.len() as u64 + 1);
            let Some(record) = record_of_run(session, &line) else { continue };
            let (is_begin, is_by_text) = (RunRecords::is_start(&record), is_about_text(&record));
            records.push(record);
            // A command that was decided by its text alone never started.
            if is_begin || is_by_text {
                return Ok(RunRecords::last_selected(
                    records.into_iter().rev(),
                    RunSelector::Named(session),
                    |_| false,
                ));
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(None)
}

/// True if a record is about a command that was allowed or denied by its text, before it ran.
fn is_about_text(record: &RecordFields) -> bool {
    record.get("operation").is_some_and(|word| word == Operation::Command.word())
        && record.contains_key("tool")
}

/// The record in a line, if it belongs to this run.
fn record_of_run(session: &str, line: &[u8]) -> Option<RecordFields> {
    // Much faster than to parse each line.
    let is_named = line.windows(session.len()).any(|part| part == session.as_bytes());
    let record: RecordFields = is_named.then(|| serde_json::from_slice(line).ok()).flatten()?;
    (record.get("session")?.as_str()? == session).then_some(record)
}

/// The lines of a file, last first.
struct ReverseLines {
    file: File,
    /// The offset of `kept` in the file.
    start: u64,
    /// The bytes read and not yet returned.
    kept: Vec<u8>,
}

impl ReverseLines {
    fn new(mut file: File) -> io::Result<Self> {
        let start = file.seek(SeekFrom::End(0))?;
        let mut lines = Self { file, start, kept: Vec::new() };
        // The last line is incomplete while it is written.
        lines.next()?;
        Ok(lines)
    }

    /// The next line, without its newline.
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(end) = self.kept.iter().rposition(|byte| *byte == b'\n') {
                let line = self.kept.split_off(end + 1);
                self.kept.pop();
                return Ok(Some(line));
            }
            if self.start == 0 {
                return Ok((!self.kept.is_empty()).then(|| std::mem::take(&mut self.kept)));
            }
            self.read_block()?;
        }
    }

    fn read_block(&mut self) -> io::Result<()> {
        let step = self.start.min(BLOCK_SIZE);
        self.start -= step;
        self.file.seek(SeekFrom::Start(self.start))?;
        let mut block = vec![0; usize::try_from(step).expect("a step fits")];
        self.file.read_exact(&mut block)?;
        block.append(&mut self.kept);
        self.kept = block;
        Ok(())
    }
}
