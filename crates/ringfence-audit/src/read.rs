//! Reads the log while other processes write.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use crate::directory::{LogDir, file_name};
use crate::error::{AuditError, AuditStep};

/// The lines of a log, oldest first. At the end, a later call returns the lines written meanwhile,
/// in the same file or a new one.
#[derive(Debug)]
pub struct LogReader {
    directory: LogDir,
    current: Option<OpenLogFile>,
    /// Files last written before this time are skipped.
    since_ms: u64,
}

#[derive(Debug)]
struct OpenLogFile {
    number: u64,
    reader: BufReader<File>,
    /// The offset of the next line.
    offset: u64,
    /// The number of that line, from 0.
    line: u64,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// The name of its file.
    pub file: String,
    /// The line number, from 1.
    pub number: u64,
    /// The content, without the newline.
    pub bytes: Vec<u8>,
}

impl LogReader {
    /// Opens the log in `path`, without files that hold only records before `since_ms`; `None` if
    /// there is no log.
    pub fn open(path: &Path, since_ms: u64) -> Result<Option<LogReader>, AuditError> {
        Ok(LogDir::open_for_reading(path)?.map(|directory| LogReader {
            directory,
            current: None,
            since_ms,
        }))
    }

    /// The next complete line; `None` if there is none yet.
    pub fn line(&mut self) -> Result<Option<LogLine>, AuditError> {
        loop {
            if let Some(open) = &mut self.current {
                let name = file_name(open.number);
                if let Some(bytes) = open.line().during("read", self.directory.path_of(&name))? {
                    return Ok(Some(LogLine { file: name, number: open.line, bytes }));
                }
            }
            if !self.open_next_file()? {
                return Ok(None);
            }
        }
    }

    /// Opens the next file, if there is one.
    fn open_next_file(&mut self) -> Result<bool, AuditError> {
        let done = self.current.as_ref().map_or(0, |open| open.number);
        let mut later: VecDeque<u64> =
            self.directory.file_numbers()?.into_iter().filter(|number| *number > done).collect();
        while let Some(number) = later.pop_front() {
            let Some(file) = self.directory.open_readable(&file_name(number))? else { continue };
            let is_old = !later.is_empty()
                && modified_ms(&file).is_some_and(|modified| modified < self.since_ms);
            if !is_old {
                self.current = Some(OpenLogFile {
                    number,
                    reader: BufReader::with_capacity(256 * 1024, file),
                    offset: 0,
                    line: 0,
                });
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl OpenLogFile {
    fn line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.reader.read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            // A writer is not finished, or the line will be truncated: read it again later.
            if !bytes.is_empty() {
                self.reader.seek(SeekFrom::Start(self.offset))?;
            }
            return Ok(None);
        }
        self.offset += bytes.len() as u64;
        self.line += 1;
        bytes.pop();
        Ok(Some(bytes))
    }
}

fn modified_ms(file: &File) -> Option<u64> {
    let modified = file.metadata().ok()?.modified().ok()?;
    Some(modified.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis() as u64)
}
