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

/// `CAP_SETPCAP`: give capabilities up for good.
pub const CAP_SETPCAP: u32 = 8;
/// `CAP_WAKE_ALARM`: of no use but in the host's own user namespace. Whoever has it and one
/// that has not are two, all the same: the latter cannot look into the former.
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

/// What `capset(2)` is told: a header, and the sets in two halves.
#[repr(C)]
pub(crate) struct CapsetArgs {
    header: CapHeader,
    sets: [CapSets; 2],
}

impl CapsetArgs {
    /// Where the sets stand behind the header.
    pub(crate) const SETS: usize = std::mem::offset_of!(CapsetArgs, sets);

    pub(crate) const fn of(effective: u64, permitted: u64, inheritable: u64) -> Self {
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

/// `capset(2)`: exactly these capabilities, as bits, nothing inheritable.
pub fn set_capabilities(effective: u64, permitted: u64) -> io::Result<()> {
    set_all_capabilities(effective, permitted, 0)
}

/// The same with some that may be inherited.
pub fn set_all_capabilities(effective: u64, permitted: u64, inheritable: u64) -> io::Result<()> {
    let CapsetArgs { header, sets } = CapsetArgs::of(effective, permitted, inheritable);
    // SAFETY: version 3 of the interface takes one header and two sets, which these are.
    super::check_long(unsafe { libc::syscall(libc::SYS_capset, &header, sets.as_ptr()) }).map(drop)
}

/// Takes capability `number` out of the bounding set; an error says there is none of that number.
pub fn drop_bounding(number: u32) -> io::Result<()> {
    prctl(libc::PR_CAPBSET_DROP, number.into())
}

/// The superuser's programs get no capability for being the superuser's, for good.
pub fn superuser_is_nobody() -> io::Result<()> {
    const NO_ROOT: libc::c_ulong = 1;
    const LOCKED: libc::c_ulong = 2;
    prctl(libc::PR_SET_SECUREBITS, NO_ROOT | LOCKED)
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
    super::check_long(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, anonymous) })
        .map(drop)
}
