//! Network interfaces and sockets of others.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sets the loopback interface of this network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0)?;
    // SAFETY: `ifreq` is plain data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request names an interface and lives across the call.
    super::check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) }).map(drop)
}

/// `socket(2)` with numbers as they stand in the call.
pub fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = super::check(unsafe { libc::socket(family, kind, protocol) })?;
    // SAFETY: the descriptor is new and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bind(2)` with an address as it stands in memory.
pub fn bind_raw(socket: BorrowedFd<'_>, address: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer; the kernel copies it
    // and checks family and length itself.
    super::check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) }).map(drop)
}

/// `getsockopt(2)`; answers how many bytes of `value` were filled.
pub fn option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: pointer and length describe the same live buffer, of which the kernel fills at most that much.
    super::check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length) })?;
    Ok(length as usize)
}

/// `setsockopt(2)` with a value as it stands in memory.
pub fn set_option(socket: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: pointer and length describe the same live buffer; the kernel copies it and checks it itself.
    super::check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32) }).map(drop)
}
