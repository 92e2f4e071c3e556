//! Connects a duplicate of a program's socket; the program keeps its own fd if it stops waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, connect, sendto};

use super::{DialPatience, wait_with_patience};

/// `MSG_FASTOPEN`: connects, without blocking if combined with `MSG_DONTWAIT`.
const FASTOPEN: u32 = 0x2000_0000;

/// Begins a non-blocking connect of `socket`. `O_NONBLOCK` is shared with its owner, so it is not
/// changed.
pub(crate) fn begin_connect(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    match sendto(
        socket,
        &[],
        SendFlags::from_bits_retain(FASTOPEN) | SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        &to,
    ) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        // TCP fast open is disabled in this namespace.
        Err(Errno::OPNOTSUPP) => match connect(socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Connects `socket` as a blocking call of its owner would, until `patience` ends: then the kernel
/// goes on in the background, as after an interrupted call, and the error is `EINPROGRESS`.
pub fn connect_duplicate(
    socket: BorrowedFd<'_>,
    to: SocketAddr,
    patience: &DialPatience<'_>,
) -> io::Result<()> {
    begin_connect(socket, to)?;
    if !wait_with_patience(socket, PollFlags::OUT, patience)? {
        return Err(Errno::INPROGRESS.into());
    }
    // The result is known; this call returns it and makes the kernel report it to the owner.
    Ok(connect(socket, &to)?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsFd, OwnedFd};
    use std::time::{Duration, Instant};

    use rustix::net::{AddressFamily, SocketType, getpeername, socket};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn blocking_socket() -> OwnedFd {
        socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
    }

    #[test]
    fn duplicate_is_connected_like_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, patience) =
            (listener.local_addr().unwrap(), DialPatience::until(Instant::now() + LONG));
        let one = blocking_socket();
        connect_duplicate(one.as_fd(), at, &patience).unwrap();
        assert_eq!(SocketAddr::try_from(getpeername(&one).unwrap().unwrap()).unwrap(), at);
        assert_eq!(
            connect_duplicate(one.as_fd(), at, &patience).unwrap_err().raw_os_error(),
            Some(Errno::ISCONN.raw_os_error())
        );
        drop(listener);
        let other = blocking_socket();
        assert_eq!(
            connect_duplicate(other.as_fd(), at, &patience).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        // The socket is reusable.
        let listener = TcpListener::bind(at).unwrap();
        connect_duplicate(other.as_fd(), listener.local_addr().unwrap(), &patience).unwrap();
    }

    #[test]
    fn interrupted_connect_completes_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let at = listener.local_addr().unwrap();
        let full: Vec<OwnedFd> = (0..4)
            .map(|_| blocking_socket())
            .inspect(|one| begin_connect(one.as_fd(), at).unwrap())
            .collect();
        let late = blocking_socket();
        let ended = connect_duplicate(
            late.as_fd(),
            at,
            &DialPatience::new(Instant::now() + LONG, &|| false),
        );
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(Errno::INPROGRESS.raw_os_error()));
        drop(full);
        listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + LONG;
        while getpeername(&late).is_err() && Instant::now() < end {
            let _ = listener.accept();
            std::thread::sleep(Duration::from_millis(5));
        }
        getpeername(&late).expect("it connects once the queue has space");
    }
}
