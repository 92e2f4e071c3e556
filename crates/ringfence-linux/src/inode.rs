//! Identity of a file while it exists.

use std::os::fd::AsFd;

use rustix::fs::Stat;

/// Device and inode number.
pub(crate) type InodeId = (u64, u64);

/// The identity of the file with this status.
pub(crate) fn inode_id(status: &Stat) -> InodeId {
    (status.st_dev, status.st_ino)
}

/// The identity of an open file.
pub(crate) fn inode_of(file: impl AsFd) -> rustix::io::Result<InodeId> {
    rustix::fs::fstat(file).map(|status| inode_id(&status))
}
