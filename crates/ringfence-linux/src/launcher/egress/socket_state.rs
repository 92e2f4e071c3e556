//! Connect state and connect timeout of a program's socket.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use ringfence_sys::net::option;
use rustix::fs::OFlags;
use rustix::net::sockopt::Timeout;
use rustix::net::{getpeername, sockopt};

/// The errno with which the kernel would refuse to connect a stream in use. The kernel itself is
/// not asked: ringfence replaces the socket, or connects it later.
pub(super) fn connect_errno(socket: BorrowedFd<'_>) -> Option<i32> {
    /// Values of the first byte of `TCP_INFO`.
    const CLOSE: u8 = 7;
    const SYN_SENT: u8 = 2;
    let mut state = [0];
    match option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state).map(|_| state[0]) {
        Ok(CLOSE) => None,
        Ok(SYN_SENT) => Some(libc::EALREADY),
        Ok(_) => Some(libc::EISCONN),
        // Another protocol.
        Err(_) => (getpeername(socket).is_ok() || sockopt::socket_acceptconn(socket) == Ok(true))
            .then_some(libc::EISCONN),
    }
}

/// End of the time that the owner of `socket` waits in a syscall (`SO_SNDTIMEO`), if it waits and
/// the time is limited.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectDeadline(Option<Instant>);

impl ConnectDeadline {
    pub(super) fn from_socket(socket: BorrowedFd<'_>) -> Self {
        let waits =
            rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
        let limit = sockopt::socket_timeout(socket, Timeout::Send).ok().flatten().filter(|_| waits);
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// True once it has passed.
    pub(super) fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn socket_in_use_gets_the_kernels_errno() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(connect_errno(listener.as_fd()), Some(libc::EISCONN));
        assert_eq!(connect_errno(client.as_fd()), Some(libc::EISCONN));
        let fresh = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        assert_eq!(connect_errno(fresh.as_fd()), None);
        rustix::net::bind(&fresh, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
        assert_eq!(connect_errno(fresh.as_fd()), None);
    }
}
