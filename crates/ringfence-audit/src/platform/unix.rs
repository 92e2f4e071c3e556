//! Linux and macOS: files are opened below an open directory, and owners and modes are checked.

use std::fs::{DirBuilder, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::process::{Resource, geteuid, getrlimit};

use super::WriteMode;
use crate::directory::LogDir;
use crate::error::{AuditError, AuditStep};

const NO_LINK: OFlags =
    OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Opens a directory only to reach its entries, which needs no read permission.
#[cfg(target_os = "linux")]
const SEARCH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const SEARCH: OFlags = OFlags::RDONLY;

/// Opens the directory of the log for writing, and creates missing directories.
///
/// The last two components belong to ringfence. The directory above belongs to the user, who may
/// have made it a link.
pub(crate) fn open_dir_for_writing(path: &Path) -> Result<File, AuditError> {
    let own = path.parent().unwrap_or(Path::new("/"));
    let state = own.parent().unwrap_or(Path::new("/"));
    let open_state =
        || open(state, SEARCH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map(File::from);
    let base = match open_state() {
        Err(Errno::NOENT) => {
            DirBuilder::new().recursive(true).mode(0o700).create(state).during("create", state)?;
            open_state()
        }
        other => other,
    };
    let base = base.during("open", state)?;
    check_base(&base, state)?;
    let own_dir = step(&base, own, SEARCH)?;
    step(&own_dir, path, OFlags::RDONLY)
}

/// Opens the directory of the log for reading; `None` if there is none.
pub(crate) fn open_dir_for_reading(path: &Path) -> Result<Option<File>, AuditError> {
    match open(path, NO_LINK | OFlags::DIRECTORY, Mode::empty()) {
        Ok(fd) => Ok(Some(fd.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error).during("open", path),
    }
}

/// Opens a file for reading and writing, and creates it if it is missing.
pub(crate) fn open_writable(
    directory: &LogDir,
    name: &str,
    mode: WriteMode,
) -> Result<File, AuditError> {
    let path = directory.path_of(name);
    let append = if mode == WriteMode::Append { OFlags::APPEND } else { OFlags::empty() };
    let flags = OFlags::RDWR | OFlags::CREATE | NO_LINK | append;
    let file = openat(&directory.file, name, flags, Mode::from_raw_mode(0o600))
        .map(File::from)
        .during("open", &path)?;
    let metadata = file.metadata().during("stat", &path)?;
    if !(metadata.is_file() && metadata.nlink() == 1) {
        let why = "is not a regular file with one name".into();
        return Err(AuditError::Unsafe { path, why });
    }
    check_own(&metadata, &path)?;
    Ok(file)
}

/// Opens a regular file for reading; `None` if it is missing.
pub(crate) fn open_readable(directory: &LogDir, name: &str) -> Result<Option<File>, AuditError> {
    let path = directory.path_of(name);
    let flags = OFlags::RDONLY | NO_LINK;
    let file = match openat(&directory.file, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => File::from(other.during("open", &path)?),
    };
    if !file.metadata().during("stat", &path)?.is_file() {
        return Err(AuditError::Unsafe { path, why: "is not a regular file".into() });
    }
    Ok(Some(file))
}

/// The names in the directory.
pub(crate) fn entry_names(directory: &LogDir) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory.file.as_fd())? {
        names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
    }
    Ok(names)
}

/// True if an open file was removed.
pub(crate) fn is_removed(file: &Metadata) -> bool {
    file.nlink() == 0
}

/// The size limit of a file. Above it the kernel also kills the process (SIGXFSZ).
pub(crate) fn file_size_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

pub(crate) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buffer, offset)
}

pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
    file.write_at(bytes, offset)
}

/// Opens one of ringfence's own directories in `above`; creates it if it is missing.
fn step(above: &File, path: &Path, flags: OFlags) -> Result<File, AuditError> {
    let name = path.file_name().unwrap_or_default();
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open_own = || openat(above, name, flags, Mode::empty()).map(File::from);
    let opened = match open_own() {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(above, name, Mode::RWXU) {
                // Another run created it first.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error).during("create", path),
            }
            open_own()
        }
        other => other,
    };
    let directory = opened.during("open", path)?;
    check_own(&directory.metadata().during("stat", path)?, path)?;
    Ok(directory)
}

fn check_own(metadata: &Metadata, path: &Path) -> Result<(), AuditError> {
    let unsafe_for = |why: String| Err(AuditError::Unsafe { path: path.to_owned(), why });
    if metadata.uid() != geteuid().as_raw() {
        return unsafe_for(format!("belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return unsafe_for("can be written by others".into());
    }
    Ok(())
}

/// Refuses a parent directory in which another user could rename our directory and put another in
/// its place. Group write access is accepted: on many systems each user has a group of their own.
fn check_base(base: &File, path: &Path) -> Result<(), AuditError> {
    let metadata = base.metadata().during("stat", path)?;
    let unsafe_for = |why: String| Err(AuditError::Unsafe { path: path.to_owned(), why });
    if metadata.uid() != geteuid().as_raw() && metadata.uid() != 0 {
        return unsafe_for(format!("belongs to user {}", metadata.uid()));
    }
    let is_sticky = metadata.mode() & 0o1000 != 0;
    if metadata.mode() & 0o002 != 0 && !is_sticky {
        return unsafe_for("can be written by others".into());
    }
    Ok(())
}
