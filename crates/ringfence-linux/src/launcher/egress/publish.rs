//! Ports of the sandbox that are published on the host's loopback.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::locks::lock;

use ringfence_api::{Gap, GapKind};
use ringfence_policy::{OpenPorts, PortSelection, Source};
use ringfence_provider::ProviderError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use rustix::net::{AddressFamily, Shutdown};
use rustix::time::Timespec;

/// Connections from the host that wait for a socket of the sandbox's network: only a process in it
/// can create one.
struct InboundQueue {
    waiting: Mutex<VecDeque<InboundClient>>,
    /// Longest wait. A socket request may be lost without a report.
    limit: Duration,
}

impl InboundQueue {
    /// Drops connections that waited too long; returns the time until the next one is due.
    fn drop_expired(&self) -> Option<Duration> {
        let mut waiting = lock(&self.waiting);
        while let Some(first) = waiting.front() {
            match self.limit.checked_sub(first.since.elapsed()) {
                Some(left) if !left.is_zero() => return Some(left),
                _ => drop(waiting.pop_front()),
            }
        }
        None
    }

    /// Queues a connection; false if the queue is full.
    fn push(&self, client: InboundClient) -> bool {
        const MAX_QUEUED: usize = 512;
        let mut waiting = lock(&self.waiting);
        let has_space = waiting.len() < MAX_QUEUED;
        if has_space {
            waiting.push_back(client);
        }
        has_space
    }
}

/// Time for the port inside to accept a connection, and for the sandbox to create a socket.
pub(super) const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Listeners on the host, closed on drop.
pub(super) struct PublishedPorts {
    queue: Arc<InboundQueue>,
    listeners: Vec<Arc<TcpListener>>,
    threads: Vec<JoinHandle<()>>,
}

/// Listeners on the host's loopback that are bound but do not accept yet.
#[derive(Debug, Default)]
pub(crate) struct ReservedPorts {
    listeners: Vec<(u16, TcpListener)>,
    /// Ports of a policy that another program or sandbox has.
    taken: Vec<u16>,
}

impl ReservedPorts {
    /// Binds the ports, before a command starts. A port that a flag names and another program has
    /// is an error. A policy names its ports for every command, so only the first one that runs
    /// gets them, and the others run without.
    pub(crate) fn bind(ports: &OpenPorts) -> Result<Self, ProviderError> {
        let mut reserved = Self::default();
        for (port, is_required) in required_by_port(ports) {
            match bind_loopback(port) {
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

    /// Puts the ports that lead elsewhere into `gaps`, in place of those of an earlier run.
    pub(crate) fn report_gaps(&self, gaps: &mut Vec<Gap>) {
        gaps.retain(|gap| !(gap.what == UNPUBLISHED && gap.kind == GapKind::Reporting));
        gaps.extend(self.taken.iter().map(|port| Gap {
            what: UNPUBLISHED.into(),
            why: format!(
                "port {port} does not lead into this sandbox: another program or sandbox has it"
            ),
            hint: format!(
                "stop the program that listens on port {port}, or remove the port from `bind`"
            ),
            kind: GapKind::Reporting,
        }));
    }
}

/// The policy key that a gap about ports names.
const UNPUBLISHED: &str = "network.bind";

/// The ports of all entries; true if a flag of this run names the port.
fn required_by_port(ports: &OpenPorts) -> BTreeMap<u16, bool> {
    let mut all = BTreeMap::new();
    for entry in &ports.entries {
        let PortSelection::Some(ports) = &entry.ports else { continue };
        for port in ports {
            *all.entry(*port).or_default() |= entry.origin.source == Source::Flag;
        }
    }
    all
}

/// Listens on both loopback addresses of the host, or on IPv4 alone where there is no IPv6.
fn bind_loopback(port: u16) -> io::Result<Vec<TcpListener>> {
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok(vec![v4]),
    }
}

impl PublishedPorts {
    /// Accepts connections on these ports. For each, `ask` requests a socket of the sandbox; the
    /// connection waits at most `limit` for it.
    pub(super) fn open(
        ports: ReservedPorts,
        limit: Duration,
        ask: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let ask: Arc<SocketRequestFn> = Arc::new(ask);
        let queue = Arc::new(InboundQueue { waiting: Mutex::default(), limit });
        let mut published = Self { queue, listeners: Vec::new(), threads: Vec::new() };
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
        let (accepts, queue) = (listener.clone(), self.queue.clone());
        let thread = thread::Builder::new().name("publishes".into()).spawn(move || {
            loop {
                if !wait_readable(&accepts, queue.drop_expired()) {
                    continue;
                }
                match accepts.accept() {
                    Ok((stream, _)) => {
                        if queue.push(InboundClient { stream, port, since: Instant::now() }) {
                            ask();
                        }
                    }
                    // The listener was shut down.
                    Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return,
                    // Perhaps no fd is left: retry a little later.
                    Err(_) => thread::sleep(Duration::from_millis(20)),
                }
            }
        })?;
        self.listeners.push(listener);
        self.threads.push(thread);
        Ok(())
    }

    /// The connection that has waited longest for a socket.
    pub(super) fn next(&self) -> Option<InboundClient> {
        lock(&self.queue.waiting).pop_front()
    }
}

/// A connection from the host to a port of the sandbox.
pub(super) struct InboundClient {
    stream: TcpStream,
    port: u16,
    since: Instant,
}

/// Requests a socket of the sandbox's network.
type SocketRequestFn = dyn Fn() + Send + Sync;

/// True if a connection comes within that time, or the listener was shut down.
fn wait_readable(listener: &TcpListener, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    poll(&mut [PollFd::new(listener, PollFlags::IN)], limit.as_ref()).is_ok_and(|count| count > 0)
}

impl InboundClient {
    /// Connects `inside`, a socket of the sandbox's network, to the port, and returns both ends. A
    /// server may listen on one loopback address only. `::1` comes first: after a refused IPv4
    /// connect, the socket cannot be used for IPv6.
    pub(super) fn connect_inside(self, inside: OwnedFd) -> Option<(OwnedFd, OwnedFd)> {
        set_socket_timeout(&inside, Timeout::Send, Some(CONNECT_LIMIT)).ok()?;
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
            // Wakes the accepting thread, which ends.
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

    /// A connection that gets no socket is closed after the limit, even if no other one comes.
    ///
    /// Promise: host-network
    #[test]
    fn connection_without_a_socket_is_closed() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ports = OpenPorts {
            entries: vec![PortEntry {
                ports: PortSelection::Some([port].into()),
                origin: Origin::new(Source::BuiltIn, "bind"),
            }],
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        // Requested, and lost.
        let published = PublishedPorts::open(
            ReservedPorts::bind(&ports).unwrap(),
            Duration::from_millis(50),
            move || {
                count.fetch_add(1, Ordering::SeqCst);
            },
        )
        .unwrap();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(published.next().is_none());
    }

    /// A rebuilt sandbox gets the port of the one before.
    #[test]
    fn port_is_free_after_publishing_ends() {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let ports = OpenPorts {
            entries: vec![PortEntry {
                ports: PortSelection::Some([port].into()),
                origin: Origin::new(Source::BuiltIn, "bind"),
            }],
        };
        let published =
            PublishedPorts::open(ReservedPorts::bind(&ports).unwrap(), CONNECT_LIMIT, || {})
                .unwrap();
        let _guest = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
        drop(published);
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
