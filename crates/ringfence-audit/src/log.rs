//! Writing.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence_policy::Fsync;
use rustix::fs::{OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use crate::chain::seal;
use crate::directory::{LogDir, name_of};
use crate::error::{AuditError, AuditStep};
use crate::head::{self, LockMode, LogHead, LogLock};
use crate::record::Record;
use crate::repair::mended;

/// How a log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// When it is forced onto the disk.
    pub fsync: Fsync,
    /// A file that would become larger is left, and another begun.
    pub rotate_bytes: u64,
}

/// A log that is open for writing; any number of them may be, in any number of processes.
#[derive(Debug)]
pub struct AuditLog {
    head: OwnedFd,
    pages: LogFiles,
    options: LogOptions,
}

impl AuditLog {
    /// Opens the log in `path`, and makes the directory if it is missing.
    ///
    /// The last two components of `path` are ringfence's own: no link is followed there, and
    /// nobody else may be able to write in them.
    pub fn open(path: &Path, options: LogOptions) -> Result<AuditLog, AuditError> {
        let directory = LogDir::make(path)?;
        let head = directory.writable(head::NAME, OFlags::empty())?;
        Ok(AuditLog { head, pages: LogFiles { directory, current: None }, options })
    }

    /// Writes records, all behind each other, and answers the new end of the log.
    ///
    /// When this returns, no crash of this or any other process takes them back. If it fails,
    /// none of those that are not on an earlier page was written.
    pub fn append(&mut self, records: &[Record]) -> Result<LogHead, AuditError> {
        self.stay()?;
        let path = self.pages.head_path();
        let _lock = LogLock::take(&self.head, &path, LockMode::Nobody)?;
        let (end, notes) = mended(&self.head, &mut self.pages)?;
        let Some(first) = records.first() else { return Ok(end) };
        let notes: Vec<Record> = notes.into_iter().map(|note| note.record(first)).collect();
        let mut writer =
            LogWriter { head: &self.head, pages: &mut self.pages, options: self.options };
        writer.put(end, notes.iter().chain(records))
    }

    /// Forces what was written onto the disk, if the options say at the end of a run.
    pub fn finish(&mut self) -> Result<(), AuditError> {
        if self.options.fsync == Fsync::End { self.pages.sync(&self.head) } else { Ok(()) }
    }

    /// Opens everything anew if somebody took the files away.
    fn stay(&mut self) -> Result<(), AuditError> {
        let is_gone =
            rustix::fs::fstat(&self.head).during("look at", self.pages.head_path())?.st_nlink == 0;
        if is_gone {
            *self = AuditLog::open(&self.pages.directory.path.clone(), self.options)?;
        }
        Ok(())
    }
}

/// Whoever holds the lock.
struct LogWriter<'a> {
    head: &'a OwnedFd,
    pages: &'a mut LogFiles,
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

    /// Goes from `end` to `last` by writing `lines`: all of them, or none.
    fn write(&mut self, end: LogHead, last: LogHead, lines: &[u8]) -> Result<(), AuditError> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.pages.path(end.file);
        // Beyond this limit the kernel does not only refuse, it kills (SIGXFSZ).
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| last.length > limit) {
            return Err(Errno::FBIG).during("write", path);
        }
        let file = self.pages.file(end.file)?;
        let written = match retry_on_intr(|| rustix::io::write(file, lines)) {
            // What is left of it would not fit either.
            Ok(length) if length < lines.len() => Err(Errno::NOSPC),
            other => other.map(drop),
        };
        let done = written
            .during("write", path)
            .and_then(|()| last.store(self.head, &self.pages.head_path()));
        if done.is_err() {
            // If this fails too, the next writer cuts it.
            let _ = rustix::fs::ftruncate(self.pages.file(end.file)?, end.length);
        }
        done?;
        if self.options.fsync == Fsync::Always { self.pages.sync(self.head) } else { Ok(()) }
    }

    /// Leaves the page that is full. The head names the next before anything is on it, so that
    /// two writers never disagree on which one that is.
    fn rotate(&mut self, end: LogHead) -> Result<LogHead, AuditError> {
        if self.options.fsync == Fsync::End {
            self.pages.sync(self.head)?;
        }
        let next = LogHead { file: end.file + 1, length: 0, ..end };
        self.pages.file(next.file)?;
        next.store(self.head, &self.pages.head_path())?;
        Ok(next)
    }
}

/// The files that records are written to; the last one is open.
#[derive(Debug)]
pub(crate) struct LogFiles {
    pub(crate) directory: LogDir,
    current: Option<(u64, OwnedFd)>,
}

impl LogFiles {
    pub(crate) fn path(&self, number: u64) -> PathBuf {
        self.directory.at(&name_of(number))
    }

    pub(crate) fn head_path(&self) -> PathBuf {
        self.directory.at(head::NAME)
    }

    /// The file with this number; made if it is missing.
    pub(crate) fn file(&mut self, number: u64) -> Result<&OwnedFd, AuditError> {
        let is_open = self.current.as_ref().is_some_and(|(open, _)| *open == number);
        if !is_open {
            self.current =
                Some((number, self.directory.writable(&name_of(number), OFlags::APPEND)?));
        }
        Ok(&self.current.as_ref().expect("opened just above").1)
    }

    /// Looks at that file; one that lost its name while it was open is opened anew.
    pub(crate) fn status(&mut self, number: u64) -> Result<Stat, AuditError> {
        let path = self.path(number);
        let status = rustix::fs::fstat(self.file(number)?).during("look at", &path)?;
        if status.st_nlink > 0 {
            return Ok(status);
        }
        self.current = None;
        rustix::fs::fstat(self.file(number)?).during("look at", &path)
    }

    fn sync(&self, head: &OwnedFd) -> Result<(), AuditError> {
        if let Some((number, file)) = &self.current {
            rustix::fs::fdatasync(file).during("sync", self.path(*number))?;
        }
        rustix::fs::fdatasync(head).during("sync", self.head_path())?;
        // The names of new files.
        rustix::fs::fsync(&self.directory.fd).during("sync", &self.directory.path)
    }
}
