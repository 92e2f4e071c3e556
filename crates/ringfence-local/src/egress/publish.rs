//! Ports of the sandbox that the host's loopback leads to.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence_enforce::apply::Reins;
use ringfence_policy::{OpenPorts, Ports};
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Those who have come from the host and wait for a socket of the sandbox's network: only a
/// process in it can make one.
#[derive(Default)]
struct Lobby {
    waiting: Mutex<VecDeque<Guest>>,
}

impl Lobby {
    /// Whether there is room for one more.
    fn takes(&self, guest: Guest) -> bool {
        const ROOM: usize = 512;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = waiting.len() < ROOM;
        if has_room {
            waiting.push_back(guest);
        }
        has_room
    }
}

/// How long the port inside may take to let somebody in.
const PATIENCE: Duration = Duration::from_secs(10);

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
            loop {
                match accepts.accept() {
                    Ok((stream, _)) => {
                        if lobby.takes(Guest { stream, port }) {
                            reins.ask_for_socket();
                        }
                    }
                    // It was shut.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                    // No descriptor is left, perhaps: those who wait are still there a little later.
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        })?;
        self.listeners.push(listener);
        self.threads.push(thread);
        Ok(())
    }

    /// Whoever has waited longest for a socket of the sandbox's network.
    pub(super) fn next(&self) -> Option<Guest> {
        self.lobby.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Somebody from the host who wants to get to a port of the sandbox.
pub(super) struct Guest {
    stream: TcpStream,
    port: u16,
}

impl Guest {
    /// Connects `inside`, a socket of the sandbox's network, to that port, and answers both ends.
    pub(super) fn let_in(self, inside: OwnedFd) -> Option<(OwnedFd, OwnedFd)> {
        set_socket_timeout(&inside, Timeout::Send, Some(PATIENCE)).ok()?;
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        rustix::net::connect(&inside, &to).ok()?;
        Some((inside, self.stream.into()))
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
