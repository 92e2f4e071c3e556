//! Linux and macOS.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::LogError;

/// Opens a log file. A command may have put a symlink, a hard link or a FIFO in its place, or a
/// symlink in the place of one of its directories.
pub(crate) fn open_log_file(path: &Path) -> Result<File, LogError> {
    let fail = |source| LogError::File { path: path.to_owned(), source };
    let absolute = std::path::absolute(path).map_err(fail)?;
    let directory = absolute.parent().unwrap_or(&absolute);
    let real = directory.canonicalize().map_err(fail)?;
    if real != directory {
        return Err(LogError::Linked { path: path.to_owned(), real });
    }
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits() as i32);
    let file = options.open(&absolute).map_err(fail)?;
    let found = file.metadata().map_err(fail)?;
    // A directory may have become a symlink since.
    let opened = path_of(&file).map_err(fail)?;
    if opened != absolute {
        Err(LogError::Linked { path: path.to_owned(), real: opened })
    } else if found.is_file() && found.nlink() == 1 {
        Ok(file)
    } else {
        Err(LogError::NotPlain { path: path.to_owned() })
    }
}

/// The path of an open file.
#[cfg(target_os = "linux")]
pub(crate) fn path_of(file: &File) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The path of an open file.
#[cfg(not(target_os = "linux"))]
pub(crate) fn path_of(file: &File) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let path = rustix::fs::getpath(file)?.into_bytes();
    Ok(std::ffi::OsString::from_vec(path).into())
}

/// Standard error with an open file of its own, so that `O_NONBLOCK` does not reach the command.
/// `None` for a regular file, where writes do not wait, and where it cannot be opened again: on
/// macOS `/dev/fd/2` is the same open file.
pub(crate) fn reopen_stderr() -> Option<File> {
    let is_file = std::fs::metadata("/proc/self/fd/2").is_ok_and(|found| found.is_file());
    let mut options = OpenOptions::new();
    options.write(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
    options.open("/proc/self/fd/2").ok().filter(|_| !is_file)
}
