//! Windows: logs go to standard error only. Never run, only compiled.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::LogError;

/// Fails: it cannot check for links that a command made.
pub(crate) fn open_log_file(path: &Path) -> Result<File, LogError> {
    Err(LogError::File { path: path.to_owned(), source: unsupported() })
}

/// Fails: there is no open log file.
pub(crate) fn path_of(_: &File) -> io::Result<PathBuf> {
    Err(unsupported())
}

/// `None`: it cannot be opened again.
pub(crate) fn reopen_stderr() -> Option<File> {
    None
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "ringfence writes no log files on Windows yet")
}
