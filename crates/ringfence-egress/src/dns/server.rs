//! Serves the UDP and the TCP socket of the DNS responder.
//!
//! One thread with `poll`. Each turn takes a bounded share of each source, and each source can make
//! the server store only a bounded amount: no client blocks another.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::query::{DnsParseError, parse};
use super::refused_lookups::RefusedLookups;
use super::responder::DnsResponder;
use super::stream::{DnsStreamClient, StreamClientFate};
use super::{DnsGate, FakeIpPool, reply};
use ringfence_policy::HostName;

/// Maximum of TCP connections. For a further one, the longest silent one is closed.
const CLIENTS: usize = 16;
/// Datagrams and connections taken per turn.
const TURN: usize = 64;
/// Pause of accepting when the process has no fd left.
const PAUSE: Duration = Duration::from_millis(100);

/// Sockets for queries. Both were created in the sandbox's network namespace.
#[derive(Debug)]
pub struct DnsSockets {
    /// Bound.
    pub datagrams: UdpSocket,
    /// Bound and listening.
    pub streams: TcpListener,
}

/// A running DNS responder; dropping it stops it.
#[derive(Debug)]
pub struct DnsServer {
    /// Eventfd, written to stop the thread.
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl DnsServer {
    /// Starts to serve.
    ///
    /// `search` lists the search domains of `resolv.conf` inside: a name denied with and without
    /// one of them is reported once.
    pub fn start(
        sockets: DnsSockets,
        gate: Arc<dyn DnsGate>,
        pool: Arc<FakeIpPool>,
        search: Vec<HostName>,
    ) -> io::Result<Self> {
        sockets.datagrams.set_nonblocking(true)?;
        sockets.streams.set_nonblocking(true)?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut serving = DnsLoop {
            sockets,
            responder: DnsResponder { gate, pool, reported: RefusedLookups::new(search) },
            clients: Vec::new(),
            numbers: 0,
            paused_until: None,
            end: end.clone(),
        };
        let thread = thread::Builder::new()
            .name("names".into())
            .stack_size(256 * 1024)
            .spawn(move || serving.serve())?;
        Ok(Self { end, thread: Some(thread) })
    }
}

impl Drop for DnsServer {
    fn drop(&mut self) {
        // The write fails only if the counter is full, and then the thread is woken anyway.
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct DnsLoop {
    sockets: DnsSockets,
    responder: DnsResponder,
    clients: Vec<DnsStreamClient>,
    /// Number of clients so far; the next client's id.
    numbers: u64,
    /// Set while accepting is paused.
    paused_until: Option<Instant>,
    end: Arc<OwnedFd>,
}

/// Readiness after a poll.
struct DnsReady {
    datagrams: bool,
    streams: bool,
    /// Ids of ready clients.
    clients: Vec<u64>,
}

impl DnsLoop {
    fn serve(&mut self) {
        while let Ok(Some(ready)) = self.wait() {
            if ready.datagrams {
                self.take_datagrams();
            }
            for number in ready.clients {
                self.serve_client(number);
            }
            if ready.streams {
                self.take_clients();
            }
            let now = Instant::now();
            self.clients.retain(|client| now < client.deadline());
        }
    }

    /// Waits for readiness; `None` when the server is to stop.
    fn wait(&self) -> io::Result<Option<DnsReady>> {
        let now = Instant::now();
        let shut = self.paused_until.filter(|until| now < *until);
        let soonest = self.clients.iter().map(DnsStreamClient::deadline).chain(shut).min();
        let timeout = soonest.map(|instant| {
            let left = instant.saturating_duration_since(now);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let listens = match shut {
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sockets.datagrams.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sockets.streams.as_fd(), listens),
        ];
        let mut numbers = Vec::new();
        for client in &self.clients {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.wants_input());
            wanted.set(PollFlags::OUT, client.wants_output());
            // `poll` reports a hangup even with no requested events, and would return at once each
            // time.
            if !wanted.is_empty() {
                fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
                numbers.push(client.number);
            }
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {
                return Ok(Some(DnsReady {
                    datagrams: false,
                    streams: false,
                    clients: Vec::new(),
                }));
            }
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        if next() {
            return Ok(None);
        }
        let (datagrams, streams) = (next(), next());
        let clients = numbers.into_iter().filter(|_| next()).collect();
        Ok(Some(DnsReady { datagrams, streams, clients }))
    }

    fn take_datagrams(&mut self) {
        let mut buffer = [0; super::stream::LONGEST];
        for _ in 0..TURN {
            match self.sockets.datagrams.recv_from(&mut buffer) {
                Ok((count, from)) => {
                    if let Some(answer) = self.answer(&buffer[..count]) {
                        // A client that misses an answer queries again.
                        let _ = self.sockets.datagrams.send_to(&answer, from);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The pending socket error of an undelivered answer.
                Err(_) => {}
            }
        }
    }

    fn take_clients(&mut self) {
        for _ in 0..TURN {
            match self.sockets.streams.accept() {
                Ok((stream, _)) => {
                    if self.clients.len() == CLIENTS
                        && let Some(at) = (0..CLIENTS).min_by_key(|at| self.clients[*at].deadline())
                    {
                        self.clients.swap_remove(at);
                    }
                    self.numbers += 1;
                    self.clients.extend(DnsStreamClient::new(self.numbers, stream, Instant::now()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(_) => {
                    self.paused_until = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    /// Reads from a client, answers it, and closes it when it is done.
    fn serve_client(&mut self, number: u64) {
        let Some(at) = self.clients.iter().position(|client| client.number == number) else {
            return;
        };
        let mut verdict = self.clients[at].read();
        while verdict == StreamClientFate::Stays {
            match self.clients[at].next(Instant::now()) {
                Ok(Some(message)) => {
                    let answer = self.answer(&message);
                    self.clients[at].answer(answer.as_deref());
                }
                Ok(None) => {
                    verdict = self.clients[at].write(Instant::now());
                    if !self.clients[at].has_question() {
                        break;
                    }
                }
                Err(closes) => verdict = closes,
            }
        }
        if verdict == StreamClientFate::Goes || self.clients[at].is_done() {
            self.clients.swap_remove(at);
        }
    }

    /// The answer to `message`, if it gets one.
    fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        match parse(message) {
            Ok(query) => Some(reply::write(&query, &self.responder.answer(&query))),
            Err(DnsParseError::NoQuery) => None,
            Err(DnsParseError::Malformed(head)) => Some(reply::malformed(head)),
            Err(DnsParseError::OtherOpcode(head)) => Some(reply::not_implemented(head)),
        }
    }
}
