//! Landlock: the three calls, with the fields of ABI 6.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// File system rights that a rule set can take away (linux/landlock.h).
pub mod right {
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Remove an empty directory or rename one.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Unlink or rename a file.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Make a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Make a directory.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Make a regular file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Make a socket.
    pub const MAKE_SOCK: u64 = 1 << 9;
    /// Make a named pipe.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Make a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Make a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Link or rename a file into another directory (ABI 2).
    pub const REFER: u64 = 1 << 13;
}

/// What cannot be reached outside the own domain (ABI 6).
pub mod scope {
    /// Abstract unix sockets.
    pub const ABSTRACT_UNIX_SOCKET: u64 = 1;
    /// Processes, by signals.
    pub const SIGNAL: u64 = 2;
}

#[repr(C)]
struct Attributes {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The version of Landlock of this kernel; an error where there is none.
pub fn abi() -> io::Result<u32> {
    const VERSION: u32 = 1;
    let none: *const Attributes = std::ptr::null();
    // SAFETY: a null pointer with size zero is how the version is asked for.
    super::check_long(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) })
        .map(|abi| abi as u32)
}

/// A new rule set; `scoped` must be zero before ABI 6.
pub fn rule_set(handled_fs: u64, scoped: u64) -> io::Result<OwnedFd> {
    let attributes = Attributes { handled_fs, handled_net: 0, scoped };
    // Older kernels take the shorter structures of their time.
    let size = if scoped == 0 { size_of::<u64>() } else { size_of::<Attributes>() };
    // SAFETY: the structure is the kernel's layout and at least `size` bytes long.
    let fd = super::check_long(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &attributes, size, 0) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Allows `rights` on `directory` and below.
pub fn allow_beneath(rules: BorrowedFd<'_>, directory: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    const PATH_BENEATH: i32 = 1;
    let rule = PathBeneath { allowed: rights, parent: directory.as_raw_fd() };
    // SAFETY: the structure is the kernel's (packed) layout and only read.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &rule, 0)
    })
    .map(drop)
}

/// Confines this thread and what it starts. Needs `no_new_privs`.
pub fn restrict_self(rules: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check_long(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) }).map(drop)
}
