//! Putting a file in its place: all of it at once, or nothing.
//!
//! The new content is written to a file without a name, which then gets the name, in the directory
//! that is held. So whoever reads sees the old content or the new one, nothing is ever followed,
//! and a file that has other names, or that came into the place a moment ago, is not written to:
//! it only loses this name.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use ringfence_policy::AbsPath;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use crate::error::{ToolError, ToolStep};
use crate::opened_path::{OpenedPath, PathHandle, by_descriptor, hold, identity};
use crate::write::Source;

/// What is to stand in a place.
pub(crate) struct AtomicWrite<'a> {
    pub(crate) place: &'a OpenedPath,
    pub(crate) content: Source<'a>,
    pub(crate) sync: FsyncMode,
}

const WRITTEN: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC);

/// What a new file lets others do, but for what the process's mask takes away.
const OPEN: Mode = Mode::from_bits_retain(0o666);
const SHUT: Mode = Mode::from_bits_retain(0o600);

/// Whether to wait for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FsyncMode {
    Wait,
    Leave,
}

/// Whoever replaces a file, of the threads of this process.
static ALONE: Mutex<()> = Mutex::new(());

/// A file that has no name yet, or one of ours.
struct UnnamedFile<'a> {
    file: OwnedFd,
    place: &'a OpenedPath,
    name: Option<OsString>,
}

impl AtomicWrite<'_> {
    /// Makes the file, or replaces the one that stands there.
    pub(crate) fn make(&self) -> Result<(), ToolError> {
        match &self.place.there {
            None => self.create(UnnamedFile::new(self.place, OPEN)?),
            // Nobody else reads it before it has the mode of the old one.
            Some(old) => self.replace(UnnamedFile::new(self.place, SHUT)?, old),
        }
    }

    fn unsettled(&self) -> ToolError {
        ToolError::Unsettled { path: self.place.path.clone() }
    }

    fn create(&self, mut draft: UnnamedFile<'_>) -> Result<(), ToolError> {
        let (place, path) = (self.place, &self.place.path);
        draft.fill(self.content, self.sync)?;
        match draft.take_name(&place.name) {
            Ok(()) => {}
            // Somebody was quicker: what they made is decided about anew.
            Err(Errno::EXIST) => return Err(self.unsettled()),
            Err(error) => return Err(error).during("make", path),
        }
        if place.stands()? {
            return self.settle();
        }
        draft.remove(&place.name);
        Err(self.unsettled())
    }

    fn replace(&self, mut draft: UnnamedFile<'_>, old: &PathHandle) -> Result<(), ToolError> {
        let (place, path) = (self.place, &self.place.path);
        may_be_written(old, path)?;
        draft.fill(self.content, self.sync)?;
        draft.look_like(old, path)?;
        let name = draft.named().during("make a file beside", path)?;
        // Between the look and the rename is no room for another thread of ours; somebody else
        // who replaces the file just then loses what they put there, as between two editors.
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_still(old) || !place.stands()? {
            return Err(self.unsettled());
        }
        match rustix::fs::renameat(&place.directory, &name, &place.directory, &place.name) {
            Ok(()) => draft.name = None,
            Err(Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST) => return Err(self.unsettled()),
            Err(error) => return Err(error).during("replace", path),
        }
        self.settle()
    }

    /// Whether the name stands for what was decided about, unchanged.
    fn is_still(&self, old: &PathHandle) -> bool {
        hold(self.place.directory.as_fd(), &self.place.name)
            .is_ok_and(|found| is_same(&found.status, &old.status))
    }

    fn settle(&self) -> Result<(), ToolError> {
        if self.sync == FsyncMode::Leave {
            return Ok(());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.place.directory, ".", flags, Mode::empty())
            .during("open", &self.place.path)?;
        rustix::fs::fsync(&directory).during("force onto the disk", &self.place.path)
    }
}

impl<'a> UnnamedFile<'a> {
    fn new(place: &'a OpenedPath, mode: Mode) -> Result<UnnamedFile<'a>, ToolError> {
        match rustix::fs::openat(&place.directory, ".", WRITTEN | OFlags::TMPFILE, mode) {
            Ok(file) => Ok(UnnamedFile { file, place, name: None }),
            // Not every file system has files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                Self::with_name(place, mode)
            }
            Err(error) => Err(error).during("make a file beside", &place.path),
        }
    }

    fn with_name(place: &'a OpenedPath, mode: Mode) -> Result<UnnamedFile<'a>, ToolError> {
        let name = beside();
        let flags = WRITTEN | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&place.directory, &name, flags, mode)
            .during("make a file beside", &place.path)?;
        Ok(UnnamedFile { file, place, name: Some(name) })
    }

    fn fill(&mut self, content: Source<'_>, sync: FsyncMode) -> Result<(), ToolError> {
        let path = &self.place.path;
        let mut file = std::fs::File::from(self.file.try_clone().during("write", path)?);
        content.copy_to(&mut file).during("write", path)?;
        if sync == FsyncMode::Wait {
            file.sync_all().during("force onto the disk", path)
        } else {
            Ok(())
        }
    }

    /// Takes over the mode of what it replaces, and as much of the rest as we may give.
    fn look_like(&self, old: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
        let (new, old_status) =
            (rustix::fs::fstat(&self.file).during("look at", path)?, &old.status);
        copy_attributes(old, &self.file, path);
        // After access lists, which change it. New content has nobody's rights.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(old_status.st_mode & 0o777))
            .during("keep the mode of", path)?;
        // Last: what is somebody else's is not ours to change.
        if (new.st_uid, new.st_gid) != (old_status.st_uid, old_status.st_gid) {
            let (owner, group) =
                (Uid::from_raw(old_status.st_uid), Gid::from_raw(old_status.st_gid));
            // Only the superuser may give files away; a group that one is in may be kept.
            if rustix::fs::fchown(&self.file, Some(owner), Some(group)).is_err() {
                let _ = rustix::fs::fchown(&self.file, None, Some(group));
            }
        }
        Ok(())
    }

    /// Gives it a name of ours beside the place, if it has none.
    fn named(&mut self) -> Result<OsString, Errno> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        let name = beside();
        self.link(&name)?;
        self.name = Some(name.clone());
        Ok(name)
    }

    /// Gives it a name that nothing else has.
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
            by_descriptor(self.file.as_fd()),
            &self.place.directory,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )
    }

    /// Takes the name away again, if it is still this file's.
    fn remove(&self, name: &OsStr) {
        let is_ours = |node: PathHandle| {
            rustix::fs::fstat(&self.file).is_ok_and(|ours| identity(&ours) == node.identity())
        };
        if hold(self.place.directory.as_fd(), name).is_ok_and(is_ours) {
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

/// A name that nobody else has, for the moment before a file takes another's place.
fn beside() -> OsString {
    format!(".ringfence-{}", ringfence_audit::session_id()).into()
}

/// Whether a file is the one that was looked at, and nobody has written to it since.
fn is_same(now: &Stat, before: &Stat) -> bool {
    let of = |status: &Stat| {
        (identity(status), status.st_size, status.st_mtime, status.st_mtime_nsec, status.st_mode)
    };
    of(now) == of(before)
}

/// A file that shows that it is not to be written is not replaced either.
fn may_be_written(old: &PathHandle, path: &AbsPath) -> Result<(), ToolError> {
    match rustix::fs::openat(
        CWD,
        by_descriptor(old.held.as_fd()),
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // A program that runs cannot be written to, but replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(error) => Err(error).during("write", path),
    }
}

/// Copies access lists and what people have attached. What cannot be is not: a file system that
/// has none of it is no reason to keep the old content.
fn copy_attributes(old: &PathHandle, new: &OwnedFd, path: &AbsPath) {
    const MOST: usize = 64 << 10;
    let Ok(source) = old.open(OFlags::RDONLY, path) else { return };
    let mut names = vec![0; MOST];
    let Ok(length) = rustix::fs::flistxattr(&source, names.as_mut_slice()) else { return };
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl"))
    {
        let mut value = vec![0; MOST];
        if let Ok(length) = rustix::fs::fgetxattr(&source, name, value.as_mut_slice()) {
            let _ = rustix::fs::fsetxattr(new, name, &value[..length], XattrFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests;
