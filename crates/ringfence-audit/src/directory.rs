//! The directory of the log: owned by this user only, and never accessed through a link.

use std::fs::{DirBuilder, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{AuditError, AuditStep};

/// An open directory.
#[derive(Debug)]
pub(crate) struct LogDir {
    pub(crate) fd: OwnedFd,
    pub(crate) path: PathBuf,
}

const NO_LINK: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

impl LogDir {
    /// Opens it for writing, and creates missing directories.
    ///
    /// The last two components belong to ringfence. The directory above belongs to the user, who
    /// may have made it a link.
    pub(crate) fn open_for_writing(path: &Path) -> Result<LogDir, AuditError> {
        let own = path.parent().unwrap_or(Path::new("/"));
        let state = own.parent().unwrap_or(Path::new("/"));
        let open = || {
            rustix::fs::open(
                state,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        let base = match open() {
            Err(Errno::NOENT) => {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(state)
                    .during("create", state)?;
                open()
            }
            other => other,
        };
        let base = base.during("open", state)?;
        check_base(&base, state)?;
        let own_fd = step(&base, own, OFlags::PATH)?;
        let fd = step(&own_fd, path, OFlags::RDONLY)?;
        Ok(LogDir { fd, path: path.to_owned() })
    }

    /// Opens it for reading; `None` if there is none.
    pub(crate) fn open_for_reading(path: &Path) -> Result<Option<LogDir>, AuditError> {
        match rustix::fs::open(path, NO_LINK | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(LogDir { fd, path: path.to_owned() })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).during("open", path),
        }
    }

    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file for reading and writing, and creates it if it is missing.
    pub(crate) fn open_writable(&self, name: &str, flags: OFlags) -> Result<OwnedFd, AuditError> {
        let flags = OFlags::RDWR | OFlags::CREATE | NO_LINK | flags;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))
            .during("open", self.path_of(name))?;
        let status = rustix::fs::fstat(&file).during("stat", self.path_of(name))?;
        let plain = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_nlink == 1;
        if !plain {
            return Err(AuditError::Unsafe {
                path: self.path_of(name),
                why: "is not a regular file with one name".into(),
            });
        }
        check_own(&status, &self.path_of(name))?;
        Ok(file)
    }

    /// Opens a regular file for reading; `None` if it is missing.
    pub(crate) fn open_readable(&self, name: &str) -> Result<Option<File>, AuditError> {
        let file = match rustix::fs::openat(&self.fd, name, OFlags::RDONLY | NO_LINK, Mode::empty())
        {
            Err(Errno::NOENT) => return Ok(None),
            other => other.during("open", self.path_of(name))?,
        };
        let status = rustix::fs::fstat(&file).during("stat", self.path_of(name))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(AuditError::Unsafe {
                path: self.path_of(name),
                why: "is not a regular file".into(),
            });
        }
        Ok(Some(file.into()))
    }

    /// The numbers of the log's files, in order.
    pub(crate) fn file_numbers(&self) -> Result<Vec<u64>, AuditError> {
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.fd.as_fd()).during("read", &self.path)? {
            let entry = entry.during("read", &self.path)?;
            numbers.extend(entry.file_name().to_str().ok().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The name of log file `number`.
pub(crate) fn file_name(number: u64) -> String {
    format!("{number:08}.jsonl")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".jsonl").filter(|digits| digits.len() >= 8)?.parse().ok()?;
    (name == file_name(number)).then_some(number)
}

/// Opens one of ringfence's own directories in `above`; creates it if it is missing.
fn step(above: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, AuditError> {
    let name = path.file_name().unwrap_or_default();
    let open = || {
        rustix::fs::openat(
            above,
            name,
            flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    };
    let opened = match open() {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(above, name, Mode::RWXU) {
                // Another run created it first.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).during("create", path),
            }
            open()
        }
        other => other,
    };
    let directory = opened.during("open", path)?;
    check_own(&rustix::fs::fstat(&directory).during("stat", path)?, path)?;
    Ok(directory)
}

fn check_own(status: &Stat, path: &Path) -> Result<(), AuditError> {
    let unsafe_for = |why: String| Err(AuditError::Unsafe { path: path.to_owned(), why });
    if status.st_uid != rustix::process::geteuid().as_raw() {
        return unsafe_for(format!("belongs to user {}", status.st_uid));
    }
    if status.st_mode & 0o022 != 0 {
        return unsafe_for("can be written by others".into());
    }
    Ok(())
}

/// Refuses a parent directory in which another user could rename our directory and put another in
/// its place. Group write access is accepted: on many systems each user has a group of their own.
fn check_base(base: &OwnedFd, path: &Path) -> Result<(), AuditError> {
    let status = rustix::fs::fstat(base).during("stat", path)?;
    let unsafe_for = |why: String| Err(AuditError::Unsafe { path: path.to_owned(), why });
    if status.st_uid != rustix::process::geteuid().as_raw() && status.st_uid != 0 {
        return unsafe_for(format!("belongs to user {}", status.st_uid));
    }
    let is_sticky = status.st_mode & 0o1000 != 0;
    if status.st_mode & 0o002 != 0 && !is_sticky {
        return unsafe_for("can be written by others".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_names_are_log_files() {
        assert_eq!(number_of(&file_name(7)), Some(7));
        assert_eq!(number_of(&file_name(123_456_789)), Some(123_456_789));
        for name in [
            "head",
            "7.jsonl",
            "00000007.jsonl.gz",
            "000000007.jsonl",
            "0000000x.jsonl",
            "+0000007.jsonl",
        ] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
