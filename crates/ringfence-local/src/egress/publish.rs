//! Ports of the sandbox that the host's loopback leads to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{OpenPorts, PortSelection, Source};
use ringfence_provider::ProviderError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use rustix::net::{AddressFamily, Shutdown};
use rustix::time::Timespec;

/// Those who have come from the host and wait for a socket of the sandbox's network: only a
/// process in it can make one.
struct InboundQueue {
    waiting: Mutex<VecDeque<InboundClient>>,
    /// How long one waits. What was asked for may be lost, and nobody would hear of it.
    limit: Duration,
}

impl InboundQueue {
    fn lock(&self) -> MutexGuard<'_, VecDeque<InboundClient>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends those away who have waited too long; answers when that has to be done next.
    fn clear(&self) -> Option<Duration> {
        let mut waiting = self.lock();
        while let Some(first) = waiting.front() {
            match self.limit.checked_sub(first.since.elapsed()) {
                Some(left) if !left.is_zero() => return Some(left),
                _ => drop(waiting.pop_front()),
            }
        }
        None
    }

    /// Whether there is room for one more.
    fn takes(&self, guest: InboundClient) -> bool {
        const ROOM: usize = 512;
        let mut waiting = self.lock();
        let has_room = waiting.len() < ROOM;
        if has_room {
            waiting.push_back(guest);
        }
        has_room
    }
}

/// How long the port inside may take to let somebody in, and the sandbox to make a socket for that.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Listens on the host. Dropped, nobody does any more.
pub(super) struct PublishedPorts {
    lobby: Arc<InboundQueue>,
    listeners: Vec<Arc<TcpListener>>,
    threads: Vec<JoinHandle<()>>,
}

/// Ports of the host's loopback that nobody else gets any more, and nobody is let in by yet.
#[derive(Debug, Default)]
pub(crate) struct ReservedPorts {
    listeners: Vec<(u16, TcpListener)>,
    /// Ports of a policy that another program or sandbox has.
    taken: Vec<u16>,
}

impl ReservedPorts {
    /// Takes these. A port that a flag names and another program has is an error; to be asked for
    /// before a command is started, since then nothing must have run. A policy names its ports for
    /// every command, so only the first one that runs gets them, and the others go on without.
    pub(crate) fn of(ports: &OpenPorts) -> Result<Self, ProviderError> {
        let mut reserved = Self::default();
        for (port, is_required) in listed(ports) {
            match take(port) {
                Ok(listeners) => reserved
                    .listeners
                    .extend(listeners.into_iter().map(|listener| (port, listener))),
                Err(source) if is_required => {
                    return Err(ProviderError::PortTaken { port, source });
                }
                Err(_) => reserved.taken.push(port),
            }
        }
        Ok(reserved)
    }

    /// Puts into `gaps` which ports lead elsewhere, in the place of what was said of an earlier
    /// run.
    pub(crate) fn tell(&self, gaps: &mut Vec<Gap>) {
        gaps.retain(|gap| !(gap.what == UNPUBLISHED && gap.loss == GapKind::Telling));
        gaps.extend(self.taken.iter().map(|port| Gap {
            what: UNPUBLISHED.into(),
            why: format!(
                "port {port} does not lead into this sandbox: another program or sandbox has it"
            ),
            hint: format!("end what listens on {port}, or take it out of `bind`"),
            loss: GapKind::Telling,
        }));
    }
}

/// The policy key that a gap about ports names.
const UNPUBLISHED: &str = "network.bind";

/// The ports of all entries, and whether a flag of this run names them.
fn listed(ports: &OpenPorts) -> BTreeMap<u16, bool> {
    let mut all = BTreeMap::new();
    for entry in &ports.entries {
        let PortSelection::Some(ports) = &entry.ports else { continue };
        for port in ports {
            *all.entry(*port).or_default() |= entry.origin.source == Source::Flag;
        }
    }
    all
}

/// Listens on both loopback addresses of the host, or on the one of IPv4 where there is no IPv6.
fn take(port: u16) -> io::Result<Vec<TcpListener>> {
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok(vec![v4]),
    }
}

impl PublishedPorts {
    /// Lets those in who come to these ports. For each of them, `ask` asks for a socket of the
    /// sandbox, and they wait for that as long as `limit`.
    pub(super) fn open(
        ports: ReservedPorts,
        limit: Duration,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let ask: Arc<SocketRequestFn> = Arc::new(ask);
        let lobby = Arc::new(InboundQueue { waiting: Mutex::default(), limit });
        let mut published = Self { lobby, listeners: Vec::new(), threads: Vec::new() };
        for (port, listener) in ports.listeners {
            published.listen(port, Arc::new(listener), ask.clone())?;
        }
        Ok(published)
    }

    fn listen(
        &mut self,
        port: u16,
        listener: Arc<TcpListener>,
        ask: Arc<SocketRequestFn>,
    ) -> io::Result<()> {
        let (accepts, lobby) = (listener.clone(), self.lobby.clone());
        let thread = thread::Builder::new().name("publishes".into()).spawn(move || {
            loop {
                if !comes(&accepts, lobby.clear()) {
                    continue;
                }
                match accepts.accept() {
                    Ok((stream, _)) => {
                        if lobby.takes(InboundClient { stream, port, since: Instant::now() }) {
                            ask();
                        }
                    }
                    // It was shut.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                    // No descriptor is left, perhaps: those who wait are still there a little
                    // later.
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        })?;
        self.listeners.push(listener);
        self.threads.push(thread);
        Ok(())
    }

    /// Whoever has waited longest for a socket of the sandbox's network.
    pub(super) fn next(&self) -> Option<InboundClient> {
        self.lobby.lock().pop_front()
    }
}

/// Somebody from the host who wants to get to a port of the sandbox.
pub(super) struct InboundClient {
    stream: TcpStream,
    port: u16,
    since: Instant,
}

/// Asks for a socket of the sandbox's network.
type SocketRequestFn = dyn Fn() + Send + Sync;

/// Whether somebody comes within that time, or the listener was shut.
fn comes(listener: &TcpListener, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    poll(&mut [PollFd::new(listener, PollFlags::IN)], limit.as_ref()).is_ok_and(|count| count > 0)
}

impl InboundClient {
    /// Connects `inside`, a socket of the sandbox's network, to that port, and answers both ends. A
    /// server may listen on one loopback address only. `::1` comes first: a socket that was refused
    /// by an address of IPv4 cannot be used for one of IPv6 afterwards.
    pub(super) fn let_in(self, inside: OwnedFd) -> Option<(OwnedFd, OwnedFd)> {
        set_socket_timeout(&inside, Timeout::Send, Some(PATIENCE)).ok()?;
        let connect = |address: IpAddr| {
            rustix::net::connect(&inside, &SocketAddr::from((address, self.port)))
        };
        match socket_domain(&inside) {
            Ok(AddressFamily::INET6) => {
                let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
                connect(Ipv6Addr::LOCALHOST.into()).or_else(|_| connect(mapped.into())).ok()?;
            }
            _ => connect(Ipv4Addr::LOCALHOST.into()).ok()?,
        }
        Some((inside, self.stream.into()))
    }
}

impl Drop for PublishedPorts {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Whoever accepts there is woken, and ends.
            let _ = rustix::net::shutdown(listener, Shutdown::Both);
        }
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ringfence_policy::{Origin, PortEntry};

    use super::*;

    /// Somebody who comes and whom nobody fetches does not wait for ever, also where nobody else
    /// comes.
    ///
    /// Promise: P71
    #[test]
    fn who_is_not_fetched_is_sent_away() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ports = OpenPorts {
            entries: vec![PortEntry {
                ports: PortSelection::Some([port].into()),
                origin: Origin::new(Source::BuiltIn, "bind"),
            }],
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        // Asked for, and lost.
        let published = PublishedPorts::open(
            ReservedPorts::of(&ports).unwrap(),
            Duration::from_millis(50),
            move || {
                count.fetch_add(1, Ordering::SeqCst);
            },
        )
        .unwrap();
        let mut guest = TcpStream::connect(("127.0.0.1", port)).unwrap();
        guest.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(guest.read(&mut [0]).unwrap(), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(published.next().is_none());
    }

    /// Whoever makes a sandbox anew gets the port that the one before had.
    #[test]
    fn a_port_is_free_when_nobody_publishes_it_any_more() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ports = OpenPorts {
            entries: vec![PortEntry {
                ports: PortSelection::Some([port].into()),
                origin: Origin::new(Source::BuiltIn, "bind"),
            }],
        };
        let published =
            PublishedPorts::open(ReservedPorts::of(&ports).unwrap(), PATIENCE, || {}).unwrap();
        let _guest = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
        drop(published);
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
