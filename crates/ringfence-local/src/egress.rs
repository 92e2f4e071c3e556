//! The way out of a sandbox, as its policy has it.
//!
//! A program connects, and waits; each has a thread here. Whom it means is known by the address
//! that stands for the name it has looked up, or it means an address itself. If the policy opens
//! that, it is dialed on the host's side, and the program gets the very connection; or, where
//! what is said on it has to name the host as well, its own socket is connected to a relay.

mod gate;
mod loopback;
mod publish;
mod window;

pub(crate) use gate::Gate;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_egress::dial::{Dialer, Failure, Host, Options, Waiting};
use ringfence_egress::dns::{Server, Sockets};
use ringfence_egress::peek::checks;
use ringfence_egress::pool::Pool;
use ringfence_egress::proxy::{Proxy, Speaks};
use ringfence_egress::relay::{self, End, Ending, Inlet, Limits, Pair, Relay};
use ringfence_enforce::apply::{Carries, Connecting, Doors, Reins};
use ringfence_policy::{Check, Name, Passage, Way};
use ringfence_sys::net;

use gate::Caller;
use publish::{Published, Taken};
use ringfence_provider::ProviderError;
use window::Window;

/// How long reaching somebody may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many may be about to connect at once.
const MOST: usize = 1024;

/// The ways out of one sandbox. Dropped, all of them end.
pub(crate) struct Egress {
    gate: Arc<Gate>,
    pool: Arc<Pool>,
    inlet: Inlet,
    relay: Arc<Relay>,
    dialer: Dialer,
    busy: AtomicUsize,
    published: Published,
    _proxy: Option<Proxy>,
    _names: Server,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Egress {
    /// Serves these.
    pub(crate) fn open(doors: Doors, gate: Arc<Gate>, reins: Reins) -> Result<Arc<Self>, ProviderError> {
        let system = |source| ProviderError::System { what: "open the way to hosts", source };
        let pool = Arc::new(Pool::new());
        let sockets = Sockets { datagrams: doors.names, streams: doors.long_names };
        let names = Server::start(sockets, gate.clone(), pool.clone(), Vec::new()).map_err(system)?;
        let inlet = Inlet::new(doors.v4, doors.v6).map_err(system)?;
        let relay = Arc::new(Relay::start(Limits::default()).map_err(system)?);
        let window = || Arc::new(Window::of(gate.clone()));
        let proxy = doors.proxy.map(|listener| Proxy::serve(listener, Speaks::Either, window(), relay.clone()));
        let proxy = proxy.transpose().map_err(system)?;
        let published =
            Published::open(&gate.published(), reins).map_err(|Taken { port, source }| ProviderError::PortTaken { port, source })?;
        Ok(Arc::new(Self {
            published,
            _proxy: proxy,
            gate,
            pool,
            inlet,
            relay,
            dialer: Dialer::direct(PATIENCE),
            busy: AtomicUsize::new(0),
            _names: names,
        }))
    }

    /// A socket of the sandbox's network is there, for somebody who has come from the host.
    pub(crate) fn arrived(&self, socket: OwnedFd) {
        if let Some((inside, outside)) = self.published.arrived(socket) {
            self.relay.carry(Pair::new(inside, outside));
        }
    }

    /// Connects a program, or refuses to, on a thread of its own.
    pub(crate) fn connects(self: &Arc<Self>, program: Connecting) {
        if self.busy.fetch_add(1, Ordering::Relaxed) >= MOST {
            self.busy.fetch_sub(1, Ordering::Relaxed);
            return program.fail(libc::EAGAIN);
        }
        let egress = self.clone();
        let begun = thread::Builder::new().name("connects".into()).stack_size(256 * 1024).spawn(move || {
            egress.connect(program);
            egress.busy.fetch_sub(1, Ordering::Relaxed);
        });
        if begun.is_err() {
            // With the thread, whoever waited was dropped, and told that nobody is there.
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn connect(&self, program: Connecting) {
        let (address, port) = (program.to().ip().to_canonical(), program.to().port());
        if program.carries() == Carries::Datagrams {
            return self.datagrams(program, address);
        }
        if address.is_loopback() || address.is_unspecified() {
            return self.loopback(program, port);
        }
        match self.pool.name_of(address, Instant::now()) {
            Some(name) => self.name(program, &name, port),
            // It stood for a name once.
            None if Pool::covers(address) => program.fail(libc::ENETUNREACH),
            None => {
                let passage = self.gate.address(address, port);
                self.dial(program, &Host::Address(address), port, passage);
            }
        }
    }

    /// None leave the sandbox. The C library asks in this way which of several addresses is near,
    /// of those that stand for names as well, and takes no for an answer.
    fn datagrams(&self, program: Connecting, address: IpAddr) {
        if !Pool::covers(address) {
            self.gate.refuse_datagrams(program.to(), &Caller::of(&program));
        }
        program.fail(libc::ENETUNREACH);
    }

    fn name(&self, program: Connecting, name: &Name, port: u16) {
        let passage = self.gate.name(name, port);
        self.dial(program, &Host::Name(name.to_string()), port, passage);
    }

    fn dial(&self, program: Connecting, host: &Host, port: u16, passage: Passage) {
        let Some(way) = passage.way else {
            self.gate.refuse(&passage, &Caller::of(&program));
            return program.fail(libc::EACCES);
        };
        let named = match host {
            Host::Name(name) => Name::new(name).ok(),
            Host::Address(_) => None,
        };
        let judge = |address: IpAddr| {
            let passage = self.gate.address_of(address, port, named.as_ref());
            if passage.is_open() { Ok(()) } else { Err(Box::new(passage)) }
        };
        match (way, named.as_ref()) {
            (Way::Checked(check), Some(name)) => self.relay(program, host, port, Some(look(check, name, port)), &judge),
            _ => self.hand_over(program, host, port, &judge),
        }
    }

    /// The program gets the connection that was dialed, unless that would be of no use to it.
    fn hand_over(&self, program: Connecting, host: &Host, port: u16, judge: &Judge<'_>) {
        if program.is_watched() {
            return self.relay(program, host, port, None, judge);
        }
        let options = match Options::of(program.socket()) {
            Ok(options) => options,
            Err(error) => return program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        // Whoever does not wait gets an address that is the only one while it is being reached.
        if let (Host::Address(address), Waiting::Never) = (host, options.waiting()) {
            return match judge(*address)
                .map_err(Refused::By)
                .and_then(|()| self.dialer.start(SocketAddr::new(*address, port), &options).map_err(Refused::With))
            {
                Ok(socket) => drop(program.replace(&socket, Err(libc::EINPROGRESS))),
                Err(Refused::By(passage)) => {
                    self.gate.refuse(&passage, &Caller::of(&program));
                    program.fail(libc::EACCES);
                }
                Err(Refused::With(error)) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
            };
        }
        match self.dialer.connect(host, port, &options, judge) {
            Ok(reached) => match options.finish(reached.socket.as_fd()) {
                Ok(()) => drop(program.replace(&reached.socket, Ok(()))),
                Err(error) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            // A socket is not replaced by one whose addresses are longer than the program has room for.
            Err(Failure::OtherFamily) => self.relay(program, host, port, None, judge),
            Err(failure) => {
                self.note(&failure, &Caller::of(&program));
                program.fail(failure.errno());
            }
        }
    }

    /// The program's own socket is connected to the relay, and the relay to the host. Whoever does
    /// not wait is connected before it is known whether anybody is there.
    fn relay(&self, program: Connecting, host: &Host, port: u16, check: Option<Look>, judge: &Judge<'_>) {
        let options = Options::of(program.socket()).unwrap_or_default();
        let caller = Caller::of(&program);
        let (waiting, far) = (options.waiting(), options.for_the_way());
        let dial = || self.dialer.connect(host, port, &far, judge);
        if waiting == Waiting::Never {
            let Some(inside) = self.let_in(program) else { return };
            match dial() {
                Ok(reached) => self.carry(inside, reached.socket, check, caller, host, port),
                Err(failure) => {
                    self.note(&failure, &caller);
                    reset(&inside);
                }
            }
            return;
        }
        match dial() {
            Ok(reached) => {
                if let Some(inside) = self.let_in(program) {
                    self.carry(inside, reached.socket, check, caller, host, port);
                }
            }
            Err(failure) => {
                self.note(&failure, &caller);
                program.fail(failure.errno());
            }
        }
    }

    /// Connects a program's own socket, and answers the other end.
    fn let_in(&self, program: Connecting) -> Option<OwnedFd> {
        match self.inlet.connect(program.socket()) {
            Ok(inside) => program.done().ok().map(|()| inside),
            Err(error) => {
                program.fail(error.raw_os_error().unwrap_or(libc::EIO));
                None
            }
        }
    }

    fn carry(&self, inside: OwnedFd, outside: OwnedFd, check: Option<Look>, caller: Caller, host: &Host, port: u16) {
        let (gate, host) = (self.gate.clone(), host.to_string());
        let ended = move |end: End| {
            if let Ending::Refused(reason) = end.why {
                gate.refuse_talk(&host, port, &reason, &caller);
            }
        };
        self.relay.carry(Pair { inside, outside, said: Vec::new(), check, ended: Box::new(ended) });
    }

    /// Only what the policy says is a refusal: a host may be down.
    fn note(&self, failure: &Failure<Box<Passage>>, caller: &Caller) {
        if let Failure::Judged { why, .. } = failure {
            self.gate.refuse(why, caller);
        }
    }
}

/// Whoever looks at what is said from inside.
type Look = Box<dyn relay::Check>;

/// For a connection to `name`.
fn look(check: Check, name: &Name, port: u16) -> Look {
    match check {
        Check::Tls => checks::tls(name.clone()),
        Check::Http => checks::http(name.clone(), port),
    }
}

/// Asked about each address before it is tried.
type Judge<'a> = dyn Fn(IpAddr) -> Result<(), Box<Passage>> + 'a;

enum Refused {
    By(Box<Passage>),
    With(io::Error),
}

/// Whoever is connected to the other end is told that it was broken off.
fn reset(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// The addresses of this machine, but for its loopback, which is guarded as a whole.
fn own() -> Vec<IpAddr> {
    net::own_addresses().unwrap_or_default().into_iter().filter(|address| !address.is_loopback()).collect()
}
