//! Opens files with `O_CLOEXEC`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::path::Arg;

/// Opens an existing file.
pub(crate) fn open(path: impl Arg, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    open_at(CWD, path, flags)
}

/// Opens an existing file relative to a directory.
pub(crate) fn open_at(
    directory: impl AsFd,
    path: impl Arg,
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, path, flags | OFlags::CLOEXEC, Mode::empty())
}
