//! The part of the mount API that rustix lacks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `MOUNT_ATTR_RDONLY`.
pub const READ_ONLY: u64 = 0x1;
/// `MOUNT_ATTR_NOSUID`.
pub const NO_SUID: u64 = 0x2;
/// `MOUNT_ATTR_NODEV`.
pub const NO_DEV: u64 = 0x4;
/// `MOUNT_ATTR_NOEXEC`.
pub const NO_EXEC: u64 = 0x8;
/// `MOUNT_ATTR_NOSYMFOLLOW`.
pub const NO_SYMLINKS: u64 = 0x20_0000;

/// Scope of a mount change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountRecursion {
    /// This mount only.
    One,
    /// This mount and all below it.
    Below,
}

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// `mount_setattr(2)`, Linux 5.12: sets flags on the mount at `path` below `dir` (an empty path
/// means `dir` itself) and makes it private.
pub fn set_attributes(
    dir: BorrowedFd<'_>,
    path: &CStr,
    reach: MountRecursion,
    set: u64,
) -> io::Result<()> {
    mount_setattr(
        dir,
        path,
        reach,
        &MountAttr { set, clear: 0, propagation: libc::MS_PRIVATE, userns: 0 },
    )
}

/// Clears flags of the mount itself.
pub fn clear_attributes(dir: BorrowedFd<'_>, clear: u64) -> io::Result<()> {
    mount_setattr(
        dir,
        c"",
        MountRecursion::One,
        &MountAttr { set: 0, clear, propagation: 0, userns: 0 },
    )
}

fn mount_setattr(
    dir: BorrowedFd<'_>,
    path: &CStr,
    reach: MountRecursion,
    attributes: &MountAttr,
) -> io::Result<()> {
    let recursive = if reach == MountRecursion::Below { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `path` is NUL-terminated, `attributes` is in the kernel's layout and its size is
    // passed along; the call only reads both.
    super::check_long(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            attributes,
            size_of::<MountAttr>(),
        )
    })
    .map(drop)
}

/// `pivot_root(".", ".")`: the current directory becomes the root. The old root is stacked on top
/// of it and has to be unmounted next (see pivot_root(2), notes).
pub fn pivot_here() -> io::Result<()> {
    // SAFETY: both arguments are NUL-terminated literals.
    super::check_long(unsafe { libc::syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()) })
        .map(drop)
}

/// Unmounts the mount stacked at the current directory, with everything below it.
pub fn detach_here() -> io::Result<()> {
    // SAFETY: the path is a NUL-terminated literal.
    super::check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }).map(drop)
}
