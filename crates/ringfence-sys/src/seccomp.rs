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

/// Installs `filter` for this thread and what it starts; answers the descriptor at
/// which its notifications arrive.
///
/// Where the kernel has it (5.19), a notification that was received is not interrupted
/// by signals, so that nothing done for the caller is done twice.
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
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether the kernel has that: asked with no filter at all, it looks at the flags first.
pub fn waits_killable() -> bool {
    let none: *const BpfProgram = std::ptr::null();
    // SAFETY: a null pointer is what the kernel cannot read, and nothing is installed.
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

/// A call that waits for an answer.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Notification {
    /// To be given back with the answer.
    pub id: u64,
    /// The thread that called, as this process numbers it.
    pub pid: u32,
    flags: u32,
    /// Number of the system call.
    pub call: i32,
    /// Architecture of the call (`AUDIT_ARCH_…`).
    pub arch: u32,
    /// Where the call stands in the program.
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

/// The next call that waits; blocks. `ENOENT` means the caller died meanwhile.
pub fn receive(listener: BorrowedFd<'_>) -> io::Result<Notification> {
    let mut notification = Notification::default();
    // SAFETY: the structure is the kernel's layout, zeroed as the call demands, and live.
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

/// Whether the call still waits: process ids are used again, notification ids are not.
pub fn is_waiting(listener: BorrowedFd<'_>, id: u64) -> bool {
    // SAFETY: the pointer is to a live `u64`.
    unsafe { libc::ioctl(listener.as_raw_fd(), ID_VALID as _, &id) == 0 }
}

/// Answers with a value, or with an error number.
pub fn answer(listener: BorrowedFd<'_>, id: u64, result: Result<i64, i32>) -> io::Result<()> {
    let (value, error) = match result {
        Ok(value) => (value, 0),
        Err(number) => (0, -number),
    };
    send(listener, &NotifResponse { id, value, error, flags: 0 })
}

/// Lets the kernel carry the call out as it stands. Never for a call that was judged by
/// what a pointer of it points to: another thread may have changed that since.
pub fn let_through(listener: BorrowedFd<'_>, id: u64) -> io::Result<()> {
    const CONTINUE: u32 = 1;
    send(listener, &NotifResponse { id, value: 0, error: 0, flags: CONTINUE })
}

fn send(listener: BorrowedFd<'_>, response: &NotifResponse) -> io::Result<()> {
    // SAFETY: the structure is the kernel's layout and live.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, response) }).map(drop)
}

/// Puts a copy of `descriptor` in the place of the caller's descriptor `number`. The call still
/// waits for an answer.
pub fn replace(
    listener: BorrowedFd<'_>,
    id: u64,
    number: u32,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<()> {
    const AT: u32 = 1;
    let request = NotifAddFd {
        id,
        flags: AT,
        source: descriptor.as_raw_fd() as u32,
        target: number,
        target_flags,
    };
    // SAFETY: the structure is the kernel's layout and live.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) }).map(drop)
}

/// Gives the caller a copy of `descriptor`, and answers the number it has there. The call still
/// waits for an answer.
pub fn add(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<i32> {
    let request =
        NotifAddFd { id, flags: 0, source: descriptor.as_raw_fd() as u32, target: 0, target_flags };
    // SAFETY: the structure is the kernel's layout and live.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) })
}

/// Answers with a copy of `descriptor`, which becomes the caller's new descriptor. The caller goes
/// on while ours is still open: for a file that is open to be written, see [`add`].
pub fn answer_with(
    listener: BorrowedFd<'_>,
    id: u64,
    descriptor: BorrowedFd<'_>,
    target_flags: u32,
) -> io::Result<()> {
    const AND_SEND: u32 = 2;
    let request = NotifAddFd {
        id,
        flags: AND_SEND,
        source: descriptor.as_raw_fd() as u32,
        target: 0,
        target_flags,
    };
    // SAFETY: the structure is the kernel's layout and live.
    super::check(unsafe { libc::ioctl(listener.as_raw_fd(), ADD_FD as _, &request) }).map(drop)
}
