//! The writer of the log.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ringfence_policy::Fsync;

use crate::chain::seal;
use crate::directory::{LogDir, file_name};
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LogHead, LogLock, LogLockMode};
use crate::platform::{self, WriteMode};
use crate::record::Record;
use crate::repair::repaired_end;

/// Options of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// The times of fsync.
    pub fsync: Fsync,
    /// The size limit of a file; the next record starts a new file.
    pub rotate_bytes: u64,
}

/// A log open for writing. Any number of processes may have it open.
#[derive(Debug)]
pub struct AuditLog {
    head: File,
    files: LogFiles,
    options: LogOptions,
}

impl AuditLog {
    /// Opens the log in `path`, and creates the directory if it is missing.
    ///
    /// The last two components of `path` belong to ringfence: no link is followed there, and no
    /// other user may have write access.
    pub fn open(path: &Path, options: LogOptions) -> Result<AuditLog, AuditError> {
        let directory = LogDir::open_for_writing(path)?;
        let head = directory.open_writable(head::NAME, WriteMode::InPlace)?;
        Ok(AuditLog { head, files: LogFiles { directory, current: None }, options })
    }

    /// Appends records and returns the new end of the log.
    ///
    /// After it returns, no crash of a process loses them. If it fails, only records in an earlier
    /// file were written.
    pub fn append(&mut self, records: &[Record]) -> Result<LogHead, AuditError> {
        self.reopen_if_removed()?;
        let path = self.files.head_path();
        let _lock = LogLock::take(&self.head, &path, LogLockMode::Exclusive)?;
        let (end, notes) = repaired_end(&self.head, &mut self.files)?;
        let Some(first) = records.first() else { return Ok(end) };
        let notes: Vec<Record> = notes.into_iter().map(|note| note.record(first)).collect();
        let mut writer =
            LogWriter { head: &self.head, files: &mut self.files, options: self.options };
        writer.put(end, notes.iter().chain(records))
    }

    /// Calls fsync, if the options say so for the end of a run.
    pub fn finish(&mut self) -> Result<(), AuditError> {
        if self.options.fsync == Fsync::End { self.files.sync(&self.head) } else { Ok(()) }
    }

    /// Reopens the log if its files were removed.
    fn reopen_if_removed(&mut self) -> Result<(), AuditError> {
        let head = self.head.metadata().during("stat", self.files.head_path())?;
        if platform::is_removed(&head) {
            *self = AuditLog::open(&self.files.directory.path.clone(), self.options)?;
        }
        Ok(())
    }
}

/// A writer that holds the lock.
struct LogWriter<'a> {
    head: &'a File,
    files: &'a mut LogFiles,
    options: LogOptions,
}

impl LogWriter<'_> {
    fn put<'a>(
        &mut self,
        mut end: LogHead,
        records: impl Iterator<Item = &'a Record>,
    ) -> Result<LogHead, AuditError> {
        let mut lines = Vec::with_capacity(1024);
        let mut last = end;
        for record in records {
            let before = lines.len();
            let hash = seal(record, last.seq + 1, last.hash, &mut lines);
            let is_first = end.length + before as u64 == 0;
            if !is_first && end.length + lines.len() as u64 > self.options.rotate_bytes {
                let next = lines.split_off(before);
                self.write(end, last, &lines)?;
                end = self.rotate(last)?;
                last = end;
                lines = next;
            }
            last = LogHead {
                file: end.file,
                length: end.length + lines.len() as u64,
                seq: last.seq + 1,
                hash,
            };
        }
        self.write(end, last, &lines)?;
        Ok(last)
    }

    /// Writes `lines` and moves the head from `end` to `last`: all or nothing.
    fn write(&mut self, end: LogHead, last: LogHead, lines: &[u8]) -> Result<(), AuditError> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.files.path(end.file);
        if platform::file_size_limit().is_some_and(|limit| last.length > limit) {
            return Err(io::Error::from(ErrorKind::FileTooLarge)).during("write", path);
        }
        let written = write_once(self.files.file(end.file)?, lines);
        let done = written
            .during("write", path)
            .and_then(|()| last.store(self.head, &self.files.head_path()));
        if done.is_err() {
            // If this fails too, the next writer truncates it.
            let _ = self.files.file(end.file)?.set_len(end.length);
        }
        done?;
        if self.options.fsync == Fsync::Always { self.files.sync(self.head) } else { Ok(()) }
    }

    /// Starts the next file. The head names it before it holds a record, so that two writers never
    /// disagree about the current file.
    fn rotate(&mut self, end: LogHead) -> Result<LogHead, AuditError> {
        if self.options.fsync == Fsync::End {
            self.files.sync(self.head)?;
        }
        let next = LogHead { file: end.file + 1, length: 0, ..end };
        self.files.file(next.file)?;
        next.store(self.head, &self.files.head_path())?;
        Ok(next)
    }
}

/// Writes with one call: a short write means that the disk is full.
fn write_once(mut file: &File, lines: &[u8]) -> io::Result<()> {
    loop {
        match file.write(lines) {
            Ok(length) if length < lines.len() => return Err(ErrorKind::StorageFull.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// The files of the log; the last one is open.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub(crate) directory: LogDir,
    current: Option<(u64, File)>,
}

impl LogFiles {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.directory.path_of(&file_name(number))
    }

    pub(crate) fn head_path(&self) -> PathBuf {
        self.directory.path_of(head::NAME)
    }

    /// The file with this number; created if it is missing.
    pub(crate) fn file(&mut self, number: u64) -> Result<&File, AuditError> {
        let is_open = self.current.as_ref().is_some_and(|(open, _)| *open == number);
        if !is_open {
            self.current = Some((
                number,
                self.directory.open_writable(&file_name(number), WriteMode::Append)?,
            ));
        }
        Ok(&self.current.as_ref().expect("opened just above").1)
    }

    /// The metadata of that file. A file that was removed while open is opened again.
    pub(crate) fn metadata(&mut self, number: u64) -> Result<Metadata, AuditError> {
        let path = self.path(number);
        let metadata = self.file(number)?.metadata().during("stat", &path)?;
        if !platform::is_removed(&metadata) {
            return Ok(metadata);
        }
        self.current = None;
        self.file(number)?.metadata().during("stat", &path)
    }

    fn sync(&self, head: &File) -> Result<(), AuditError> {
        if let Some((number, file)) = &self.current {
            file.sync_data().during("sync", self.path(*number))?;
        }
        head.sync_data().during("sync", self.head_path())?;
        // The directory entries of new files.
        self.directory.file.sync_all().during("sync", &self.directory.path)
    }
}
