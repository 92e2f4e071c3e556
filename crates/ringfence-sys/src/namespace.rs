//! Namespaces.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub use libc::{
    CLONE_NEWCGROUP as CGROUP, CLONE_NEWIPC as IPC, CLONE_NEWNET as NETWORK, CLONE_NEWNS as MOUNT,
    CLONE_NEWPID as PID, CLONE_NEWUSER as USER, CLONE_NEWUTS as UTS,
};

/// `unshare(2)`.
pub fn unshare(flags: i32) -> io::Result<()> {
    // SAFETY: takes no pointer; a new namespace of this kind invalidates nothing in memory.
    super::check(unsafe { libc::unshare(flags) }).map(drop)
}

/// `setns(2)`.
pub fn enter(namespace: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    // SAFETY: takes no pointer; the fd is open for the length of the borrow.
    super::check(unsafe { libc::setns(namespace.as_raw_fd(), kind) }).map(drop)
}

/// `sethostname(2)`.
pub fn set_host_name(name: &CStr) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer.
    super::check(unsafe { libc::sethostname(name.as_ptr(), name.count_bytes()) }).map(drop)
}
