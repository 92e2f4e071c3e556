//! Seccomp filters and their notifications.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// One instruction of the classic BPF machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BpfInsn {
    /// Operation.
    pub code: u16,
    /// Distance to jump if true.
    pub jt: u8,
    /// Distance to jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

#[repr(C)]
struct BpfProgram {
    length: u16,
    instructions: *const BpfInsn,
}

const NEW_LISTENER: libc::c_ulong = 1 << 3;
const WAIT_KILLABLE: libc::c_ulong = 1 << 5;

/// Installs `filter` for this thread and its children; returns the fd of its notifications.
///
/// If the kernel supports it (5.19), signals do not interrupt a received notification, so that
/// nothing done for the caller is done twice.
pub fn install(filter: &[BpfInsn]) -> io::Result<OwnedFd> {
    let program = BpfProgram { length: filter.len() as u16, instructions: filter.as_ptr() };
    let set = |flags: libc::c_ulong| {
        // SAFETY: the program's pointer and length describe `filter`, which the kernel copies.
        super::check_long(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program)
        })
    };
    let fd = set(NEW_LISTENER | WAIT_KILLABLE).or_else(|error| {
        if error.raw_os_error() == Some(libc::EINVAL) { set(NEW_LISTENER) } else { Err(error) }
    })?;
    // SAFETY: the fd is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Installs a filter that asks no notify handler. Needs `no_new_privs`.
pub fn install_plain(filter: &[BpfInsn]) -> io::Result<()> {
    let program = BpfProgram { length: filter.len() as u16, instructions: filter.as_ptr() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program's pointer and length describe `filter`, which the kernel copies.
    super::check_long(unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &program) }).map(drop)
}

/// True if the kernel supports that: with a null filter it checks the flags first.
pub fn supports_wait_killable() -> bool {
    let none: *const BpfProgram = std::ptr::null();
    // SAFETY: the kernel fails to read the null pointer, and installs nothing.
    let asked = super::check_long(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            NEW_LISTENER | WAIT_KILLABLE,
            none,
        )
    });
    asked.is_err_and(|error| error.raw_os_error() == Some(libc::EFAULT))
}

/// A syscall that waits for an answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Notification {
    /// Repeated in the answer.
    pub id: u64,
    /// The calling thread, in our pid namespace.
    pub pid: u32,
    flags: u32,
    /// Syscall number.
    pub call: i32,
    /// Architecture of the call (`AUDIT_ARCH_…`).
    pub arch: u32,
    /// Instruction pointer of the call.
    pub instruction: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

#[repr(C)]
struct NotifResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct NotifAddFd {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;
const ADD_FD: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;

/// The next waiting syscall; blocks. `ENOENT` means that the caller died meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: the structure is live, in the kernel's layout, and zeroed as the call demands.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &mut notification) })?;
    Ok(notification)
}

/// The caller wakes on the CPU it slept on (Linux 6.6): four times cheaper than elsewhere.
pub fn wake_in_place(listener: BorrowedFd<'_>) -> io::Result<()> {
    const SYNC_WAKE_UP: libc::c_ulong = 1;
    // SAFETY: the argument is a number, not a pointer.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, SYNC_WAKE_UP) })
        .map(drop)
}

/// True if the call still waits: pids are reused, notification ids are not.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the pointer is to a live `u64`.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &id) == 0 }
}

/// Answers with a value, or with an errno.
pub fn answer(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) -> io::Result<()> {
    let (value, error) = match result {
        Ok(value) => (value, 0),
        Err(number) => (0, -number),
    };
    send(listener, &NotifResponse { id, value, error, flags: 0 })
}

/// Lets the kernel execute the syscall unchanged. Never for a decision based on memory behind a
/// pointer: another thread may have changed it since.
pub fn continue_syscall(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    send(listener, &NotifResponse { id, value: 0, error: 0, flags: CONTINUE })
}

fn send(listener: BorrowedFd<'_>, response: &NotifResponse) -> io::Result<()> {
    // SAFETY: the structure is live, in the kernel's layout.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, response) }).map(drop)
}

/// Replaces the caller's fd `number` by a copy of `descriptor`. The call still waits for an answer.
pub fn replace_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    number: u32,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<()> {
    const SET_FD: u32 = 1;
    let request = NotifAddFd {
        id,
        flags: SET_FD,
        source: descriptor.as_raw_fd() as u32,
        target: number,
        target_flags,
    };
    // SAFETY: the structure is live, in the kernel's layout.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) }).map(drop)
}

/// Adds a copy of `descriptor` to the caller's fds, and returns its number there. The call still
/// waits for an answer.
pub fn add_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<i32> {
    let request =
        NotifAddFd { id, flags: 0, source: descriptor.as_raw_fd() as u32, target: 0, target_flags };
    // SAFETY: the structure is live, in the kernel's layout.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) })
}

/// Answers with a copy of `descriptor` as the caller's new fd. The caller resumes while our fd is
/// still open: for a file open for writing, see [`add_fd`].
pub fn answer_with_fd(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<()> {
    const ADD_AND_SEND: u32 = 2;
    let request = NotifAddFd {
        id,
        flags: ADD_AND_SEND,
        source: descriptor.as_raw_fd() as u32,
        target: 0,
        target_flags,
    };
    // SAFETY: the structure is live, in the kernel's layout.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) }).map(drop)
}
