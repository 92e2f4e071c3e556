//! Ports of the sandbox that the host's loopback leads to.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ringfence_enforce::apply::Reins;
use ringfence_policy::{OpenPorts, Ports};
use rustix::net::Shutdown;

/// Those who have come from the host and wait for a socket of the sandbox's network: only a
/// process in it can make one.
#[derive(Default)]
struct Lobby {
    waiting: Mutex<VecDeque<(TcpStream, u16)>>,
}

/// Listens on the host. Dropped, nobody does any more.
pub(super) struct Published {
    lobby: Arc<Lobby>,
    listeners: Vec<Arc<TcpListener>>,
    threads: Vec<JoinHandle<()>>,
}

/// A port that somebody else has.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) port: u16,
    pub(crate) source: io::Error,
}

impl Published {
    /// Opens these ports on the host's loopback. `reins` are asked for a socket of the sandbox for
    /// everybody who comes.
    pub(super) fn open(ports: &OpenPorts, reins: Reins) -> Result<Self, Taken> {
        let reins = Arc::new(reins);
        let mut published = Self { lobby: Arc::default(), listeners: Vec::new(), threads: Vec::new() };
        let listed = ports.entries.iter().filter_map(|entry| match &entry.ports {
            Ports::Some(ports) => Some(ports),
            Ports::None | Ports::All => None,
        });
        let mut all: Vec<u16> = listed.flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        for port in all {
            published.listen(port, reins.clone()).map_err(|source| Taken { port, source })?;
        }
        Ok(published)
    }

    fn listen(&mut self, port: u16, reins: Arc<Reins>) -> io::Result<()> {
        let listener = Arc::new(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?);
        let (accepts, lobby) = (listener.clone(), self.lobby.clone());
        let thread = thread::Builder::new().name("publishes".into()).spawn(move || {
            while let Ok((stream, _)) = accepts.accept() {
                lobby.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back((stream, port));
                reins.ask_for_socket();
            }
        })?;
        self.listeners.push(listener);
        self.threads.push(thread);
        Ok(())
    }

    /// A socket of the sandbox's network has come: connects it for whoever waited longest, and
    /// answers both ends.
    pub(super) fn arrived(&self, inside: OwnedFd) -> Option<(OwnedFd, OwnedFd)> {
        let (stream, port) = self.lobby.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // On a loopback there is somebody or there is not.
        rustix::net::connect(&inside, &to).ok()?;
        Some((inside, stream.into()))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Whoever accepts there is woken, and ends.
            let _ = rustix::net::shutdown(listener, Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
