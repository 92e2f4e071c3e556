//! A proxy inside, for those who want one: HTTP with `CONNECT`, plain HTTP, and SOCKS5.
//!
//! It is served outside on a listener that was made inside, and decides nothing: whatever a
//! client wants goes to the [`Gate`], as a connection without a proxy does. What is understood
//! is little and strict, since whoever speaks may mean ill: a head that could be read in two ways
//! is not read at all. When a connection stands, the [`Relay`] carries it.

mod authority;
mod body;
mod head;
mod http;
mod socks;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use crate::relay::{RelayEnd, SpliceRelay, StreamCheck};
use wire::ClientSocket;

/// How long a client may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients that may be about to say it at the same time; each has a thread until it is connected.
const CLIENTS: usize = 1024;

/// Decides, and opens what may be opened. It may take its time: each client has a thread.
pub trait ProxyHandler: Send + Sync {
    /// Connects to what a client wants.
    fn open(&self, wish: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal>;

    /// Is told that a client wanted something in a way that is not listened to.
    fn objected(&self, client: SocketAddr, reason: &str) {
        let _ = (client, reason);
    }
}

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyRequest<'a> {
    /// A name or an address as it was given: printable ASCII without blanks, at most 255 bytes,
    /// an address of IPv6 without brackets.
    pub host: &'a str,
    /// The port, never 0.
    pub port: u16,
    /// What the client will say.
    pub speech: ProxyProtocol,
    /// The client's address inside.
    pub client: SocketAddr,
}

/// What is said on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Whatever the client likes.
    Tunnel,
    /// One request in plain HTTP, to the very host that was asked for.
    Request,
}

/// A connection that was opened.
pub struct ProxyConnection {
    /// The socket that leads out; it may still be connecting.
    pub outside: OwnedFd,
    /// Who looks at what is said in a tunnel.
    pub check: Option<Box<dyn StreamCheck>>,
    /// Who is told of the end.
    pub ended: Box<dyn FnOnce(RelayEnd) + Send>,
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRefusal {
    /// In one word.
    pub kind: ProxyRefusalKind,
    /// In a sentence for whoever runs the client, with the rule if there is one.
    pub sentence: String,
}

/// Why there is no connection, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyRefusalKind {
    /// A rule is in the way, or none opens it.
    Denied,
    /// The host cannot be found or reached.
    Unreachable,
    /// The host said no.
    Refused,
    /// Nobody answered in time.
    Late,
}

/// What is spoken at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// HTTP.
    Http,
    /// SOCKS5.
    Socks,
    /// Either; the first byte tells.
    Either,
}

/// A proxy that is served. When it is dropped, nobody is listened to any more; what is carried
/// goes on.
pub struct ProxyServer {
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Proxy").finish_non_exhaustive()
    }
}

impl ProxyServer {
    /// Serves those who come to `listener`, which should have a long queue.
    pub fn serve(
        listener: TcpListener,
        speaks: ListenerProtocol,
        gate: Arc<dyn ProxyHandler>,
        relay: Arc<SpliceRelay>,
    ) -> io::Result<ProxyServer> {
        listener.set_nonblocking(true)?;
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let desk = Arc::new(ProxyShared {
            speaks,
            gate,
            relay,
            bell: Arc::clone(&bell),
            clients: AtomicUsize::new(0),
        });
        let thread =
            thread::Builder::new().name("proxy".into()).spawn(move || desk.listen(&listener))?;
        Ok(ProxyServer { bell, thread: Some(thread) })
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        // It is never read, so everybody who waits hears it.
        let _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the threads of a proxy share.
struct ProxyShared {
    speaks: ListenerProtocol,
    gate: Arc<dyn ProxyHandler>,
    relay: Arc<SpliceRelay>,
    bell: Arc<OwnedFd>,
    clients: AtomicUsize,
}

impl ProxyShared {
    fn listen(self: Arc<ProxyShared>, listener: &TcpListener) {
        loop {
            let mut polled =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            if !polled[1].revents().is_empty() {
                return;
            }
            match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((socket, Some(peer))) => {
                    if let Ok(peer) = SocketAddr::try_from(peer) {
                        self.receive(socket, peer);
                    }
                }
                Ok((_, None)) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // No descriptor is left: those who wait keep the listener ready, so it is looked at
                // a little later.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Gives a client a thread, or turns it away.
    fn receive(self: &Arc<ProxyShared>, socket: OwnedFd, client: SocketAddr) {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let desk = Arc::clone(self);
        let began = thread::Builder::new().name("client".into()).spawn(move || {
            let wire = ClientSocket::new(socket, Arc::clone(&desk.bell), Instant::now() + PATIENCE);
            // Whoever is gone, or says nothing that can be answered, is not answered.
            let _ = desk.attend(wire, client);
            desk.clients.fetch_sub(1, Ordering::Relaxed);
        });
        if began.is_err() {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn attend(&self, mut wire: ClientSocket, client: SocketAddr) -> Result<(), wire::ClientGone> {
        let first = wire.first()?;
        match (self.speaks, first) {
            (ListenerProtocol::Socks | ListenerProtocol::Either, socks::VERSION) => {
                socks::attend(self, wire, client)
            }
            // The versions before it know no answer that says what is wrong, and no names.
            (ListenerProtocol::Socks, _) | (_, 0..=31) => {
                self.gate.objected(client, "it speaks neither HTTP nor SOCKS5");
                Ok(())
            }
            (ListenerProtocol::Http | ListenerProtocol::Either, _) => {
                http::attend(self, wire, client)
            }
        }
    }
}
