//! Landlock: the scopes of ABI 6.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Objects outside the own domain that cannot be reached (ABI 6).
pub mod scope {
    /// Abstract unix sockets.
    pub const ABSTRACT_UNIX_SOCKET: u64 = 1;
    /// Processes, by signals.
    pub const SIGNAL: u64 = 2;
}

#[repr(C)]
struct LandlockAttr {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
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

/// Creates a rule set that restricts `scoped` and nothing else.
pub fn create_scope_ruleset(scoped: u64) -> io::Result<OwnedFd> {
    let attributes = LandlockAttr { handled_fs: 0, handled_net: 0, scoped };
    // SAFETY: the structure is live, in the kernel's layout, and its size is passed along.
    let fd = super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &attributes, size_of::<LandlockAttr>(), 0)
    })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Confines this thread and its children. Needs `no_new_privs`.
pub fn restrict_self(rules: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes no pointer.
    super::check_long(unsafe {
        libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0)
    })
    .map(drop)
}
