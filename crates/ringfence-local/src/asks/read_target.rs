//! What a question is about, on the host: opened where the person was told, or not at all.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_api::Operation;
use ringfence_enforce::FileKind;
use ringfence_policy::AbsPath;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags, ResolveFlags};

/// Something of the host that can be opened for somebody.
#[derive(Debug, Clone)]
pub(crate) struct ReadTarget {
    pub(crate) path: AbsPath,
    pub(crate) kind: FileKind,
    /// Device and inode of what stood there when the question was made.
    pub(super) identity: (u64, u64),
    links: u64,
    /// The same, held: as long as it is, nothing else gets its inode.
    _held: Arc<OwnedFd>,
}

impl ReadTarget {
    /// What stands at `path`, never behind a link; `None` if it could not be opened for that
    /// `operation` by the person either, or is neither file nor directory.
    pub(crate) fn look(path: &AbsPath, operation: Operation) -> Option<Self> {
        let held = found(path, OFlags::PATH)?;
        let status = rustix::fs::fstat(&held).ok()?;
        let kind = match FileType::from_raw_mode(status.st_mode) {
            FileType::Directory if operation == Operation::Read => FileKind::Directory,
            FileType::RegularFile if operation == Operation::Read => FileKind::File,
            FileType::RegularFile
                if operation == Operation::Execute && status.st_mode & 0o111 != 0 =>
            {
                FileKind::File
            }
            _ => return None,
        };
        rustix::fs::access(path.as_path(), Access::READ_OK).ok()?;
        Some(Self {
            path: path.clone(),
            kind,
            identity: (status.st_dev, status.st_ino),
            links: status.st_nlink,
            _held: Arc::new(held),
        })
    }

    /// Whether it could be something denied under another name. Such a file is covered in a
    /// directory that is open, and whoever opens the directory did not mean it.
    pub(crate) fn may_be_another(&self) -> bool {
        self.kind == FileKind::File && self.links > 1
    }

    /// Opens it, if it is still what it was.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        // What is neither file nor directory by now must not be waited for.
        let opened = found(&self.path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let status = rustix::fs::fstat(&opened).ok()?;
        ((status.st_dev, status.st_ino) == self.identity).then_some(opened)
    }
}

fn found(path: &AbsPath, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()
}
