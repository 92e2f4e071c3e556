//! Verifies the log.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::chain::{ChainLink, RecordHash};
use crate::directory::{LogDir, file_name};
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LogHead, LogLock, LogLockMode};

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The number of records.
    pub records: u64,
    /// The number of files.
    pub files: usize,
    /// The end according to the head.
    pub head: Option<LogHead>,
    /// The findings, in the order of the files.
    pub findings: Vec<VerifyFinding>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyFinding {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u64>,
    /// The flaw.
    pub flaw: LogFlaw,
}

impl fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.flaw),
            None => write!(f, "{}: {}", self.file, self.flaw),
        }
    }
}

/// Flaws of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "code")]
#[allow(missing_docs)]
pub enum LogFlaw {
    #[error("this line is not a record")]
    NoRecord,
    #[error("record {seq} was changed: its content does not match its hash")]
    Changed { seq: u64 },
    #[error("record {seq} does not continue the one before it")]
    Unlinked { seq: u64 },
    #[error("{} before this line", missing(.from, .to))]
    Missing { from: u64, to: u64 },
    #[error("record {seq} comes after record {after}: it was moved or copied")]
    Misplaced { seq: u64, after: u64 },
    #[error("{} at the end: truncated, or lost in a power failure", missing(.from, .to))]
    Cut { from: u64, to: u64 },
    #[error("the last record is unfinished; the next writer removes it")]
    Unfinished,
    #[error("this file of the log is missing")]
    NoFile,
    #[error("this file does not belong to the log, which ends before it")]
    Foreign,
    #[error("the head file is missing or broken")]
    NoHead,
    #[error("the head file has a different hash for record {seq}")]
    OtherHead { seq: u64 },
    #[error("no record has the hash {hash}")]
    Unknown { hash: RecordHash },
}

impl LogFlaw {
    /// True for a change of the log. An unfinished record was never part of it.
    pub fn is_tampering(&self) -> bool {
        *self != LogFlaw::Unfinished
    }
}

fn missing(from: &u64, to: &u64) -> String {
    if from == to {
        format!("record {from} is missing")
    } else {
        format!("records {from} to {to} are missing")
    }
}

impl VerifyReport {
    /// True if nothing was changed, removed, moved or truncated.
    pub fn is_intact(&self) -> bool {
        !self.findings.iter().any(|finding| finding.flaw.is_tampering())
    }
}

/// Verifies every record of the log in `path`. The log must also contain the hashes in `kept`,
/// which the user stored elsewhere.
pub fn verify(path: &Path, kept: &[RecordHash]) -> Result<VerifyReport, AuditError> {
    let mut walk = LogWalk {
        report: VerifyReport::default(),
        kept: kept.to_vec(),
        next: 1,
        before: None,
        unreadable: 0,
    };
    if let Some(directory) = LogDir::open_for_reading(path)? {
        walk.all(&directory)?;
    }
    for hash in std::mem::take(&mut walk.kept) {
        walk.find("head", None, LogFlaw::Unknown { hash });
    }
    Ok(walk.report)
}

/// The number of missing files in a row that are reported one by one.
const MAX_MISSING_FILES: usize = 100;

struct LogWalk {
    report: VerifyReport,
    kept: Vec<RecordHash>,
    /// The expected record number.
    next: u64,
    /// The accepted values of the next `previous`: the hash in the last record, and its actual
    /// hash. `None` if the last line has neither.
    before: Option<(RecordHash, RecordHash)>,
    /// The number of unreadable lines since the last record.
    unreadable: u64,
}

impl LogWalk {
    fn find(&mut self, file: &str, line: Option<u64>, flaw: LogFlaw) {
        self.report.findings.push(VerifyFinding { file: file.to_owned(), line, flaw });
    }

    fn all(&mut self, directory: &LogDir) -> Result<(), AuditError> {
        let snapshot = LogSnapshot::take(directory)?;
        self.report.head = snapshot.head;
        self.report.files = snapshot.files.len();
        self.before = Some((RecordHash::default(), RecordHash::default()));
        let mut expected = 1;
        for (number, size) in &snapshot.files {
            for absent in (expected..*number).take(MAX_MISSING_FILES) {
                self.find(&file_name(absent), None, LogFlaw::NoFile);
            }
            expected = number + 1;
            if snapshot.head.is_some_and(|head| *number > head.file) {
                // A writer that was killed may have created an empty next file.
                if *size > 0 {
                    self.find(&file_name(*number), None, LogFlaw::Foreign);
                }
                continue;
            }
            self.file(directory, *number, *size)?;
        }
        match snapshot.head {
            Some(head) => {
                for absent in (expected..=head.file).take(MAX_MISSING_FILES) {
                    self.find(&file_name(absent), None, LogFlaw::NoFile);
                }
                if head.seq >= self.next {
                    self.find(
                        &file_name(head.file),
                        None,
                        LogFlaw::Cut { from: self.next, to: head.seq },
                    );
                }
            }
            None if self.report.files > 0 => self.find(head::NAME, None, LogFlaw::NoHead),
            None => {}
        }
        Ok(())
    }

    fn file(&mut self, directory: &LogDir, number: u64, size: u64) -> Result<(), AuditError> {
        let name = file_name(number);
        let Some(file) = directory.open_readable(&name)? else { return Ok(()) };
        let mut reader = BufReader::with_capacity(256 * 1024, file.take(size));
        let mut bytes = Vec::new();
        let mut line = 0;
        while reader.read_until(b'\n', &mut bytes).during("read", directory.path_of(&name))? > 0 {
            line += 1;
            match bytes.strip_suffix(b"\n") {
                Some(content) => self.line(&name, line, content),
                None => self.find(&name, Some(line), LogFlaw::Unfinished),
            }
            bytes.clear();
        }
        Ok(())
    }

    fn line(&mut self, file: &str, line: u64, content: &[u8]) {
        let Some(sealed) = ChainLink::read(content) else {
            self.unreadable += 1;
            return self.find(file, Some(line), LogFlaw::NoRecord);
        };
        self.report.records += 1;
        let ChainLink { seq, previous, hash, actual } = sealed;
        if !sealed.is_valid() {
            self.find(file, Some(line), LogFlaw::Changed { seq });
            if seq != self.next {
                // The number itself may have been changed.
                self.unreadable += 1;
                return;
            }
        }
        self.kept.retain(|kept| *kept != actual);
        if seq < self.next {
            return self.find(file, Some(line), LogFlaw::Misplaced { seq, after: self.next - 1 });
        }
        if seq > self.next + self.unreadable {
            self.find(file, Some(line), LogFlaw::Missing { from: self.next, to: seq - 1 });
        } else if seq == self.next
            && self.before.is_some_and(|(said, had)| previous != said && previous != had)
        {
            self.find(file, Some(line), LogFlaw::Unlinked { seq });
        }
        if self
            .report
            .head
            .is_some_and(|head| head.seq == seq && head.hash != hash && head.hash != actual)
        {
            self.find(file, Some(line), LogFlaw::OtherHead { seq });
        }
        (self.next, self.before, self.unreadable) = (seq + 1, Some((hash, actual)), 0);
    }
}

/// The head and the files at one time, under the lock.
struct LogSnapshot {
    head: Option<LogHead>,
    /// Numbers and sizes.
    files: Vec<(u64, u64)>,
}

impl LogSnapshot {
    fn take(directory: &LogDir) -> Result<LogSnapshot, AuditError> {
        let path = directory.path_of(head::NAME);
        let file = directory.open_readable(head::NAME)?;
        let _lock = file
            .as_ref()
            .map(|file| LogLock::take(file, &path, LogLockMode::Shared))
            .transpose()?;
        let head = file.as_ref().map(|file| LogHead::load(file, &path)).transpose()?.flatten();
        let mut files = Vec::new();
        for number in directory.file_numbers()? {
            let Some(file) = directory.open_readable(&file_name(number))? else { continue };
            let size = file.metadata().during("stat", directory.path_of(&file_name(number)))?.len();
            files.push((number, size));
        }
        Ok(LogSnapshot { head, files })
    }
}
