//! The door inside: a listener in the sandbox's namespace, and the right one of those who knock.
//!
//! A program inside keeps its own socket. Whoever serves it has a copy of that socket, connects
//! it to the listener, and takes the other end from there. The listener stands where every
//! program inside can connect to it as well, so what is taken is compared with the socket that
//! was connected, and everything else is turned away.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_sys::net::option;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, acceptfrom_with, connect, connect_unspec, getsockname, sendto, sockopt,
};

use crate::dial::wait_readable;

/// How long connecting may take: on loopback it takes longer only where others crowd the door,
/// and then the kernel tries again after one second and after three.
const LIMIT: Duration = Duration::from_secs(10);

/// As many as a door has room for.
const CROWD: usize = 4096;

const IPPROTO_TCP: i32 = 6;
const TCP_INFO: i32 = 11;
/// The first byte of `TCP_INFO`.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;
/// `MSG_FASTOPEN`: connects, and does not wait where `MSG_DONTWAIT` says so.
const FASTOPEN: u32 = 0x2000_0000;

/// Listeners inside a sandbox, to which its programs' own sockets are connected.
#[derive(Debug)]
pub struct Inlet {
    v4: TcpListener,
    v6: Option<TcpListener>,
    /// One at a time: whoever takes somebody from the door must not turn another's away.
    turn: Mutex<()>,
}

impl Inlet {
    /// Takes listeners that were made on loopback inside. Without one for IPv6, callers of IPv6
    /// are connected by a mapped address.
    pub fn new(v4: TcpListener, v6: Option<TcpListener>) -> io::Result<Inlet> {
        for listener in [Some(&v4), v6.as_ref()].into_iter().flatten() {
            listener.set_nonblocking(true)?;
        }
        Ok(Inlet { v4, v6, turn: Mutex::new(()) })
    }

    /// Connects `caller`, a copy of the socket of a program inside, and answers the other end.
    ///
    /// Neither the socket's `O_NONBLOCK`, which its owner shares, nor any option is touched. A
    /// socket that is connected, connecting or listening already is left as it is, with the
    /// error that the kernel has for it; one that could not be connected is unconnected again.
    pub fn connect(&self, caller: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let (listener, to) = self.door_for(caller)?;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever stands at the door now is none of ours, and takes the room.
        for _ in 0..CROWD {
            if knock(listener)?.is_none() {
                break;
            }
        }
        begin(caller, to)?;
        match take(caller, listener, Instant::now() + LIMIT) {
            Ok(other) => {
                // It is connected; this is how the kernel is told that its owner knows.
                let _ = connect(caller, &to);
                Ok(other)
            }
            Err(error) => {
                let _ = connect_unspec(caller);
                Err(error)
            }
        }
    }

    /// The listener that `caller` can reach, and its address for that socket.
    fn door_for(&self, caller: BorrowedFd<'_>) -> io::Result<(&TcpListener, SocketAddr)> {
        if sockopt::socket_type(caller)? != SocketType::STREAM {
            return Err(Errno::PROTOTYPE.into());
        }
        let v4 = self.v4.local_addr()?;
        match (sockopt::socket_domain(caller)?, &self.v6) {
            (AddressFamily::INET, _) => Ok((&self.v4, v4)),
            (AddressFamily::INET6, Some(v6)) if !is_mapped(caller)? => Ok((v6, v6.local_addr()?)),
            (AddressFamily::INET6, _) => {
                let IpAddr::V4(address) = v4.ip() else { return Err(Errno::AFNOSUPPORT.into()) };
                Ok((&self.v4, SocketAddr::new(address.to_ipv6_mapped().into(), v4.port())))
            }
            _ => Err(Errno::AFNOSUPPORT.into()),
        }
    }
}

/// Takes from the door until it is the other end of `caller`, and turns everybody else away.
fn take(caller: BorrowedFd<'_>, listener: &TcpListener, end: Instant) -> io::Result<OwnedFd> {
    let mine = name_of(caller)?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Errno::TIMEDOUT.into());
        }
        match knock(listener)? {
            Some((socket, peer)) if peer == mine && is_alive(&socket)? => return Ok(socket),
            Some(_) => {}
            None => {
                sockopt::socket_error(caller)??;
                // Nobody says at the door that the caller's socket has failed, so it is looked at again.
                wait_readable(listener, left.min(Duration::from_millis(100)))?;
            }
        }
    }
}

/// Begins to connect `caller` without waiting, whether or not its owner would wait.
fn begin(caller: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    // The owner may be waiting for this very call: if the door is crowded, `connect` would keep
    // us for as long as it would have kept the owner, and nobody would clear the door.
    match sendto(caller, &[], SendFlags::from_bits_retain(FASTOPEN) | SendFlags::DONTWAIT | SendFlags::NOSIGNAL, &to) {
        Ok(_) | Err(Errno::INPROGRESS) => Ok(()),
        // Somebody has switched it off in this namespace.
        Err(Errno::OPNOTSUPP) => match connect(caller, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error.into()),
    }
}

/// The next one at the door.
fn knock(listener: &TcpListener) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    loop {
        match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).map(plain);
                if let Some(peer) = peer {
                    return Ok(Some((socket, peer)));
                }
            }
            Err(Errno::AGAIN) => return Ok(None),
            // Gone before it was taken.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether `socket` is connected at this moment. No two connections that are have the same two
/// addresses; one that was broken off, and whose addresses the caller has got since, is told by
/// this.
fn is_alive(socket: &OwnedFd) -> io::Result<bool> {
    let mut state = [0];
    option(socket.as_fd(), IPPROTO_TCP, TCP_INFO, &mut state)?;
    Ok(state[0] == ESTABLISHED || state[0] == CLOSE_WAIT)
}

/// Whether a socket of IPv6 was bound to an address of IPv4.
fn is_mapped(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let name = SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(matches!(name.ip(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some()))
}

fn name_of(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(plain(SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)?))
}

/// The address as it is compared: not mapped, without scope.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    use rustix::net::{ipproto, socket_with};

    use super::*;

    fn inlet() -> Inlet {
        Inlet::new(TcpListener::bind("127.0.0.1:0").unwrap(), Some(TcpListener::bind("[::1]:0").unwrap())).unwrap()
    }

    fn socket(family: AddressFamily, flags: SocketFlags) -> OwnedFd {
        socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)).unwrap()
    }

    /// Asserts that both ends are each other's.
    #[track_caller]
    fn check(inlet: &Inlet, caller: OwnedFd) {
        let other = inlet.connect(caller.as_fd()).unwrap();
        let door = SocketAddr::try_from(rustix::net::getpeername(&caller).unwrap().unwrap()).unwrap();
        assert_eq!(connect(&caller, &door), Err(Errno::ISCONN));
        let (caller, other) = (TcpStream::from(caller), TcpStream::from(other));
        assert_eq!(plain(caller.local_addr().unwrap()), plain(other.peer_addr().unwrap()));
        caller.set_nonblocking(false).unwrap();
        other.set_nonblocking(false).unwrap();
        for (from, to) in [(&caller, &other), (&other, &caller)] {
            let (mut from, mut to) = (from, to);
            from.write_all(b"word").unwrap();
            let mut said = [0; 4];
            to.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"word");
        }
    }

    #[test]
    fn sockets_of_all_kinds_get_in() {
        let inlet = inlet();
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            for flags in [SocketFlags::CLOEXEC, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK] {
                check(&inlet, socket(family, flags));
            }
        }
        for (family, at) in [
            (AddressFamily::INET, "0.0.0.0:0"),
            (AddressFamily::INET, "127.0.0.9:0"),
            (AddressFamily::INET6, "[::]:0"),
            (AddressFamily::INET6, "[::1]:0"),
            (AddressFamily::INET6, "[::ffff:127.0.0.9]:0"),
        ] {
            let bound = socket(family, SocketFlags::CLOEXEC);
            rustix::net::bind(&bound, &at.parse::<SocketAddr>().unwrap()).unwrap();
            check(&inlet, bound);
        }
    }

    #[test]
    fn without_ipv6_there_is_a_way_for_callers_of_it() {
        let inlet = Inlet::new(TcpListener::bind("127.0.0.1:0").unwrap(), None).unwrap();
        check(&inlet, socket(AddressFamily::INET6, SocketFlags::CLOEXEC));
    }

    #[test]
    fn what_is_in_use_stays_as_it_is() {
        let inlet = inlet();
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(elsewhere.local_addr().unwrap()).unwrap();
        assert_eq!(inlet.connect(connected.as_fd()).unwrap_err().raw_os_error(), Some(Errno::ISCONN.raw_os_error()));
        assert_eq!(connected.peer_addr().unwrap(), elsewhere.local_addr().unwrap());
        assert_eq!(inlet.connect(elsewhere.as_fd()).unwrap_err().raw_os_error(), Some(Errno::ISCONN.raw_os_error()));
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(inlet.connect(datagrams.as_fd()).is_err());
    }

    #[test]
    fn options_and_flags_stay_the_owners() {
        let inlet = inlet();
        for flags in [SocketFlags::CLOEXEC, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK] {
            let caller = socket(AddressFamily::INET, flags);
            let before = rustix::fs::fcntl_getfl(&caller).unwrap();
            inlet.connect(caller.as_fd()).unwrap();
            assert_eq!(rustix::fs::fcntl_getfl(&caller).unwrap(), before);
        }
    }

    #[test]
    fn strangers_at_the_door_are_turned_away() {
        let inlet = inlet();
        let door = inlet.v4.local_addr().unwrap();
        let mut before = TcpStream::connect(door).unwrap();
        before.write_all(b"let me in").unwrap();
        check(&inlet, socket(AddressFamily::INET, SocketFlags::CLOEXEC));
        assert!(matches!(before.read(&mut [0; 8]), Ok(0) | Err(_)));
    }

    #[test]
    fn one_who_left_is_not_taken_for_one_who_came() {
        let inlet = inlet();
        let door = inlet.v4.local_addr().unwrap();
        // It says something, breaks off, and leaves its port to the caller's socket.
        let gone = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
        sockopt::set_socket_reuseaddr(&gone, true).unwrap();
        rustix::net::bind(&gone, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
        let port = name_of(gone.as_fd()).unwrap();
        rustix::net::connect(&gone, &door).unwrap();
        TcpStream::from(gone.try_clone().unwrap()).write_all(b"forged").unwrap();
        sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        let caller = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
        rustix::net::bind(&caller, &port).unwrap();
        begin(caller.as_fd(), door).unwrap();
        let other = take(caller.as_fd(), &inlet.v4, Instant::now() + LIMIT).unwrap();
        TcpStream::from(caller).write_all(b"honest").unwrap();
        let mut said = [0; 6];
        let mut other = TcpStream::from(other);
        other.set_nonblocking(false).unwrap();
        other.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"honest");
    }

    #[test]
    fn a_flood_of_strangers_keeps_nobody_out_for_good() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 16).unwrap();
        let inlet = Inlet::new(listener, None).unwrap();
        let door = inlet.v4.local_addr().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let knocks = Arc::new(AtomicUsize::new(0));
        let flood: Vec<_> = (0..2)
            .map(|_| {
                let (done, knocks) = (Arc::clone(&done), Arc::clone(&knocks));
                thread::spawn(move || {
                    let mut kept = std::collections::VecDeque::new();
                    while !done.load(Ordering::Relaxed) {
                        let stranger = socket(AddressFamily::INET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
                        let _ = rustix::net::connect(&stranger, &door);
                        knocks.fetch_add(1, Ordering::Relaxed);
                        kept.push_back(stranger);
                        if kept.len() > 64 {
                            let oldest = kept.pop_front().unwrap();
                            let _ = sockopt::set_socket_linger(&oldest, Some(Duration::ZERO));
                        }
                    }
                })
            })
            .collect();
        // The door is crowded before the first of ours comes.
        while knocks.load(Ordering::Relaxed) < 200 {
            thread::yield_now();
        }
        let mut got_in = 0;
        for _ in 0..20 {
            let caller = socket(AddressFamily::INET, SocketFlags::CLOEXEC);
            match inlet.connect(caller.as_fd()) {
                Ok(other) => {
                    let (mut caller, mut other) = (TcpStream::from(caller), TcpStream::from(other));
                    assert_eq!(caller.local_addr().unwrap(), other.peer_addr().unwrap());
                    other.set_nonblocking(false).unwrap();
                    caller.write_all(b"mine").unwrap();
                    let mut said = [0; 4];
                    other.read_exact(&mut said).unwrap();
                    assert_eq!(&said, b"mine");
                    got_in += 1;
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(Errno::TIMEDOUT.raw_os_error())),
            }
        }
        done.store(true, Ordering::Relaxed);
        flood.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(got_in > 0);
    }
}
