//! The way out of a sandbox, as its policy has it.
//!
//! A program connects, and waits; each has a thread here. Whom it means is known by the address
//! that stands for the name it has looked up, or it means an address itself. If the policy opens
//! that, it is dialed on the host's side, and the program gets the very connection; or, where
//! what is said on it has to name the host as well, its own socket is connected to a relay.

mod dial_goal;
mod gate;
mod guard;
mod loopback;
mod pending;
mod proxy_gate;
mod publish;
mod secrets;
mod signal_poller;
mod slots;
mod socket_state;
mod upstream;

pub(crate) use gate::EgressGate;
pub(crate) use guard::EgressGuard;
pub(crate) use secrets::SecretInjector;
pub(crate) use upstream::outer;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_egress::dial::{
    BlockingMode, DialFailure, DialHost, DialedSocket, Dialer, SocketOptions,
};
use ringfence_egress::dns::{DnsServer, DnsSockets};
use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_egress::proxy::{ListenerProtocol, ProxyServer};
use ringfence_egress::relay::{LoopbackInlet, RelayLimits, RelayPair, SpliceRelay};
use ringfence_enforce::apply::{NetnsListeners, PendingConnect, Reins, SocketKind};
use ringfence_policy::{ConnectRoute, HostDecision, HostTarget as Whom};
use ringfence_sys::net;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::fd_limit;
use dial_goal::{DialGoal, OutboundCheck, look};
use gate::{AllowedConnect, EgressCaller};
use guard::lock;
use pending::{DialAttempt, PendingDials};
use proxy_gate::ProxyGate;
use publish::PublishedPorts;
pub(crate) use publish::ReservedPorts;
use ringfence_provider::ProviderError;
use signal_poller::SignalPoller;
use slots::ConnectSlots;
use socket_state::ConnectDeadline;

/// Enough for a thread that connects.
const STACK: usize = 256 * 1024;
/// How long reaching somebody may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a program that does not want to wait is kept waiting for a connection of its own.
const IMPATIENCE: Duration = Duration::from_millis(200);

/// The ways out of one sandbox, until they are closed.
pub(crate) struct EgressServer {
    gate: Arc<EgressGate>,
    pool: Arc<FakeIpPool>,
    inlet: LoopbackInlet,
    relay: Arc<SpliceRelay>,
    dialer: Dialer,
    /// For those who do not want to wait.
    quick: Dialer,
    /// For those who connect within the sandbox, and for those who leave it: neither keeps the
    /// other out.
    within: ConnectSlots,
    beyond: ConnectSlots,
    pending: Arc<PendingDials>,
    published: Mutex<Option<PublishedPorts>>,
    minds: SignalPoller,
    proxy: Mutex<Option<ProxyServer>>,
    _names: DnsServer,
}

impl std::fmt::Debug for EgressServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl EgressServer {
    /// Serves these, and lets those in who come to `ports`.
    pub(crate) fn open(
        doors: NetnsListeners,
        gate: Arc<EgressGate>,
        ports: ReservedPorts,
        reins: Reins,
    ) -> Result<EgressGuard, ProviderError> {
        let system = |source| ProviderError::System { what: "open the way to hosts", source };
        let pool = Arc::new(FakeIpPool::new());
        let sockets = DnsSockets { datagrams: doors.names, streams: doors.long_names };
        let names =
            DnsServer::start(sockets, gate.clone(), pool.clone(), Vec::new()).map_err(system)?;
        let inlet = LoopbackInlet::new(doors.v4, doors.v6).map_err(system)?;
        let relay = Arc::new(SpliceRelay::start(RelayLimits::default()).map_err(system)?);
        let pending = Arc::<PendingDials>::default();
        let window = || Arc::new(ProxyGate::of(gate.clone(), pool.clone(), pending.clone()));
        let proxy = doors.proxy.map(|listener| {
            ProxyServer::serve(listener, ListenerProtocol::Either, window(), relay.clone())
        });
        let proxy = proxy.transpose().map_err(system)?;
        let published =
            PublishedPorts::open(ports, publish::PATIENCE, move || reins.ask_for_socket())
                .map_err(system)?;
        let (dialer, quick) = (gate.dialer(PATIENCE), gate.dialer(IMPATIENCE));
        Ok(EgressGuard::of(Self {
            published: Mutex::new(Some(published)),
            minds: SignalPoller::start().map_err(system)?,
            proxy: Mutex::new(proxy),
            pending,
            gate,
            pool,
            inlet,
            relay,
            dialer,
            quick,
            within: ConnectSlots::default(),
            beyond: ConnectSlots::default(),
            _names: names,
        }))
    }

    /// A socket of the sandbox's network is there, for somebody who has come from the host.
    fn arrived(&self, socket: OwnedFd) {
        let Some(guest) = lock(&self.published).as_ref().and_then(PublishedPorts::next) else {
            return;
        };
        let relay = self.relay.clone();
        // Whoever is to let it in may not do so for a long time, or at all.
        let _ =
            thread::Builder::new().name("published".into()).stack_size(STACK).spawn(move || {
                if let Some((inside, outside)) = guest.let_in(socket) {
                    relay.carry(RelayPair::new(inside, outside));
                }
            });
    }

    /// Connects a program, or refuses to, on a thread of its own.
    fn connects(self: &Arc<Self>, program: PendingConnect) {
        let slot = match self.stays(program.to()) {
            true => self.within.take(),
            false if self.relay.count() >= fd_limit::for_connections() => None,
            false => self.beyond.take(),
        };
        let Some(slot) = slot else { return program.fail(libc::EAGAIN) };
        self.minds.add(program.minder());
        let egress = self.clone();
        // Where there can be no thread, whoever waited is dropped with it, and told that nobody is
        // there.
        let _ = thread::Builder::new().name("connects".into()).stack_size(STACK).spawn(move || {
            egress.connect(program);
            drop(slot);
        });
    }

    /// Whether what is connected to is in the sandbox.
    fn stays(&self, to: SocketAddr) -> bool {
        let address = to.ip().to_canonical();
        let is_loopback = address.is_loopback() || address.is_unspecified();
        FakeIpPool::is_own(address)
            || is_loopback && !self.gate.hosts_loopback(address, to.port()).is_open()
    }

    fn connect(&self, program: PendingConnect) {
        let (address, port) = (program.to().ip().to_canonical(), program.to().port());
        if program.carries() == SocketKind::Datagrams {
            return self.datagrams(program, address);
        }
        if address.is_loopback() || address.is_unspecified() {
            return self.loopback(program, port);
        }
        if FakeIpPool::is_own(address) {
            return loopback::within(program);
        }
        match self.pool.name_of(address, Instant::now()) {
            Some(name) => self.dial(program, &Whom::Name(name), port),
            // It stood for a name once.
            None if FakeIpPool::covers(address) => program.fail(libc::ENETUNREACH),
            None => self.dial(program, &Whom::Address(address), port),
        }
    }

    /// None leave the sandbox. The C library asks in this way which of several addresses is near,
    /// of those that stand for names as well, and takes no for an answer.
    fn datagrams(&self, program: PendingConnect, address: IpAddr) {
        if !FakeIpPool::covers(address) {
            self.gate.refuse_datagrams(program.to(), &EgressCaller::of(&program));
        }
        program.fail(libc::ENETUNREACH);
    }

    /// Reaches somebody, as far as that is open or somebody who is asked opens it.
    fn dial(&self, program: PendingConnect, whom: &Whom, port: u16) {
        if let Some(number) = socket_state::refusal(program.socket()) {
            return program.fail(number);
        }
        let caller = EgressCaller::of(&program);
        let admitted = self.gate.admit(self.gate.host(whom, port, None), Some(program), &caller);
        let Ok(AllowedConnect { program: Some(program), passage, also }) = admitted else { return };
        let (host, named) = match whom {
            Whom::Name(name) => (DialHost::Name(name.to_string()), Some(name)),
            Whom::Address(address) => (DialHost::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named = named.map(|name| self.gate.address_of(name, address, port, also.as_ref()));
            named
                .filter(|passage| !passage.is_open())
                .map_or(Ok(()), |passage| Err(Box::new(passage)))
        };
        let sealing = named.and_then(|name| self.gate.sealing(name, port));
        let goal = DialGoal { host, port, judge: &judge, caller, passage: &passage, sealing };
        match (passage.way, named) {
            // What is said inside of TLS is looked at, so its hello need not be.
            _ if goal.sealing.is_some() => self.relay(program, None, &goal),
            (Some(ConnectRoute::Checked(check)), Some(name)) => {
                self.relay(program, Some(look(check, name, port)), &goal)
            }
            _ => self.hand_over(program, &goal),
        }
    }

    /// The program gets the connection that was dialed, when it is one: with a socket that is not
    /// yet connected and of the host's network, it could do something else.
    ///
    /// Nor is it of any use to one that waits for events of its own socket already; and one that
    /// does not wait is not kept waiting for long.
    fn hand_over(&self, program: PendingConnect, goal: &DialGoal<'_>) {
        if program.is_watched() {
            return self.relay(program, None, goal);
        }
        let options = match SocketOptions::of(program.socket()) {
            Ok(options) => options,
            Err(error) => return program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let is_impatient = options.waiting() == BlockingMode::Never;
        let dialer = if is_impatient { &self.quick } else { &self.dialer };
        let attempt = self.pending.begin(goal.unfinished());
        let deadline = ConnectDeadline::of(program.socket());
        let is_wanted = || program.is_waiting() && !self.pending.is_closed() && !deadline.is_over();
        match dialer.connect_while(&is_wanted, &goal.host, goal.port, &options, goal.judge) {
            Ok(reached) => match options.finish(reached.socket.as_fd()) {
                Ok(()) => {
                    if attempt.settle(|| goal.made(&self.gate, reached.peer)).is_some() {
                        drop(program.replace(&reached.socket, Ok(())));
                    }
                }
                Err(error) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            // A socket is not replaced by one whose addresses are longer than the program has room
            // for.
            Err(DialFailure::OtherFamily) => {
                drop(attempt);
                self.relay(program, None, goal);
            }
            Err(failure) if is_impatient && failure.errno() == libc::ETIMEDOUT => {
                drop(attempt);
                self.relay(program, None, goal);
            }
            Err(failure) => {
                attempt.settle(|| goal.missed(&self.gate, &failure));
                program.fail(number(&failure, deadline));
            }
        }
    }

    /// The program's own socket is connected to the relay, and the relay to the host. Whoever does
    /// not wait is connected before it is known whether anybody is there.
    fn relay(&self, program: PendingConnect, check: Option<OutboundCheck>, goal: &DialGoal<'_>) {
        let options = SocketOptions::of(program.socket()).unwrap_or_default();
        let (waiting, far) = (options.waiting(), options.for_the_way());
        let dial = |is_wanted: &dyn Fn() -> bool| {
            self.dialer.connect_while(is_wanted, &goal.host, goal.port, &far, goal.judge)
        };
        let attempt = self.pending.begin(goal.unfinished());
        let is_open = || !self.pending.is_closed();
        if waiting == BlockingMode::Never {
            let Some(inside) = self.let_in(program) else { return };
            match dial(&|| !is_broken_off(&inside) && is_open()) {
                Ok(reached) => self.carry(inside, reached, check, goal, attempt),
                Err(failure) => {
                    attempt.settle(|| goal.missed(&self.gate, &failure));
                    reset(&inside);
                }
            }
            return;
        }
        let deadline = ConnectDeadline::of(program.socket());
        match dial(&|| program.is_waiting() && is_open() && !deadline.is_over()) {
            Ok(reached) => {
                if let Some(inside) = self.let_in(program) {
                    self.carry(inside, reached, check, goal, attempt);
                }
            }
            Err(failure) => {
                attempt.settle(|| goal.missed(&self.gate, &failure));
                program.fail(number(&failure, deadline));
            }
        }
    }

    /// Connects a program's own socket, and answers the other end.
    fn let_in(&self, program: PendingConnect) -> Option<OwnedFd> {
        match self.inlet.connect(program.socket(), &|| program.is_waiting()) {
            Ok(inside) => program.done().ok().map(|()| inside),
            Err(error) => {
                program.fail(error.raw_os_error().unwrap_or(libc::EIO));
                None
            }
        }
    }

    fn carry(
        &self,
        inside: OwnedFd,
        outside: DialedSocket,
        check: Option<OutboundCheck>,
        goal: &DialGoal<'_>,
        attempt: DialAttempt<'_>,
    ) {
        match attempt.settle(|| goal.carried(&self.gate, outside)) {
            Some(Ok((outside, ended))) => {
                self.relay.carry(RelayPair { inside, outside, said: Vec::new(), check, ended })
            }
            Some(Err(_)) | None => reset(&inside),
        }
    }
}

/// What a program is told that was not connected. One whose own time is over is told what the
/// kernel says then.
fn number(failure: &DialFailure<Box<HostDecision>>, deadline: ConnectDeadline) -> i32 {
    if matches!(failure, DialFailure::Unwanted) && deadline.is_over() {
        libc::EINPROGRESS
    } else {
        failure.errno()
    }
}

/// Whether whoever is connected to the other end is gone, as far as that can be told: who has
/// closed it may as well have said everything and wait for an answer.
fn is_broken_off(socket: &OwnedFd) -> bool {
    let mut looked_at = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut looked_at, Some(&Timespec::default())).is_ok()
        && looked_at[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Whoever is connected to the other end is told that it was broken off.
fn reset(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// The addresses of this machine, but for its loopback, which is guarded as a whole.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(net::own_addresses()?.into_iter().filter(|address| !address.is_loopback()).collect())
}
