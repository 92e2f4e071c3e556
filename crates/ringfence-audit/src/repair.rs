//! Finds the end of the log after a crash of the last writer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};

use crate::chain::{ChainLink, RecordHash};
use crate::directory::file_name;
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LogHead};
use crate::log::LogFiles;
use crate::platform;
use crate::record::{Record, RecordAction, RecordDetails, RecordResult};
use crate::time::now_ms;

/// The end of the log, after repair of everything behind it. The caller holds the lock.
///
/// A complete record is never removed; an incomplete one, which was never acknowledged, is
/// truncated. Missing records stay visible as a gap: the next record continues from the head.
pub(crate) fn repaired_end(
    head: &File,
    files: &mut LogFiles,
) -> Result<(LogHead, Vec<RepairNote>), AuditError> {
    let mut notes = Vec::new();
    let mut end = match LogHead::load(head, &files.head_path())? {
        Some(head) => head,
        None => rebuild_head(head, files, &mut notes)?,
    };
    let (name, path) = (file_name(end.file), files.path(end.file));
    let size = files.metadata(end.file)?.len();
    let mut note = |reason: String| notes.push(RepairNote { target: name.clone(), reason });
    if size > end.length {
        let file = files.file(end.file)?;
        let tail = TailScan::read(file, end).during("read", &path)?;
        if tail.torn > 0 {
            file.set_len(size - tail.torn).during("repair", &path)?;
            note(format!("removed {} bytes of an unfinished record", tail.torn));
        }
        if tail.foreign > 0 {
            note(format!("{} lines at the end do not continue the chain", tail.foreign));
        }
        end = LogHead { length: size - tail.torn, ..tail.end };
    } else if size < end.length {
        note(format!(
            "{} bytes are missing at the end: truncated, or lost in a power failure",
            end.length - size
        ));
        end.length = size + terminate_line(files.file(end.file)?, size).during("repair", &path)?;
    }
    Ok((end, notes))
}

/// A damage of the log.
#[derive(Debug)]
pub(crate) struct RepairNote {
    target: String,
    reason: String,
}

impl RepairNote {
    /// The record of the damage, in the run that found it.
    pub(crate) fn record(self, finder: &Record) -> Record {
        Record {
            timestamp: now_ms(),
            agent: finder.agent.clone(),
            session: finder.session.clone(),
            operation: RecordAction::Repair,
            target: self.target,
            result: RecordResult::Failed,
            policy: "audit".into(),
            reason: Some(self.reason),
            details: RecordDetails::None {},
        }
    }
}

/// The end according to the last file, if the head is missing.
fn rebuild_head(
    head: &File,
    files: &mut LogFiles,
    notes: &mut Vec<RepairNote>,
) -> Result<LogHead, AuditError> {
    let Some(number) = files.directory.file_numbers()?.pop() else {
        // Stored at once, so a log with records lacks a head only if it was removed.
        LogHead::START.store(head, &files.head_path())?;
        return Ok(LogHead::START);
    };
    // The head may be too long, and a write in place would leave it so.
    head.set_len(0).during("repair", files.head_path())?;
    let path = files.path(number);
    let whole = TailScan::read(files.file(number)?, LogHead { file: number, ..LogHead::START })
        .during("read", path)?;
    let (seq, hash) = whole.last.unwrap_or((0, RecordHash::default()));
    notes.push(RepairNote {
        target: head::NAME.into(),
        reason: format!(
            "the head file was missing or broken; the log continues after record {seq}"
        ),
    });
    Ok(LogHead { file: number, length: whole.length, seq, hash })
}

/// Terminates the last line of a truncated file. Returns the number of bytes written.
fn terminate_line(mut file: &File, size: u64) -> io::Result<u64> {
    let mut last = [b'\n'];
    if size > 0 {
        platform::read_at(file, &mut last, size - 1)?;
    }
    if last == *b"\n" { Ok(0) } else { file.write(b"\n").map(|length| length as u64) }
}

/// The content behind the end that the head names.
struct TailScan {
    /// The end after the records that continue the chain.
    end: LogHead,
    /// The number of lines that do not.
    foreign: usize,
    /// The length of an unfinished last line, in bytes.
    torn: u64,
    /// The length of the file without it.
    length: u64,
    /// The last complete record, even if it does not continue the chain.
    last: Option<(u64, RecordHash)>,
}

impl TailScan {
    fn read(file: &File, end: LogHead) -> io::Result<TailScan> {
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(end.length))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut tail = TailScan { end, foreign: 0, torn: 0, length: end.length, last: None };
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            let Some(content) = line.strip_suffix(b"\n") else {
                tail.torn = line.len() as u64;
                break;
            };
            tail.length += line.len() as u64;
            let sealed = ChainLink::read(content).filter(ChainLink::is_valid);
            tail.last = sealed.map(|sealed| (sealed.seq, sealed.hash)).or(tail.last);
            match sealed {
                Some(sealed)
                    if sealed.seq == tail.end.seq + 1 && sealed.previous == tail.end.hash =>
                {
                    tail.end = LogHead { seq: sealed.seq, hash: sealed.hash, ..tail.end };
                }
                _ => tail.foreign += 1,
            }
            line.clear();
        }
        Ok(tail)
    }
}
