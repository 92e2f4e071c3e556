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
use rustix::net::{AddressFamily, SocketFlags, SocketType, acceptfrom_with, connect, connect_unspec, getsockname, sockopt};

use crate::dial::{begin, wait_readable};

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

/// Listeners inside a sandbox, to which its programs' own sockets are connected.
#[derive(Debug)]
pub struct Inlet {
    v4: TcpListener,
    v6: Option<TcpListener>,
    /// One at a time: whoever takes somebody from the door must not turn another's away.
    turn: Mutex<()>,
}

impl Inlet {
    /// Takes listeners that were made on loopback inside, with a long queue: from a short one the
    /// kernel loses some of many who come at once. Without one for IPv6, callers of IPv6 are
    /// connected by a mapped address.
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
        // The owner may be waiting for this very call: if the door is crowded, `connect` would keep
        // us for as long as it would have kept the owner, and nobody would clear the door.
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
mod tests;
