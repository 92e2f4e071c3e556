//! Proxy inside the sandbox: HTTP with `CONNECT`, plain HTTP, and SOCKS5.
//!
//! It is served on the host side, on a listener created inside. It decides nothing: each request
//! goes to the [`ProxyHandler`], like a connection without a proxy. Parsing is minimal and strict,
//! since clients may be hostile: an ambiguous head is rejected. Once connected, the [`SpliceRelay`]
//! takes over.

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

/// Time a client has to send its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients in the request phase at once; each has a thread until it is connected.
const CLIENTS: usize = 1024;

/// Decides about requests and opens connections. It may block: each client has a thread.
pub trait ProxyHandler: Send + Sync {
    /// Connects to the requested host.
    fn open(&self, request: &ProxyRequest<'_>) -> Result<ProxyConnection, ProxyRefusal>;

    /// Reports a malformed or unsupported request.
    fn report_malformed(&self, client: SocketAddr, reason: &str) {
        let _ = (client, reason);
    }
}

/// Request of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyRequest<'a> {
    /// Name or address as given: printable ASCII without blanks, at most 255 bytes, an IPv6 address
    /// without brackets.
    pub host: &'a str,
    /// The port, never 0.
    pub port: u16,
    /// Protocol on the connection.
    pub protocol: ProxyProtocol,
    /// The client's address inside.
    pub client: SocketAddr,
}

/// Protocol on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Any protocol.
    Tunnel,
    /// One plain HTTP request to the requested host.
    Request,
}

/// An opened connection.
pub struct ProxyConnection {
    /// Socket to the host; it may still be connecting.
    pub outside: OwnedFd,
    /// Check of the tunnelled bytes, if any.
    pub check: Option<Box<dyn StreamCheck>>,
    /// Called when the connection ends.
    pub on_end: Box<dyn FnOnce(RelayEnd) + Send>,
}

/// Reason for a refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRefusal {
    /// Kind of refusal.
    pub kind: ProxyRefusalKind,
    /// Sentence for the user of the client, with the rule if there is one.
    pub message: String,
}

/// Kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyRefusalKind {
    /// A rule denies it, or none allows it.
    Denied,
    /// The host cannot be resolved or reached.
    Unreachable,
    /// The host refused.
    Refused,
    /// Timeout.
    Late,
}

/// Protocols served on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerProtocol {
    /// HTTP.
    Http,
    /// SOCKS5.
    Socks,
    /// Either; the first byte decides.
    Either,
}

/// A running proxy. Dropping it stops new clients; relayed connections go on.
pub struct ProxyServer {
    wake_fd: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProxyServer").finish_non_exhaustive()
    }
}

impl ProxyServer {
    /// Serves the clients of `listener`, which needs a long queue.
    pub fn serve(
        listener: TcpListener,
        speaks: ListenerProtocol,
        gate: Arc<dyn ProxyHandler>,
        relay: Arc<SpliceRelay>,
    ) -> io::Result<ProxyServer> {
        listener.set_nonblocking(true)?;
        let wake_fd = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let shared = Arc::new(ProxyShared {
            speaks,
            gate,
            relay,
            wake_fd: Arc::clone(&wake_fd),
            clients: AtomicUsize::new(0),
        });
        let thread =
            thread::Builder::new().name("proxy".into()).spawn(move || shared.listen(&listener))?;
        Ok(ProxyServer { wake_fd, thread: Some(thread) })
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        // It is never read, so every waiting thread wakes.
        let _ = rustix::io::write(&*self.wake_fd, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State shared by the threads of a proxy.
struct ProxyShared {
    speaks: ListenerProtocol,
    gate: Arc<dyn ProxyHandler>,
    relay: Arc<SpliceRelay>,
    wake_fd: Arc<OwnedFd>,
    clients: AtomicUsize,
}

impl ProxyShared {
    fn listen(self: Arc<ProxyShared>, listener: &TcpListener) {
        loop {
            let mut polled =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&*self.wake_fd, PollFlags::IN)];
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
                        self.start_client(socket, peer);
                    }
                }
                Ok((_, None)) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // No fd is left, and the listener stays readable, so retry a little later.
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Starts a thread for a client, or closes it.
    fn start_client(self: &Arc<ProxyShared>, socket: OwnedFd, client: SocketAddr) {
        if self.clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS {
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let shared = Arc::clone(self);
        let began = thread::Builder::new().name("client".into()).spawn(move || {
            let wire =
                ClientSocket::new(socket, Arc::clone(&shared.wake_fd), Instant::now() + PATIENCE);
            // A client that has closed, or sends an unknown protocol, gets no answer.
            let _ = shared.serve_client(wire, client);
            shared.clients.fetch_sub(1, Ordering::Relaxed);
        });
        if began.is_err() {
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn serve_client(
        &self,
        mut wire: ClientSocket,
        client: SocketAddr,
    ) -> Result<(), wire::ClientGone> {
        let first = wire.first()?;
        match (self.speaks, first) {
            (ListenerProtocol::Socks | ListenerProtocol::Either, socks::VERSION) => {
                socks::serve(self, wire, client)
            }
            // Older SOCKS versions have no error for this case and no names.
            (ListenerProtocol::Socks, _) | (_, 0..=31) => {
                self.gate.report_malformed(client, "it speaks neither HTTP nor SOCKS5");
                Ok(())
            }
            (ListenerProtocol::Http | ListenerProtocol::Either, _) => {
                http::serve(self, wire, client)
            }
        }
    }
}
