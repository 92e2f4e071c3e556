//! Finding the end of the log, after whatever happened to the last writer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::os::fd::OwnedFd;

use crate::chain::{ChainLink, RecordHash};
use crate::directory::name_of;
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LogHead};
use crate::log::LogFiles;
use crate::record::{Record, RecordAction, RecordDetails, RecordResult};
use crate::time::now_ms;

/// The end of the log, with everything behind it put right. To be called under the lock.
///
/// A record that is whole is never taken back; half a one, which nobody was told of, is cut
/// off. Where something is missing, that stays to be seen: the next record goes on from what
/// the head says.
pub(crate) fn mended(
    head: &OwnedFd,
    pages: &mut LogFiles,
) -> Result<(LogHead, Vec<RepairNote>), AuditError> {
    let mut notes = Vec::new();
    let mut end = match LogHead::load(head, &pages.head_path())? {
        Some(head) => head,
        None => lost_head(head, pages, &mut notes)?,
    };
    let (name, path) = (name_of(end.file), pages.path(end.file));
    let size = pages.status(end.file)?.st_size as u64;
    let mut note = |reason: String| notes.push(RepairNote { target: name.clone(), reason });
    if size > end.length {
        let file = pages.file(end.file)?;
        let behind = TailScan::read(file, end).during("read", &path)?;
        if behind.torn > 0 {
            rustix::fs::ftruncate(file, size - behind.torn).during("mend", &path)?;
            note(format!("{} bytes of an unfinished record were cut off", behind.torn));
        }
        if behind.foreign > 0 {
            note(format!("{} lines at the end do not continue the chain", behind.foreign));
        }
        end = LogHead { length: size - behind.torn, ..behind.end };
    } else if size < end.length {
        note(format!(
            "{} bytes are missing at the end: cut off, or lost when the machine stopped",
            end.length - size
        ));
        end.length = size + end_line(pages.file(end.file)?, size).during("mend", &path)?;
    }
    Ok((end, notes))
}

/// Something about the log that was not as its last writer meant to leave it.
#[derive(Debug)]
pub(crate) struct RepairNote {
    target: String,
    reason: String,
}

impl RepairNote {
    /// As a record, in the run of the one who found it.
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

/// From the last file, where there is no head to ask.
fn lost_head(
    head: &OwnedFd,
    pages: &mut LogFiles,
    notes: &mut Vec<RepairNote>,
) -> Result<LogHead, AuditError> {
    let Some(number) = pages.directory.numbers()?.pop() else {
        // At once, so that only a head that somebody took is ever missing beside records.
        LogHead::START.store(head, &pages.head_path())?;
        return Ok(LogHead::START);
    };
    // It may be too long as well, and writing in place would leave it so.
    rustix::fs::ftruncate(head, 0).during("mend", pages.head_path())?;
    let path = pages.path(number);
    let whole = TailScan::read(pages.file(number)?, LogHead { file: number, ..LogHead::START })
        .during("read", path)?;
    let (seq, hash) = whole.last.unwrap_or((0, RecordHash::default()));
    notes.push(RepairNote {
        target: head::NAME.into(),
        reason: format!("the head was missing or broken; the log goes on from record {seq}"),
    });
    Ok(LogHead { file: number, length: whole.length, seq, hash })
}

/// Ends the last line of a file that was cut in the middle of it; answers how many bytes
/// that took.
fn end_line(file: &OwnedFd, size: u64) -> rustix::io::Result<u64> {
    let mut last = [b'\n'];
    if size > 0 {
        rustix::io::pread(file, &mut last, size - 1)?;
    }
    if last == *b"\n" { Ok(0) } else { rustix::io::write(file, b"\n").map(|length| length as u64) }
}

/// What stands behind the end that the head names.
struct TailScan {
    /// The end after the records that continue the chain.
    end: LogHead,
    /// How many lines do not.
    foreign: usize,
    /// How many bytes the last line has, if it was not finished.
    torn: u64,
    /// How long the file is without that.
    length: u64,
    /// The last record of all that is whole, whether it continues anything or not.
    last: Option<(u64, RecordHash)>,
}

impl TailScan {
    fn read(file: &OwnedFd, end: LogHead) -> io::Result<TailScan> {
        let mut file = File::from(file.try_clone()?);
        file.seek(SeekFrom::Start(end.length))?;
        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut behind = TailScan { end, foreign: 0, torn: 0, length: end.length, last: None };
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line)? > 0 {
            let Some(content) = line.strip_suffix(b"\n") else {
                behind.torn = line.len() as u64;
                break;
            };
            behind.length += line.len() as u64;
            let sealed = ChainLink::read(content).filter(ChainLink::is_whole);
            behind.last = sealed.map(|sealed| (sealed.seq, sealed.hash)).or(behind.last);
            match sealed {
                Some(sealed)
                    if sealed.seq == behind.end.seq + 1 && sealed.previous == behind.end.hash =>
                {
                    behind.end = LogHead { seq: sealed.seq, hash: sealed.hash, ..behind.end };
                }
                _ => behind.foreign += 1,
            }
            line.clear();
        }
        Ok(behind)
    }
}
