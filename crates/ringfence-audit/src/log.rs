//! The writer of the log.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence_policy::Fsync;
use rustix::fs::{OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use crate::chain::seal;
use crate::directory::{LogDir, file_name};
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LogHead, LogLock, LogLockMode};
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
    head: OwnedFd,
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
        let head = directory.open_writable(head::NAME, OFlags::empty())?;
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
        let is_gone =
            rustix::fs::fstat(&self.head).during("stat", self.files.head_path())?.st_nlink == 0;
        if is_gone {
            *self = AuditLog::open(&self.files.directory.path.clone(), self.options)?;
        }
        Ok(())
    }
}

/// A writer that holds the lock.
struct LogWriter<'a> {
    head: &'a OwnedFd,
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
        // Above this limit the kernel also kills the process (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| last.length > limit) {
            return Err(Errno::FBIG).during("write", path);
        }
        let file = self.files.file(end.file)?;
        let written = match retry_on_intr(|| rustix::io::write(file, lines)) {
            // A short write means the disk is full.
            Ok(length) if length < lines.len() => Err(Errno::NOSPC),
            other => other.map(drop),
        };
        let done = written
            .during("write", path)
            .and_then(|()| last.store(self.head, &self.files.head_path()));
        if done.is_err() {
            // If this fails too, the next writer truncates it.
            let _ = rustix::fs::ftruncate(self.files.file(end.file)?, end.length);
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

/// The files of the log; the last one is open.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub(crate) directory: LogDir,
    current: Option<(u64, OwnedFd)>,
}

impl LogFiles {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.directory.path_of(&file_name(number))
    }

    pub(crate) fn head_path(&self) -> PathBuf {
        self.directory.path_of(head::NAME)
    }

    /// The file with this number; created if it is missing.
    pub(crate) fn file(&mut self, number: u64) -> Result<&OwnedFd, AuditError> {
        let is_open = self.current.as_ref().is_some_and(|(open, _)| *open == number);
        if !is_open {
            self.current =
                Some((number, self.directory.open_writable(&file_name(number), OFlags::APPEND)?));
        }
        Ok(&self.current.as_ref().expect("opened just above").1)
    }

    /// The status of that file. A file that was removed while open is opened again.
    pub(crate) fn status(&mut self, number: u64) -> Result<Stat, AuditError> {
        let path = self.path(number);
        let status = rustix::fs::fstat(self.file(number)?).during("stat", &path)?;
        if status.st_nlink > 0 {
            return Ok(status);
        }
        self.current = None;
        rustix::fs::fstat(self.file(number)?).during("stat", &path)
    }

    fn sync(&self, head: &OwnedFd) -> Result<(), AuditError> {
        if let Some((number, file)) = &self.current {
            rustix::fs::fdatasync(file).during("sync", self.path(*number))?;
        }
        rustix::fs::fdatasync(head).during("sync", self.head_path())?;
        // The directory entries of new files.
        rustix::fs::fsync(&self.directory.fd).during("sync", &self.directory.path)
    }
}
