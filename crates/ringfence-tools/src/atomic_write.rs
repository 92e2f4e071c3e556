//! Atomic write of a file: all of it, or nothing.
//!
//! The new content goes to a file without a name (`O_TMPFILE`), which then gets the name in the
//! directory held open. So a reader sees the old or the new content, no link is followed, and a
//! file with other hard links, or one created just now at this path, is not written: it only loses
//! this name.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::error::{ToolError, ToolStep};
use crate::opened_path::{OpenedPath, PathHandle, identity, open_path_fd, proc_fd_path};
use crate::write::WriteSource;

/// A pending write to a path.
pub(crate) struct AtomicWrite<'a> {
    pub(crate) place: &'a OpenedPath,
    pub(crate) content: WriteSource<'a>,
    pub(crate) sync: FsyncMode,
}

const WRITE_FLAGS: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

/// The mode of a new file, before the umask.
const DEFAULT_MODE: Mode = Mode::from_bits_retain(0o666);
const PRIVATE_MODE: Mode = Mode::from_bits_retain(0o600);

/// The use of fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FsyncMode {
    Wait,
    Leave,
}

/// Serializes replacements by the threads of this process.
static REPLACE_LOCK: Mutex<()> = Mutex::new(());

/// A file without a name, or with a temporary one.
struct UnnamedFile<'a> {
    file: OwnedFd,
    place: &'a OpenedPath,
    name: Option<OsString>,
}

impl AtomicWrite<'_> {
    /// Creates the file, or replaces the existing one.
    pub(crate) fn write(&self) -> Result<(), ToolError> {
        match &self.place.target {
            None => self.create(UnnamedFile::new(self.place, DEFAULT_MODE)?),
            // Private until it gets the mode of the old file.
            Some(old) => self.replace(UnnamedFile::new(self.place, PRIVATE_MODE)?, old),
        }
    }

    fn changed_error(&self) -> ToolError {
        ToolError::Unsettled { path: self.place.path.clone() }
    }

    fn create(&self, mut draft: UnnamedFile<'_>) -> Result<(), ToolError> {
        let (place, path) = (self.place, &self.place.path);
        draft.fill(self.content, self.sync)?;
        match draft.take_name(&place.name) {
            Ok(()) => {}
            // Another process created it first: the caller decides about that file.
            Err(Errno::EXIST) => return Err(self.changed_error()),
            Err(error) => return Err(error).during("create", path),
        }
        if place.is_directory_unmoved()? {
            return self.sync_directory();
        }
        draft.remove(&place.name);
        Err(self.changed_error())
    }

    fn replace(&self, mut draft: UnnamedFile<'_>, old: &PathHandle) -> Result<(), ToolError> {
        let (place, path) = (self.place, &self.place.path);
        must_be_writable(old, path)?;
        draft.fill(self.content, self.sync)?;
        draft.copy_metadata(old, path)?;
        let name = draft.temporary_name().during("create a temporary file for", path)?;
        // No other thread of this process can replace the file between the check and the rename.
        // Another process that does so loses its version, as with two editors.
        let _lock = REPLACE_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_unchanged(old) || !place.is_directory_unmoved()? {
            return Err(self.changed_error());
        }
        match rustix::fs::renameat(&place.directory, &name, &place.directory, &place.name) {
            Ok(()) => draft.name = None,
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => return Err(self.changed_error()),
            Err(error) => return Err(error).during("replace", path),
        }
        self.sync_directory()
    }

    /// True if the name still refers to the same, unchanged file.
    fn is_unchanged(&self, old: &PathHandle) -> bool {
        open_path_fd(self.place.directory.as_fd(), &self.place.name)
            .is_ok_and(|found| is_same(&found.status, &old.status))
    }

    fn sync_directory(&self) -> Result<(), ToolError> {
        if self.sync == FsyncMode::Leave {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.place.directory, ".", flags, Mode::empty())
            .during("open", &self.place.path)?;
        rustix::fs::fsync(&directory).during("sync", &self.place.path)
    }
}

impl<'a> UnnamedFile<'a> {
    fn new(place: &'a OpenedPath, mode: Mode) -> Result<UnnamedFile<'a>, ToolError> {
        match rustix::fs::openat(&place.directory, ".", WRITE_FLAGS | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(UnnamedFile { file, place, name: None }),
            // Not every file system supports `O_TMPFILE`.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                Self::with_name(place, mode)
            }
            Err(error) => Err(error).during("create a temporary file for", &place.path),
        }
    }

    fn with_name(place: &'a OpenedPath, mode: Mode) -> Result<UnnamedFile<'a>, ToolError> {
        let name = unique_name();
        let flags = WRITE_FLAGS | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&place.directory, &name, flags, mode)
            .during("create a temporary file for", &place.path)?;
        Ok(UnnamedFile { file, place, name: Some(name) })
    }

    fn fill(&mut self, content: WriteSource<'_>, sync: FsyncMode) -> Result<(), ToolError> {
        let path = &self.place.path;
        let mut file = std::fs::File::from(self.file.try_clone().during("write", path)?);
        content.copy_to(&mut file).during("write", path)?;
        if sync == FsyncMode::Wait { file.sync_all().during("sync", path) } else { Ok(()) }
    }

    /// Copies the mode of the replaced file, and its owner and attributes as far as permitted.
    fn copy_metadata(&self, old: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
        let (new, old_status) = (rustix::fs::fstat(&self.file).during("stat", path)?, &old.status);
        copy_attributes(old, &self.file, path);
        // After the ACLs, which change the mode. The new content gets no setuid bits.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old_status.st_mode & 0o777))
            .during("keep the mode of", path)?;
        // Last: after a change of owner this process could not change the rest.
        if (new.st_uid, new.st_gid) != (old_status.st_uid, old_status.st_gid) {
            let (owner, group) =
                (Uid::from_raw(old_status.st_uid), Gid::from_raw(old_status.st_gid));
            // Only root may change the owner; the group may be kept if the user belongs to it.
            if rustix::fs::fchown(&self.file, Some(owner), Some(group)).is_err() {
                let _ = rustix::fs::fchown(&self.file, None, Some(group));
            }
        }
        Ok(())
    }

    /// Gives it a temporary name in the same directory, if it has none.
    fn temporary_name(&mut self) -> Result<OsString, Errno> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let name = unique_name();
        self.link(&name)?;
        self.name = Some(name.clone());
        Ok(name)
    }

    /// Gives it this name, unless the name exists.
    fn take_name(&mut self, name: &OsStr) -> Result<(), Errno> {
        let Some(old) = &self.name else { return self.link(name) };
        let directory = &self.place.directory;
        match rustix::fs::renameat_with(directory, old, directory, name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(directory, old, directory, name, AtFlags::empty())
            }
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            other => other,
        }
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::linkat(
            CWD,
            proc_fd_path(self.file.as_fd()),
            &self.place.directory,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
    }

    /// Removes the name, if it still refers to this file.
    fn remove(&self, name: &OsStr) {
        let is_ours = |node: PathHandle| {
            rustix::fs::fstat(&self.file).is_ok_and(|ours| identity(&ours) == node.identity())
        };
        if open_path_fd(self.place.directory.as_fd(), name).is_ok_and(is_ours) {
            let _ = rustix::fs::unlinkat(&self.place.directory, name, AtFlags::empty());
        }
    }
}

impl Drop for UnnamedFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            self.remove(&name);
        }
    }
}

/// A unique temporary name.
fn unique_name() -> OsString {
    format!(".ringfence-{}", ringfence_audit::session_id()).into()
}

/// True if a file is the same, and was not written since.
fn is_same(now: &Stat, before: &Stat) -> bool {
    let key = |status: &Stat| {
        (identity(status), status.st_size, status.st_mtime, status.st_mtime_nsec, status.st_mode)
    };
    key(now) == key(before)
}

/// Refuses to replace a file that is not writable.
fn must_be_writable(old: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
    match rustix::fs::openat(
        CWD,
        proc_fd_path(old.fd.as_fd()),
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // A running program cannot be written, but it can be replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(error) => Err(error).during("write", path),
    }
}

/// Copies ACLs and user attributes. Errors are ignored: a file system without them is no reason to
/// keep the old content.
fn copy_attributes(old: &PathHandle, new: &OwnedFd, path: &AbsPath) {
    const MAX_SIZE: usize = 64 << 10;
    let Ok(source) = old.open(OFlags::RDONLY, path) else { return };
    let mut names = vec![0; MAX_SIZE];
    let Ok(length) = rustix::fs::flistxattr(&source, names.as_mut_slice()) else { return };
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl"))
    {
        let mut value = vec![0; MAX_SIZE];
        if let Ok(length) = rustix::fs::fgetxattr(&source, name, value.as_mut_slice()) {
            let _ = rustix::fs::fsetxattr(new, name, &value[..length], XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
