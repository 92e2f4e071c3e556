//! Privileges, and giving them up.

use std::io;

/// `CAP_SYS_PTRACE`: look into processes one could not trace otherwise.
pub const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`: mounts and namespaces.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_SYS_CHROOT`: needed beside `CAP_SYS_ADMIN` to enter a mount namespace.
pub const CAP_SYS_CHROOT: u32 = 18;
/// `CAP_KILL`: signal processes of the namespace.
pub const CAP_KILL: u32 = 5;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `capset(2)`: exactly these capabilities, as bits, nothing inheritable.
pub fn set_capabilities(effective: u64, permitted: u64) -> io::Result<()> {
    let header = Header { version: 0x2008_0522, pid: 0 };
    let half = |shift: u32| Sets { effective: (effective >> shift) as u32, permitted: (permitted >> shift) as u32, inheritable: 0 };
    let sets = [half(0), half(32)];
    // SAFETY: version 3 of the interface takes one header and two sets, which these are.
    super::check_long(unsafe { libc::syscall(libc::SYS_capset, &header, sets.as_ptr()) }).map(drop)
}

/// Takes capability `number` out of the bounding set; an error says there is none of that number.
pub fn drop_bounding(number: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, number.into())
}

/// No program started from here gains a privilege by being executed.
pub fn no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// Nobody without privilege may look into this process.
pub fn not_dumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// This process is sent `signal` when the thread that made it ends.
pub fn die_with_parent(signal: i32) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)
}

fn prctl(option: i32, argument: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer.
    super::check(unsafe { libc::prctl(option, argument, zero, zero, zero) }).map(drop)
}

/// A session keyring of its own, so that the keys of the one inherited cannot be found.
pub fn fresh_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let anonymous: *const libc::c_char = std::ptr::null();
    // SAFETY: a null name asks for an anonymous keyring.
    super::check_long(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) }).map(drop)
}
