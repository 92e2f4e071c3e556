//! Serves the two sockets by which programs of the sandbox look up names.
//!
//! One thread and `poll`. Every turn takes a bounded share of each source, every source is
//! bounded in what it can make the server remember, and whatever has to wait for a decision waits
//! on a thread of its own: no client keeps another from being answered.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::clerk::{Clerk, Step};
use super::query::{Fault, read};
use super::stream::{Client, Fate};
use super::told::Told;
use super::waits::{Entered, Waiting, Waits, Whence};
use super::{NameGate, Pool, Refusal, reply};
use ringfence_policy::Name;

/// How many connections there are at most. For a further one, the one that was silent longest goes.
const CLIENTS: usize = 16;
/// How many datagrams and how many connections are taken before others have their turn.
const TURN: usize = 64;
/// How long nobody is let in when the program has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Where questions come in. Both were made in the sandbox's network namespace.
#[derive(Debug)]
pub struct Sockets {
    /// Bound.
    pub datagrams: UdpSocket,
    /// Bound and listening.
    pub streams: TcpListener,
}

/// A name server that runs; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    signal: Arc<Signal>,
    thread: Option<JoinHandle<()>>,
}

/// Wakes the serving thread.
#[derive(Debug)]
struct Signal {
    event: OwnedFd,
    ends: AtomicBool,
}

impl Server {
    /// Begins to serve.
    ///
    /// `search` are the domains that programs put behind a name by themselves, as `resolv.conf`
    /// inside has them: what is refused with and without one of them is told of once.
    pub fn start(sockets: Sockets, gate: Arc<dyn NameGate>, pool: Arc<Pool>, search: Vec<Name>) -> io::Result<Self> {
        sockets.datagrams.set_nonblocking(true)?;
        sockets.streams.set_nonblocking(true)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let signal = Arc::new(Signal { event, ends: AtomicBool::new(false) });
        let wakes = signal.clone();
        let mut serving = Serving {
            sockets,
            clerk: Clerk { gate, pool, told: Told::new(search) },
            waits: Waits::new(Arc::new(move || wakes.raise())),
            clients: Vec::new(),
            numbers: 0,
            shut_until: None,
            signal: signal.clone(),
        };
        let thread = thread::Builder::new().name("names".into()).stack_size(256 * 1024).spawn(move || serving.serve())?;
        Ok(Self { signal, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal.ends.store(true, Ordering::Release);
        self.signal.raise();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Signal {
    fn raise(&self) {
        // It fails only when it is raised already, two to the power of 64 times.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    fn lower(&self) {
        let _ = rustix::io::read(&self.event, &mut [0_u8; 8]);
    }
}

struct Serving {
    sockets: Sockets,
    clerk: Clerk,
    waits: Waits,
    clients: Vec<Client>,
    /// How many clients there ever were.
    numbers: u64,
    /// Set while no connection can be taken.
    shut_until: Option<Instant>,
    signal: Arc<Signal>,
}

/// What there is to do.
struct Ready {
    datagrams: bool,
    streams: bool,
    /// Numbers of clients.
    clients: Vec<u64>,
}

impl Serving {
    fn serve(&mut self) {
        while let Ok(ready) = self.wait() {
            if self.signal.ends.load(Ordering::Acquire) {
                return;
            }
            if ready.datagrams {
                self.take_datagrams();
            }
            self.settle_decided();
            for number in ready.clients {
                self.attend(number);
            }
            if ready.streams {
                self.take_clients();
            }
            let now = Instant::now();
            self.clients.retain(|client| client.deadline().is_none_or(|deadline| now < deadline));
        }
    }

    fn wait(&self) -> io::Result<Ready> {
        let now = Instant::now();
        let shut = self.shut_until.filter(|until| now < *until);
        let soonest = self.clients.iter().filter_map(Client::deadline).chain(shut).min();
        let timeout = soonest.map(|instant| {
            let left = instant.saturating_duration_since(now);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let listens = match shut {
            Some(_) => PollFlags::empty(),
            None => PollFlags::IN,
        };
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.signal.event.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sockets.datagrams.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.sockets.streams.as_fd(), listens),
        ];
        let mut numbers = Vec::new();
        for client in &self.clients {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.wants_input());
            wanted.set(PollFlags::OUT, client.wants_output());
            // The kernel tells of an end even where nothing is wanted, again and again.
            if !wanted.is_empty() {
                fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
                numbers.push(client.number);
            }
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Ready { datagrams: false, streams: false, clients: Vec::new() }),
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        if next() {
            self.signal.lower();
        }
        let (datagrams, streams) = (next(), next());
        let clients = numbers.into_iter().filter(|_| next()).collect();
        Ok(Ready { datagrams, streams, clients })
    }

    fn take_datagrams(&mut self) {
        let mut buffer = [0; super::stream::LONGEST];
        for _ in 0..TURN {
            match self.sockets.datagrams.recv_from(&mut buffer) {
                Ok((count, from)) => {
                    if let Some(answer) = self.answer(&buffer[..count], Whence::Datagram(from)) {
                        // Whoever does not take an answer asks again.
                        let _ = self.sockets.datagrams.send_to(&answer, from);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // What the socket has to say of an answer that nobody took.
                Err(_) => {}
            }
        }
    }

    fn take_clients(&mut self) {
        for _ in 0..TURN {
            match self.sockets.streams.accept() {
                Ok((stream, _)) => {
                    if self.clients.len() == CLIENTS
                        && let Some(at) = (0..CLIENTS).min_by_key(|at| self.clients[*at].rank())
                    {
                        self.clients.swap_remove(at);
                    }
                    self.numbers += 1;
                    self.clients.extend(Client::new(self.numbers, stream, Instant::now()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    self.shut_until = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }

    /// Hears a client, answers it, and lets it go when it is done.
    fn attend(&mut self, number: u64) {
        let Some(at) = self.clients.iter().position(|client| client.number == number) else { return };
        let mut fate = self.clients[at].read();
        while fate == Fate::Stays {
            match self.clients[at].next(Instant::now()) {
                Ok(Some(message)) => {
                    let answer = self.answer(&message, Whence::Stream(number));
                    self.clients[at].answer(answer.as_deref());
                }
                Ok(None) => {
                    fate = self.clients[at].write(Instant::now());
                    if !self.clients[at].has_question() {
                        break;
                    }
                }
                Err(goes) => fate = goes,
            }
        }
        if fate == Fate::Goes || self.clients[at].is_done() {
            self.clients.swap_remove(at);
        }
    }

    /// The answer to `message`, unless there is none or it has to wait.
    fn answer(&mut self, message: &[u8], whence: Whence) -> Option<Vec<u8>> {
        let query = match read(message) {
            Ok(query) => query,
            Err(Fault::NoQuery) => return None,
            Err(Fault::Malformed(head)) => return Some(reply::malformed(head)),
            Err(Fault::OtherOpcode(head)) => return Some(reply::not_implemented(head)),
        };
        let name = match self.clerk.consider(&query) {
            Step::Reply(answer) => return Some(reply::write(&query, &answer)),
            Step::Wait(name) => name,
        };
        match self.waits.enter(name.clone(), Waiting { query: query.clone(), whence }, &self.clerk.gate) {
            Entered::Waits => {
                if let Whence::Stream(number) = whence
                    && let Some(client) = self.clients.iter_mut().find(|client| client.number == number)
                {
                    client.owe();
                }
                None
            }
            Entered::Again => None,
            Entered::Crowded => Some(reply::write(&query, &self.clerk.refuse(&query, name.as_str(), Refusal::Crowded))),
        }
    }

    fn settle_decided(&mut self) {
        while let Some((name, verdict, all)) = self.waits.next_decided() {
            for Waiting { query, whence } in all {
                let answer = reply::write(&query, &self.clerk.settle(&query, &name, verdict));
                match whence {
                    Whence::Datagram(from) => {
                        let _ = self.sockets.datagrams.send_to(&answer, from);
                    }
                    Whence::Stream(number) => {
                        if let Some(client) = self.clients.iter_mut().find(|client| client.number == number) {
                            client.pay(&answer, Instant::now());
                            self.attend(number);
                        }
                    }
                }
            }
        }
    }
}
