//! The door inside: a listener in the sandbox's namespace, and the right one of those who knock.
//!
//! A program inside keeps its own socket. Whoever serves it has a copy of that socket, connects
//! it to the listener, and takes the other end from there. The listener stands where every
//! program inside can connect to it as well, so what is taken is compared with the sockets that
//! were connected, and everything else is turned away.
//!
//! Many are served at once, and one of them may never come: it can see to that by an option of
//! its own socket. So nobody waits for another. Whoever waits takes what has come for all.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_sys::net::option;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, connect_unspec, getsockname, sockopt,
};

use crate::dial::{DialPatience, begin, wait_readable};

/// How long connecting may take: on loopback it takes longer only where others crowd the door,
/// and then the kernel tries again after one second and after three.
const LIMIT: Duration = Duration::from_secs(4);

/// As many as a door has room for: so many are taken before others have their turn.
const CROWD: usize = 4096;

const IPPROTO_TCP: i32 = 6;
const TCP_INFO: i32 = 11;
/// The first byte of `TCP_INFO`.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// Listeners inside a sandbox, to which its programs' own sockets are connected.
#[derive(Debug)]
pub struct LoopbackInlet {
    v4: InletListener,
    v6: Option<InletListener>,
}

impl LoopbackInlet {
    /// Takes listeners that were made on loopback inside, with a long queue: from a short one the
    /// kernel loses some of many who come at once. Without one for IPv6, callers of IPv6 are
    /// connected by a mapped address.
    pub fn new(v4: TcpListener, v6: Option<TcpListener>) -> io::Result<LoopbackInlet> {
        Ok(LoopbackInlet {
            v4: InletListener::new(v4)?,
            v6: v6.map(InletListener::new).transpose()?,
        })
    }

    /// Connects `caller`, a copy of the socket of a program inside, and answers the other end. It
    /// is tried for as long as `is_wanted` says, and for a few seconds at most.
    ///
    /// Neither the socket's `O_NONBLOCK`, which its owner shares, nor any option is touched. A
    /// socket that is connected, connecting or listening already is left as it is, with the
    /// error that the kernel has for it; one that could not be connected is unconnected again.
    pub fn connect(
        &self,
        caller: BorrowedFd<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> io::Result<OwnedFd> {
        let (door, to) = self.door_for(caller)?;
        let mut hall = door.hall();
        // Whoever stands at the door now takes the room.
        door.let_in(&mut hall)?;
        let mine = hall.announce(caller, to)?;
        match door.wait(hall, caller, mine, &DialPatience::new(Instant::now() + LIMIT, is_wanted)) {
            Ok(other) => {
                // It is connected; this is how the kernel is told that its owner knows.
                let _ = begin(caller, to);
                Ok(other)
            }
            Err(error) => {
                let _ = connect_unspec(caller);
                Err(error)
            }
        }
    }

    /// The door that `caller` can reach, and its address for that socket.
    fn door_for(&self, caller: BorrowedFd<'_>) -> io::Result<(&InletListener, SocketAddr)> {
        if sockopt::socket_type(caller)? != SocketType::STREAM {
            return Err(Errno::PROTOTYPE.into());
        }
        let v4 = self.v4.listener.local_addr()?;
        match (sockopt::socket_domain(caller)?, &self.v6) {
            (AddressFamily::INET, _) => Ok((&self.v4, v4)),
            (AddressFamily::INET6, Some(v6)) if !is_mapped(caller)? => {
                Ok((v6, v6.listener.local_addr()?))
            }
            (AddressFamily::INET6, _) => {
                let IpAddr::V4(address) = v4.ip() else { return Err(Errno::AFNOSUPPORT.into()) };
                Ok((&self.v4, SocketAddr::new(address.to_ipv6_mapped().into(), v4.port())))
            }
            _ => Err(Errno::AFNOSUPPORT.into()),
        }
    }
}

/// One listener, and those who are to come to it.
#[derive(Debug)]
struct InletListener {
    listener: TcpListener,
    hall: Mutex<InletQueue>,
    /// Somebody has come, or nobody looks at the door any more.
    stirred: Condvar,
}

/// Those who are to come.
#[derive(Debug, Default)]
struct InletQueue {
    /// By their own addresses, each with the other end if it has come.
    awaited: HashMap<SocketAddr, Option<OwnedFd>>,
    /// Whether one of those who wait looks at the door.
    is_attended: bool,
}

impl InletQueue {
    /// Begins to connect `caller`, which is awaited from then on; answers by which address. Nobody
    /// can have taken it from the door before that is known, since whoever does has the hall.
    fn announce(&mut self, caller: BorrowedFd<'_>, to: SocketAddr) -> io::Result<SocketAddr> {
        // The owner may be waiting for this very call: if the door is crowded, `connect` would keep
        // us for as long as it would have kept the owner, and nobody would clear the door.
        begin(caller, to)?;
        let mine = name_of(caller)?;
        self.awaited.insert(mine, None);
        Ok(mine)
    }

    /// The other end of whoever is awaited by that address, if it has come and is still there.
    fn fetch(&mut self, mine: SocketAddr) -> io::Result<Option<OwnedFd>> {
        match self.awaited.get_mut(&mine).and_then(Option::take) {
            Some(socket) if is_alive(&socket)? => Ok(Some(socket)),
            _ => Ok(None),
        }
    }
}

impl InletListener {
    fn new(listener: TcpListener) -> io::Result<InletListener> {
        listener.set_nonblocking(true)?;
        Ok(InletListener { listener, hall: Mutex::default(), stirred: Condvar::new() })
    }

    fn hall(&self) -> MutexGuard<'_, InletQueue> {
        self.hall.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes those who stand at the door, and turns those away who are not awaited. Of two with
    /// the same address, the first has left.
    fn let_in(&self, hall: &mut InletQueue) -> io::Result<()> {
        for _ in 0..CROWD {
            let Some((socket, peer)) = knock(&self.listener)? else { break };
            if let Some(place) = hall.awaited.get_mut(&peer) {
                *place = Some(socket);
                self.stirred.notify_all();
            }
        }
        Ok(())
    }

    /// Waits for the other end of `caller`, which is awaited by the address `mine`; it no longer
    /// is after that.
    fn wait<'a>(
        &'a self,
        mut hall: MutexGuard<'a, InletQueue>,
        caller: BorrowedFd<'_>,
        mine: SocketAddr,
        patience: &DialPatience<'_>,
    ) -> io::Result<OwnedFd> {
        let came = loop {
            match self.let_in(&mut hall).and_then(|()| hall.fetch(mine)) {
                Ok(None) => {}
                Ok(Some(socket)) => break Ok(socket),
                Err(error) => break Err(error),
            }
            // Nobody says at the door that the caller's socket has failed, or that nobody wants it
            // any more, so that is looked at again and again.
            if let Err(error) = still_comes(caller, patience) {
                break Err(error);
            }
            hall = self.pause(hall, patience.step());
        };
        hall.awaited.remove(&mine);
        came
    }

    /// Waits a while for somebody to come: one looks at the door, and the others at what that one
    /// has taken.
    fn pause<'a>(
        &'a self,
        mut hall: MutexGuard<'a, InletQueue>,
        step: Duration,
    ) -> MutexGuard<'a, InletQueue> {
        if hall.is_attended {
            return self.stirred.wait_timeout(hall, step).unwrap_or_else(PoisonError::into_inner).0;
        }
        hall.is_attended = true;
        drop(hall);
        // An error shows again when somebody is taken from there.
        let _ = wait_readable(&self.listener, step);
        let mut hall = self.hall();
        hall.is_attended = false;
        self.stirred.notify_one();
        hall
    }
}

/// An error if `caller` will not be connected any more.
fn still_comes(caller: BorrowedFd<'_>, patience: &DialPatience<'_>) -> io::Result<()> {
    sockopt::socket_error(caller)??;
    match (patience.is_given_up(), patience.left().is_zero()) {
        (true, _) => Err(Errno::CANCELED.into()),
        (_, true) => Err(Errno::TIMEDOUT.into()),
        _ => Ok(()),
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
