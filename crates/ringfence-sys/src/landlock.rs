//! Landlock: rights on files, and the scopes of ABI 6.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Objects outside the own domain that cannot be reached (ABI 6).
pub mod scope {
    /// Abstract unix sockets.
    pub const ABSTRACT_UNIX_SOCKET: u64 = 1;
    /// Processes, by signals.
    pub const SIGNAL: u64 = 2;
}

/// Rights on files and directories. A right on a directory holds for everything below it.
pub mod fs_right {
    /// Execute a file.
    pub const EXECUTE: u64 = 1;
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Open a file for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// List a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Remove a directory.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Remove another entry.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Create a directory.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Create a file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Create a named pipe.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Create a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Link or rename an entry to another directory (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Truncate a file (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// Send a device most of its commands (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;
}

#[repr(C)]
struct LandlockAttr {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The Landlock ABI version of this kernel; an error without Landlock.
pub fn abi() -> io::Result<u32> {
    const VERSION: u32 = 1;
    let none: *const LandlockAttr = std::ptr::null();
    // SAFETY: a null pointer with size zero asks for the version.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION)
    })
    .map(|abi| abi as u32)
}

/// All rights on files that this ABI version knows.
pub fn known_fs_rights(abi: u32) -> u64 {
    let count = match abi {
        0 => 0,
        1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << count) - 1
}

/// Creates a rule set that restricts `scoped` and nothing else.
pub fn create_scope_ruleset(scoped: u64) -> io::Result<OwnedFd> {
    create_ruleset(0, scoped)
}

/// Creates a rule set that restricts these rights on files, and `scoped`.
pub fn create_ruleset(handled_fs: u64, scoped: u64) -> io::Result<OwnedFd> {
    let attributes = LandlockAttr { handled_fs, handled_net: 0, scoped };
    // A kernel before ABI 6 rejects a field that it does not know, unless it is zero.
    // SAFETY: the structure is live, in the kernel's layout, and its size is passed along.
    let fd = super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &attributes, size_of::<LandlockAttr>(), 0)
    })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Allows these rights on a file, or on a directory and everything below it.
pub fn allow(rules: BorrowedFd<'_>, path: BorrowedFd<'_>, allowed: u64) -> io::Result<()> {
    const PATH_BENEATH: u32 = 1;
    let rule = PathBeneath { allowed, parent: path.as_raw_fd() };
    // SAFETY: the structure is live and in the kernel's packed layout.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &rule, 0)
    })
    .map(drop)
}

/// Confines this thread and its children. Needs `no_new_privs`.
pub fn restrict_self(rules: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0)
    })
    .map(drop)
}
