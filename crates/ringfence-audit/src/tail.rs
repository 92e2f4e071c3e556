//! The end of the log, for whoever looks for what was written just now.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use ringfence_api::Operation;

use crate::directory::{LogDir, name_of};
use crate::error::{AuditError, AuditStep};
use crate::run::{RecordFields, RunRecords, RunSelector};

/// So much is looked through, from the end.
const LOOKED: u64 = 8 << 20;
/// So much at a time.
const STEP: u64 = 64 << 10;

/// A run of just now, by its whole name; `None` if it is not near the end of the log.
///
/// The log is read backwards, so that it takes no longer the more there is in it.
pub fn recent_run(log: &Path, session: &str) -> Result<Option<RunRecords>, AuditError> {
    let Some(directory) = LogDir::find(log)? else { return Ok(None) };
    let mut left = LOOKED;
    // The newest first.
    let mut records: Vec<RecordFields> = Vec::new();
    for number in directory.numbers()?.into_iter().rev() {
        let name = name_of(number);
        let Some(file) = directory.readable(&name)? else { continue };
        let mut lines = ReverseLines::new(file).during("read", directory.at(&name))?;
        while left > 0 {
            let Some(line) = lines.next().during("read", directory.at(&name))? else { break };
            left = left.saturating_sub(line.len() as u64 + 1);
            let Some(record) = of(session, &line) else { continue };
            let (is_begin, is_text) = (RunRecords::begins(&record), is_about_text(&record));
            records.push(record);
            // What was decided by the text alone never began.
            if is_begin || is_text {
                return Ok(RunRecords::of(records.into_iter().rev(), RunSelector::Named(session)));
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(None)
}

/// Whether a record is about a command that somebody asked to be let through, or refused, by what
/// it says, before it was run.
fn is_about_text(record: &RecordFields) -> bool {
    record.get("operation").is_some_and(|word| word == Operation::Command.word())
        && record.contains_key("tool")
}

/// The record of a line, if it is one of this run.
fn of(session: &str, line: &[u8]) -> Option<RecordFields> {
    // Far quicker than to read each of them.
    let is_named = line.windows(session.len()).any(|part| part == session.as_bytes());
    let record: RecordFields = is_named.then(|| serde_json::from_slice(line).ok()).flatten()?;
    (record.get("session")?.as_str()? == session).then_some(record)
}

/// The lines of a file, last first.
struct ReverseLines {
    file: File,
    /// Where the part that is in `kept` begins.
    start: u64,
    /// What was read and not yet given out.
    kept: Vec<u8>,
}

impl ReverseLines {
    fn new(mut file: File) -> io::Result<Self> {
        let start = file.seek(SeekFrom::End(0))?;
        let mut lines = Self { file, start, kept: Vec::new() };
        // What has no end yet is being written.
        lines.next()?;
        Ok(lines)
    }

    /// The next line, without its end.
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
            self.more()?;
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let step = self.start.min(STEP);
        self.start -= step;
        self.file.seek(SeekFrom::Start(self.start))?;
        let mut block = vec![0; usize::try_from(step).expect("a step fits")];
        self.file.read_exact(&mut block)?;
        block.append(&mut self.kept);
        self.kept = block;
        Ok(())
    }
}
