//! The directory of the log: ours alone, and never reached or left through a link.

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
    /// Opens it for writing, and makes what is missing.
    ///
    /// The last two components are ringfence's own; what they stand in is the person's, who
    /// may have made a link of it.
    pub(crate) fn make(path: &Path) -> Result<LogDir, AuditError> {
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
                    .during("make", state)?;
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
    pub(crate) fn find(path: &Path) -> Result<Option<LogDir>, AuditError> {
        match rustix::fs::open(path, NO_LINK | OFlags::DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(LogDir { fd, path: path.to_owned() })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).during("open", path),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens a file to write and read it, and makes it if it is missing.
    pub(crate) fn writable(&self, name: &str, flags: OFlags) -> Result<OwnedFd, AuditError> {
        let flags = OFlags::RDWR | OFlags::CREATE | NO_LINK | flags;
        let file = rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(0o600))
            .during("open", self.at(name))?;
        let status = rustix::fs::fstat(&file).during("look at", self.at(name))?;
        let plain = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && status.st_nlink == 1;
        if !plain {
            return Err(AuditError::Unsafe {
                path: self.at(name),
                why: "is not a plain file with one name".into(),
            });
        }
        check_own(&status, &self.at(name))?;
        Ok(file)
    }

    /// Opens a plain file to read it; `None` if there is none.
    pub(crate) fn readable(&self, name: &str) -> Result<Option<File>, AuditError> {
        let file = match rustix::fs::openat(&self.fd, name, OFlags::RDONLY | NO_LINK, Mode::empty())
        {
            Err(Errno::NOENT) => return Ok(None),
            other => other.during("open", self.at(name))?,
        };
        let status = rustix::fs::fstat(&file).during("look at", self.at(name))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(AuditError::Unsafe {
                path: self.at(name),
                why: "is not a plain file".into(),
            });
        }
        Ok(Some(file.into()))
    }

    /// The numbers of the log's files, in order.
    pub(crate) fn numbers(&self) -> Result<Vec<u64>, AuditError> {
        let mut numbers = Vec::new();
        for entry in rustix::fs::Dir::read_from(self.fd.as_fd()).during("read", &self.path)? {
            let entry = entry.during("read", &self.path)?;
            numbers.extend(entry.file_name().to_str().ok().and_then(number_of));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// The name of the log's file `number`.
pub(crate) fn name_of(number: u64) -> String {
    format!("{number:08}.jsonl")
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(".jsonl").filter(|digits| digits.len() >= 8)?.parse().ok()?;
    (name == name_of(number)).then_some(number)
}

/// One of our own directories in `above`; made if it is missing.
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
                // Another run was quicker.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).during("make", path),
            }
            open()
        }
        other => other,
    };
    let directory = opened.during("open", path)?;
    check_own(&rustix::fs::fstat(&directory).during("look at", path)?, path)?;
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

/// Who can rename our directory away in the one it stands in could put another in its place.
/// A group is let pass: on many systems everybody has one to themselves.
fn check_base(base: &OwnedFd, path: &Path) -> Result<(), AuditError> {
    let status = rustix::fs::fstat(base).during("look at", path)?;
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
    fn names_are_numbers() {
        assert_eq!(number_of(&name_of(7)), Some(7));
        assert_eq!(number_of(&name_of(123_456_789)), Some(123_456_789));
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
