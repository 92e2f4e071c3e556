//! Windows: a log can be read, not written. Never run, only compiled.
//!
//! Owners and access rules are not read here, so no directory is known to be closed to other users.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::WriteMode;
use crate::directory::LogDir;
use crate::error::{AuditError, AuditStep};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a link itself, which is neither directory nor file.
const NO_LINK: u32 = 0x0020_0000;
/// `FILE_FLAG_BACKUP_SEMANTICS`: opens directories too.
const DIRECTORY: u32 = 0x0200_0000;

/// Fails: it cannot check who else may write there.
pub(crate) fn open_dir_for_writing(path: &Path) -> Result<File, AuditError> {
    unchecked().during("open", path)
}

/// Opens the directory of the log for reading; `None` if there is none.
pub(crate) fn open_dir_for_reading(path: &Path) -> Result<Option<File>, AuditError> {
    let Some(directory) = open(path, NO_LINK | DIRECTORY)? else { return Ok(None) };
    if !directory.metadata().during("stat", path)?.is_dir() {
        return Err(AuditError::Unsafe { path: path.to_owned(), why: "is not a directory".into() });
    }
    Ok(Some(directory))
}

/// Fails, as [`open_dir_for_writing`].
pub(crate) fn open_writable(
    directory: &LogDir,
    name: &str,
    _: WriteMode,
) -> Result<File, AuditError> {
    unchecked().during("open", directory.path_of(name))
}

/// Opens a regular file for reading; `None` if it is missing.
pub(crate) fn open_readable(directory: &LogDir, name: &str) -> Result<Option<File>, AuditError> {
    let path = directory.path_of(name);
    let Some(file) = open(&path, NO_LINK)? else { return Ok(None) };
    if !file.metadata().during("stat", &path)?.is_file() {
        return Err(AuditError::Unsafe { path, why: "is not a regular file".into() });
    }
    Ok(Some(file))
}

/// The names in the directory. Its open handle keeps it from being replaced.
pub(crate) fn entry_names(directory: &LogDir) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&directory.path)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// An open file keeps its name.
pub(crate) fn is_removed(_: &Metadata) -> bool {
    false
}

/// No limit.
pub(crate) fn file_size_limit() -> Option<u64> {
    None
}

pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(bytes, offset)
}

fn open(path: &Path, flags: u32) -> Result<Option<File>, AuditError> {
    /// Others may read and write it, not rename or remove it.
    const SHARE_READ_WRITE: u32 = 1 | 2;
    let opened =
        OpenOptions::new().read(true).share_mode(SHARE_READ_WRITE).custom_flags(flags).open(path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some).during("open", path),
    }
}

fn unchecked<T>() -> io::Result<T> {
    let why = "ringfence cannot check yet on Windows which users may write it";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
