//! Connecting a socket of which there is only a copy: its owner waits for that, and has it still
//! if it stops waiting.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, connect, sendto};

use super::{DialPatience, wait_patiently};

/// `MSG_FASTOPEN`: connects, and does not wait where `MSG_DONTWAIT` says so.
const FASTOPEN: u32 = 0x2000_0000;

/// Begins to connect `socket` without waiting, whether or not its owner would wait. That is the
/// owner's to say and shared with it (`O_NONBLOCK`), so it is left as it is.
pub(crate) fn begin(socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    match sendto(
        socket,
        &[],
        SendFlags::from_bits_retain(FASTOPEN) | SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        &to,
    ) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        // Somebody has switched it off in this namespace.
        Err(Errno::OPNOTSUPP) => match connect(socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// Connects `socket` as its owner would who waits, for as long as there is patience: after that
/// the kernel goes on by itself, as it does for one that was interrupted, and that is
/// `EINPROGRESS`.
pub fn connect_copy(
    socket: BorrowedFd<'_>,
    to: SocketAddr,
    patience: &DialPatience<'_>,
) -> io::Result<()> {
    begin(socket, to)?;
    if !wait_patiently(socket, PollFlags::OUT, patience)? {
        return Err(Errno::INPROGRESS.into());
    }
    // It is decided; this answers how, and tells the kernel that the owner knows.
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

    fn waiting() -> OwnedFd {
        socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
    }

    #[test]
    fn a_copy_is_connected_as_the_socket_would_be() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (at, patience) =
            (listener.local_addr().unwrap(), DialPatience::until(Instant::now() + LONG));
        let one = waiting();
        connect_copy(one.as_fd(), at, &patience).unwrap();
        assert_eq!(SocketAddr::try_from(getpeername(&one).unwrap().unwrap()).unwrap(), at);
        assert_eq!(
            connect_copy(one.as_fd(), at, &patience).unwrap_err().raw_os_error(),
            Some(Errno::ISCONN.raw_os_error())
        );
        drop(listener);
        let other = waiting();
        assert_eq!(
            connect_copy(other.as_fd(), at, &patience).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        // It can be used again.
        let listener = TcpListener::bind(at).unwrap();
        connect_copy(other.as_fd(), listener.local_addr().unwrap(), &patience).unwrap();
    }

    #[test]
    fn whoever_stops_waiting_is_connected_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let at = listener.local_addr().unwrap();
        let full: Vec<OwnedFd> =
            (0..4).map(|_| waiting()).inspect(|one| begin(one.as_fd(), at).unwrap()).collect();
        let late = waiting();
        let ended =
            connect_copy(late.as_fd(), at, &DialPatience::new(Instant::now() + LONG, &|| false));
        assert_eq!(ended.unwrap_err().raw_os_error(), Some(Errno::INPROGRESS.raw_os_error()));
        drop(full);
        listener.set_nonblocking(true).unwrap();
        let end = Instant::now() + LONG;
        while getpeername(&late).is_err() && Instant::now() < end {
            let _ = listener.accept();
            std::thread::sleep(Duration::from_millis(5));
        }
        getpeername(&late).expect("it is connected when there is room");
    }
}
