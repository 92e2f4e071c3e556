//! The file or directory on the host that a question is about. It is opened only if it is
//! unchanged.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::inode::inode_id;

use ringfence_api::Operation;
use ringfence_plan::FileKind;
use ringfence_policy::AbsPath;
use rustix::fs::{Access, CWD, FileType, Mode, OFlags, ResolveFlags};

/// A file or directory of the host that a grant can open.
#[derive(Debug, Clone)]
pub(crate) struct ReadTarget {
    pub(crate) path: AbsPath,
    pub(crate) kind: FileKind,
    /// Device and inode at the time of the question.
    pub(super) identity: (u64, u64),
    links: u64,
    /// Keeps the inode open, so that no other file gets its number.
    _held: Arc<OwnedFd>,
}

impl ReadTarget {
    /// The target at `path`, without following links; `None` if the user could not open it for
    /// `operation` either, or if it is neither file nor directory.
    pub(crate) fn find(path: &AbsPath, operation: Operation) -> Option<Self> {
        let held = open_without_links(path, OFlags::PATH)?;
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
            identity: inode_id(&status),
            links: status.st_nlink,
            _held: Arc::new(held),
        })
    }

    /// True if it could be a denied file under another name. Such a file is masked in an opened
    /// directory, and a grant for the directory does not mean to include it.
    pub(crate) fn may_be_hard_link(&self) -> bool {
        self.kind == FileKind::File && self.links > 1
    }

    /// Opens the target, if its identity is unchanged.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        // NONBLOCK: the path may be a FIFO by now.
        let opened =
            open_without_links(&self.path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let status = rustix::fs::fstat(&opened).ok()?;
        (inode_id(&status) == self.identity).then_some(opened)
    }
}

fn open_without_links(path: &AbsPath, flags: OFlags) -> Option<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, path.as_path(), flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).ok()
}
