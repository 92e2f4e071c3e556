//! Capabilities and privileges, and dropping them.

use std::io;

/// `CAP_SYS_PTRACE`: access to processes that could not be traced otherwise.
pub const CAP_SYS_PTRACE: u32 = 19;
/// `CAP_SYS_ADMIN`: mounts and namespaces.
pub const CAP_SYS_ADMIN: u32 = 21;
/// `CAP_SYS_CHROOT`: needed with `CAP_SYS_ADMIN` to enter a mount namespace.
pub const CAP_SYS_CHROOT: u32 = 18;
/// `CAP_KILL`: signal processes of the namespace.
pub const CAP_KILL: u32 = 5;

/// `CAP_SETPCAP`: drop capabilities for good.
pub const CAP_SETPCAP: u32 = 8;
/// `CAP_WAKE_ALARM`: has an effect only in the host's own user namespace. A process without it
/// still cannot ptrace a process that has it.
pub const CAP_WAKE_ALARM: u32 = 35;

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapSets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Arguments of `capset(2)`: a header, and the sets in two halves.
#[repr(C)]
pub(crate) struct CapsetArgs {
    header: CapHeader,
    sets: [CapSets; 2],
}

impl CapsetArgs {
    /// Offset of the sets behind the header.
    pub(crate) const SETS: usize = std::mem::offset_of!(CapsetArgs, sets);

    pub(crate) const fn new(effective: u64, permitted: u64, inheritable: u64) -> Self {
        const fn half(effective: u64, permitted: u64, inheritable: u64) -> CapSets {
            CapSets {
                effective: effective as u32,
                permitted: permitted as u32,
                inheritable: inheritable as u32,
            }
        }
        let low = half(effective, permitted, inheritable);
        let high = half(effective >> 32, permitted >> 32, inheritable >> 32);
        // Version 3 of the interface.
        Self { header: CapHeader { version: 0x2008_0522, pid: 0 }, sets: [low, high] }
    }
}

/// `capset(2)`: sets exactly these capabilities, as bits, none inheritable.
pub fn set_capabilities(effective: u64, permitted: u64) -> io::Result<()> {
    set_all_capabilities(effective, permitted, 0)
}

/// The same with inheritable ones.
pub fn set_all_capabilities(effective: u64, permitted: u64, inheritable: u64) -> io::Result<()> {
    let CapsetArgs { header, sets } = CapsetArgs::new(effective, permitted, inheritable);
    // SAFETY: version 3 of the interface takes one header and two sets, as here.
    super::check_long(unsafe { libc::syscall(libc::SYS_capset, &header, sets.as_ptr()) }).map(drop)
}

/// Drops capability `number` from the bounding set; an error means that it does not exist.
pub fn drop_bounding(number: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, number.into())
}

/// Programs run by root gain no capabilities for being root, for good.
pub fn lock_root_capabilities() -> io::Result<()> {
    const NO_ROOT: libc::c_ulong = 1;
    const LOCKED: libc::c_ulong = 2;
    prctl(libc::PR_SET_SECUREBITS, NO_ROOT | LOCKED)
}

/// No program executed from here gains a privilege.
pub fn set_no_new_privs() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1)
}

/// No unprivileged process may ptrace this one.
pub fn set_not_dumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, 0)
}

/// Sends `signal` to this process when the thread that created it ends.
pub fn die_with_parent(signal: i32) -> io::Result<()> {
    prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong)
}

fn prctl(option: i32, argument: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: none of the options used here takes a pointer.
    super::check(unsafe { libc::prctl(option, argument, zero, zero, zero) }).map(drop)
}

/// Joins a new session keyring, so that the keys of the inherited one cannot be found.
pub fn join_new_session_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    let anonymous: *const libc::c_char = std::ptr::null();
    // SAFETY: a null name asks for an anonymous keyring.
    super::check_long(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) })
        .map(drop)
}
