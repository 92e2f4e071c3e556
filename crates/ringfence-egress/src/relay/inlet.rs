//! Listener in the sandbox's network namespace to which the launcher connects programs' sockets.
//!
//! A program keeps its own socket. The launcher has a duplicate of the program's socket, connects
//! it to the listener and accepts the other end there. Every program in the sandbox can connect to
//! the listener as well, so an accepted connection is matched against the expected peer addresses
//! and closed if it is unknown.
//!
//! The launcher connects many sockets at once, each on its own thread, and one connection may never
//! arrive: a program can cause that with a socket option. So no thread waits for another: the
//! thread that polls the listener accepts for all.

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

use crate::dial::{DialPatience, begin_connect, wait_readable};

/// Time limit of a connect. Loopback takes longer only if the listen queue is full; then the kernel
/// retries after one second and after three.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);

/// Connections accepted per turn: the length of the listen queue.
const ACCEPT_BATCH: usize = 4096;

const IPPROTO_TCP: i32 = 6;
const TCP_INFO: i32 = 11;
/// TCP state, the first byte of `TCP_INFO`.
const ESTABLISHED: u8 = 1;
const CLOSE_WAIT: u8 = 8;

/// Listeners inside a sandbox to which programs' own sockets are connected.
#[derive(Debug)]
pub struct LoopbackInlet {
    v4: InletListener,
    v6: Option<InletListener>,
}

impl LoopbackInlet {
    /// Takes listeners bound to loopback inside, with a long queue: with a short one the kernel
    /// drops connections under load. Without an IPv6 listener, IPv6 sockets are connected by a
    /// mapped address.
    pub fn new(v4: TcpListener, v6: Option<TcpListener>) -> io::Result<LoopbackInlet> {
        Ok(LoopbackInlet {
            v4: InletListener::new(v4)?,
            v6: v6.map(InletListener::new).transpose()?,
        })
    }

    /// Connects `program_socket`, a duplicate of a program's socket, and returns the other end.
    /// Gives up when `is_wanted` is false, or after a few seconds.
    ///
    /// Does not change `O_NONBLOCK`, which the program shares, or any option. A socket that is
    /// already connected, connecting or listening stays as it is, with the kernel's error; a failed
    /// connect is undone.
    pub fn connect(
        &self,
        program_socket: BorrowedFd<'_>,
        is_wanted: &dyn Fn() -> bool,
    ) -> io::Result<OwnedFd> {
        let (inlet_listener, to) = self.listener_for(program_socket)?;
        let mut queue = inlet_listener.queue();
        // Connections that wait in the queue now take space.
        inlet_listener.accept_waiting(&mut queue)?;
        let address = queue.expect(program_socket, to)?;
        match inlet_listener.wait(
            queue,
            program_socket,
            address,
            &DialPatience::new(Instant::now() + CONNECT_LIMIT, is_wanted),
        ) {
            Ok(other) => {
                // Already connected; this call makes the kernel report the result to the owner.
                let _ = begin_connect(program_socket, to);
                Ok(other)
            }
            Err(error) => {
                let _ = connect_unspec(program_socket);
                Err(error)
            }
        }
    }

    /// Selects the listener that `program_socket` can reach, and its address for that socket.
    fn listener_for(
        &self,
        program_socket: BorrowedFd<'_>,
    ) -> io::Result<(&InletListener, SocketAddr)> {
        if sockopt::socket_type(program_socket)? != SocketType::STREAM {
            return Err(Errno::PROTOTYPE.into());
        }
        let v4 = self.v4.listener.local_addr()?;
        match (sockopt::socket_domain(program_socket)?, &self.v6) {
            (AddressFamily::INET, _) => Ok((&self.v4, v4)),
            (AddressFamily::INET6, Some(v6)) if !is_mapped(program_socket)? => {
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

/// One listener and the connections expected on it.
#[derive(Debug)]
struct InletListener {
    listener: TcpListener,
    queue: Mutex<InletQueue>,
    /// Signalled when a connection was accepted or the polling thread stopped.
    changed: Condvar,
}

/// Expected connections.
#[derive(Debug, Default)]
struct InletQueue {
    /// Accepted ends by the address of the program's socket; `None` until accepted.
    awaited: HashMap<SocketAddr, Option<OwnedFd>>,
    /// Set while one thread polls the listener.
    is_polled: bool,
}

impl InletQueue {
    /// Begins to connect `program_socket` and expects it from now on; returns its address. The lock
    /// is held, so no other thread can accept it first.
    fn expect(&mut self, program_socket: BorrowedFd<'_>, to: SocketAddr) -> io::Result<SocketAddr> {
        // Non-blocking: if the queue is full, a blocking `connect` would keep this thread as long
        // as its owner, and no thread would empty the queue.
        begin_connect(program_socket, to)?;
        let address = name_of(program_socket)?;
        self.awaited.insert(address, None);
        Ok(address)
    }

    /// The accepted end for `address`, if it arrived and is still connected.
    fn fetch(&mut self, address: SocketAddr) -> io::Result<Option<OwnedFd>> {
        match self.awaited.get_mut(&address).and_then(Option::take) {
            Some(socket) if is_alive(&socket)? => Ok(Some(socket)),
            _ => Ok(None),
        }
    }
}

impl InletListener {
    fn new(listener: TcpListener) -> io::Result<InletListener> {
        listener.set_nonblocking(true)?;
        Ok(InletListener { listener, queue: Mutex::default(), changed: Condvar::new() })
    }

    fn queue(&self) -> MutexGuard<'_, InletQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts all waiting connections and closes the unexpected ones. Of two with the same
    /// address, the first is dead.
    fn accept_waiting(&self, queue: &mut InletQueue) -> io::Result<()> {
        for _ in 0..ACCEPT_BATCH {
            let Some((socket, peer)) = accept_next(&self.listener)? else { break };
            if let Some(place) = queue.awaited.get_mut(&peer) {
                *place = Some(socket);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Waits for the other end of `program_socket`, expected by its `address`, and stops expecting
    /// it.
    fn wait<'a>(
        &'a self,
        mut queue: MutexGuard<'a, InletQueue>,
        program_socket: BorrowedFd<'_>,
        address: SocketAddr,
        patience: &DialPatience<'_>,
    ) -> io::Result<OwnedFd> {
        let accepted = loop {
            match self.accept_waiting(&mut queue).and_then(|()| queue.fetch(address)) {
                Ok(None) => {}
                Ok(Some(socket)) => break Ok(socket),
                Err(error) => break Err(error),
            }
            // The listener does not report a failed program's socket or a cancelled request, so
            // both are polled.
            if let Err(error) = check_socket(program_socket, patience) {
                break Err(error);
            }
            queue = self.pause(queue, patience.step());
        };
        queue.awaited.remove(&address);
        accepted
    }

    /// Waits for a connection: one thread polls the listener, the others wait on the condvar.
    fn pause<'a>(
        &'a self,
        mut queue: MutexGuard<'a, InletQueue>,
        step: Duration,
    ) -> MutexGuard<'a, InletQueue> {
        if queue.is_polled {
            return self
                .changed
                .wait_timeout(queue, step)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        queue.is_polled = true;
        drop(queue);
        // An error shows again at the next accept.
        let _ = wait_readable(&self.listener, step);
        let mut queue = self.queue();
        queue.is_polled = false;
        self.changed.notify_one();
        queue
    }
}

/// Fails if `program_socket` cannot be connected any more.
fn check_socket(program_socket: BorrowedFd<'_>, patience: &DialPatience<'_>) -> io::Result<()> {
    sockopt::socket_error(program_socket)??;
    match (patience.is_given_up(), patience.left().is_zero()) {
        (true, _) => Err(Errno::CANCELED.into()),
        (_, true) => Err(Errno::TIMEDOUT.into()),
        _ => Ok(()),
    }
}

/// Accepts the next connection.
fn accept_next(listener: &TcpListener) -> io::Result<Option<(OwnedFd, SocketAddr)>> {
    loop {
        match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok((socket, peer)) => {
                let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).map(plain);
                if let Some(peer) = peer {
                    return Ok(Some((socket, peer)));
                }
            }
            Err(Errno::AGAIN) => return Ok(None),
            // Closed before it was accepted.
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// True if `socket` is connected now. Two live connections never share both addresses, so this
/// rejects a reset connection whose address the program's socket got since.
fn is_alive(socket: &OwnedFd) -> io::Result<bool> {
    let mut state = [0];
    option(socket.as_fd(), IPPROTO_TCP, TCP_INFO, &mut state)?;
    Ok(state[0] == ESTABLISHED || state[0] == CLOSE_WAIT)
}

/// True if an IPv6 socket is bound to a mapped IPv4 address.
fn is_mapped(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let name = SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(matches!(name.ip(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some()))
}

fn name_of(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(plain(SocketAddr::try_from(getsockname(socket)?).map_err(|_| Errno::AFNOSUPPORT)?))
}

/// Address in comparable form: not mapped, without scope.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests;
