//! Whether the log is as it was written.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Serialize;

use crate::chain::{ChainLink, RecordHash};
use crate::directory::{LogDir, name_of};
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LockMode, LogHead, LogLock};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many records there are.
    pub records: u64,
    /// In how many files.
    pub files: usize,
    /// The end, as the head names it.
    pub head: Option<LogHead>,
    /// What is not as it should be, in the order of the files.
    pub findings: Vec<VerifyFinding>,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyFinding {
    /// In which file.
    pub file: String,
    /// On which line, from 1.
    pub line: Option<u64>,
    /// What.
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

/// What can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase", tag = "code")]
#[allow(missing_docs)]
pub enum LogFlaw {
    #[error("this line is not a record")]
    NoRecord,
    #[error("record {seq} was changed: it has another hash than it says")]
    Changed { seq: u64 },
    #[error("record {seq} does not continue the one before it")]
    Unlinked { seq: u64 },
    #[error("{} before this line", missing(.from, .to))]
    Missing { from: u64, to: u64 },
    #[error("record {seq} stands behind record {after}: it was moved or copied")]
    Misplaced { seq: u64, after: u64 },
    #[error("{} at the end: the tail was cut off, or lost when the machine stopped", missing(.from, .to))]
    Cut { from: u64, to: u64 },
    #[error("the last record is unfinished; the next writer cuts it off")]
    Unfinished,
    #[error("this file of the log is missing")]
    NoFile,
    #[error("this file is not of the log, which ends before it")]
    Foreign,
    #[error("the head is missing or broken")]
    NoHead,
    #[error("the head names another hash for record {seq}")]
    OtherHead { seq: u64 },
    #[error("no record has the hash {hash}")]
    Unknown { hash: RecordHash },
}

impl LogFlaw {
    /// Whether it tells of a change. A record that was not finished was never part of the log.
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
    /// Whether nothing was changed, removed, moved or cut.
    pub fn is_intact(&self) -> bool {
        !self.findings.iter().any(|finding| finding.flaw.is_tampering())
    }
}

/// Goes through every record of the log in `path`; the hashes in `kept`, which somebody wrote
/// down elsewhere, must be among theirs.
pub fn verify(path: &Path, kept: &[RecordHash]) -> Result<VerifyReport, AuditError> {
    let mut walk = LogWalk {
        report: VerifyReport::default(),
        kept: kept.to_vec(),
        next: 1,
        before: None,
        blind: 0,
    };
    if let Some(directory) = LogDir::find(path)? {
        walk.all(&directory)?;
    }
    for hash in std::mem::take(&mut walk.kept) {
        walk.find("head", None, LogFlaw::Unknown { hash });
    }
    Ok(walk.report)
}

/// More missing files in a row than this are not named one by one.
const MANY: usize = 100;

struct LogWalk {
    report: VerifyReport,
    kept: Vec<RecordHash>,
    /// The record that belongs here.
    next: u64,
    /// What the next one may name as the hash before it: what the last one says it has, and
    /// what it has. `None` if the last line tells neither.
    before: Option<(RecordHash, RecordHash)>,
    /// How many lines since the last record could not be read.
    blind: u64,
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
            for absent in (expected..*number).take(MANY) {
                self.find(&name_of(absent), None, LogFlaw::NoFile);
            }
            expected = number + 1;
            if snapshot.head.is_some_and(|head| *number > head.file) {
                // A writer that was killed may have made the next one, and no more.
                if *size > 0 {
                    self.find(&name_of(*number), None, LogFlaw::Foreign);
                }
                continue;
            }
            self.file(directory, *number, *size)?;
        }
        match snapshot.head {
            Some(head) => {
                for absent in (expected..=head.file).take(MANY) {
                    self.find(&name_of(absent), None, LogFlaw::NoFile);
                }
                if head.seq >= self.next {
                    self.find(
                        &name_of(head.file),
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
        let name = name_of(number);
        let Some(file) = directory.readable(&name)? else { return Ok(()) };
        let mut reader = BufReader::with_capacity(256 * 1024, file.take(size));
        let mut bytes = Vec::new();
        let mut line = 0;
        while reader.read_until(b'\n', &mut bytes).during("read", directory.at(&name))? > 0 {
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
            self.blind += 1;
            return self.find(file, Some(line), LogFlaw::NoRecord);
        };
        self.report.records += 1;
        let ChainLink { seq, previous, hash, actual } = sealed;
        if !sealed.is_whole() {
            self.find(file, Some(line), LogFlaw::Changed { seq });
            if seq != self.next {
                // Its number may be what was changed.
                self.blind += 1;
                return;
            }
        }
        self.kept.retain(|kept| *kept != actual);
        if seq < self.next {
            return self.find(file, Some(line), LogFlaw::Misplaced { seq, after: self.next - 1 });
        }
        if seq > self.next + self.blind {
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
        (self.next, self.before, self.blind) = (seq + 1, Some((hash, actual)), 0);
    }
}

/// What there was at one moment, while nobody wrote.
struct LogSnapshot {
    head: Option<LogHead>,
    /// Number and size.
    files: Vec<(u64, u64)>,
}

impl LogSnapshot {
    fn take(directory: &LogDir) -> Result<LogSnapshot, AuditError> {
        let path = directory.at(head::NAME);
        let file = directory.readable(head::NAME)?.map(std::os::fd::OwnedFd::from);
        let _lock =
            file.as_ref().map(|file| LogLock::take(file, &path, LockMode::Readers)).transpose()?;
        let head = file.as_ref().map(|file| LogHead::load(file, &path)).transpose()?.flatten();
        let mut files = Vec::new();
        for number in directory.numbers()? {
            let Some(file) = directory.readable(&name_of(number))? else { continue };
            let size = file.metadata().during("look at", directory.at(&name_of(number)))?.len();
            files.push((number, size));
        }
        Ok(LogSnapshot { head, files })
    }
}
