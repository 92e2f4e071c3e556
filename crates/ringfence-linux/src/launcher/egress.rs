//! Network egress of a sandbox, as its policy allows.
//!
//! A program waits in `connect` while one thread here handles it. The target is the name that the
//! fake IP stands for, or a plain address. If the policy allows the target, ringfence dials it in
//! the host's network and the program gets that very socket. If the traffic has to be checked (it
//! must name the host as well), the program's own socket is connected to a relay.

mod active_dials;
mod dial_goal;
mod gate;
mod guard;
mod loopback;
mod proxy_gate;
mod publish;
mod secrets;
mod signal_poller;
mod slots;
mod socket_state;
mod upstream;

pub(crate) use gate::{EgressCaller, EgressGate};
pub(crate) use guard::EgressGuard;
pub(crate) use loopback::host_port_denial;
pub(crate) use secrets::SecretInjector;
pub(crate) use upstream::upstream_proxies;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::apply::{NetnsListeners, PendingConnect, SandboxControl, SocketKind};
use crate::launcher::system_step::SystemStep;
use ringfence_egress::dial::{
    BlockingMode, DialFailure, DialHost, DialedSocket, Dialer, SocketOptions,
};
use ringfence_egress::dns::{DnsServer, DnsSockets};
use ringfence_egress::fake_ip::FakeIpPool;
use ringfence_egress::proxy::{ListenerProtocol, ProxyServer};
use ringfence_egress::relay::{LoopbackInlet, RelayLimits, RelayPair, SpliceRelay};
use ringfence_policy::{ConnectRoute, HostDecision, HostTarget};
use ringfence_sys::net;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use tracing::debug;

use crate::launcher::fd_limit;
use crate::locks::lock;
use active_dials::{ActiveDials, DialAttempt};
use dial_goal::{DialGoal, OutboundCheck, stream_check};
use gate::AllowedConnect;
use proxy_gate::ProxyGate;
use publish::PublishedPorts;
pub(crate) use publish::ReservedPorts;
use ringfence_provider::ProviderError;
use signal_poller::SignalPoller;
use slots::ConnectSlots;
use socket_state::ConnectDeadline;

/// Stack size of a thread that connects.
const STACK: usize = 256 * 1024;
/// Time limit for a dial.
const DIAL_LIMIT: Duration = Duration::from_secs(60);
/// Time that a nonblocking program is kept waiting for a socket of its own.
const NONBLOCKING_DIAL_LIMIT: Duration = Duration::from_millis(200);

/// The egress of one sandbox, until it is closed.
pub(crate) struct EgressServer {
    gate: Arc<EgressGate>,
    pool: Arc<FakeIpPool>,
    inlet: LoopbackInlet,
    relay: Arc<SpliceRelay>,
    dialer: Dialer,
    /// For nonblocking programs.
    nonblocking_dialer: Dialer,
    /// Separate slots for connects within the sandbox and to the outside: neither starves the
    /// other.
    within: ConnectSlots,
    beyond: ConnectSlots,
    active_dials: Arc<ActiveDials>,
    published: Mutex<Option<PublishedPorts>>,
    signal_poller: SignalPoller,
    proxy: Mutex<Option<ProxyServer>>,
    _names: DnsServer,
}

impl std::fmt::Debug for EgressServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EgressServer").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl EgressServer {
    /// Serves the listeners of the sandbox, and forwards connections to `ports`.
    pub(crate) fn open(
        listeners: NetnsListeners,
        gate: Arc<EgressGate>,
        ports: ReservedPorts,
        control: SandboxControl,
    ) -> Result<EgressGuard, ProviderError> {
        let what = "start the network proxy of the sandbox";
        let pool = Arc::new(FakeIpPool::new());
        let sockets = DnsSockets { datagrams: listeners.names, streams: listeners.long_names };
        let names =
            DnsServer::start(sockets, gate.clone(), pool.clone(), Vec::new()).during(what)?;
        let inlet = LoopbackInlet::new(listeners.v4, listeners.v6).during(what)?;
        let relay = Arc::new(SpliceRelay::start(RelayLimits::default()).during(what)?);
        let active_dials = Arc::<ActiveDials>::default();
        let proxy_gate =
            || Arc::new(ProxyGate::new(gate.clone(), pool.clone(), active_dials.clone()));
        let proxy = listeners.proxy.map(|listener| {
            ProxyServer::serve(listener, ListenerProtocol::Either, proxy_gate(), relay.clone())
        });
        let proxy = proxy.transpose().during(what)?;
        let published =
            PublishedPorts::open(ports, publish::CONNECT_LIMIT, move || control.request_socket())
                .during(what)?;
        let (dialer, nonblocking_dialer) =
            (gate.dialer(DIAL_LIMIT), gate.dialer(NONBLOCKING_DIAL_LIMIT));
        Ok(EgressGuard::new(Self {
            published: Mutex::new(Some(published)),
            signal_poller: SignalPoller::start().during(what)?,
            proxy: Mutex::new(proxy),
            active_dials,
            gate,
            pool,
            inlet,
            relay,
            dialer,
            nonblocking_dialer,
            within: ConnectSlots::default(),
            beyond: ConnectSlots::default(),
            _names: names,
        }))
    }

    /// Takes a socket of the sandbox's network, for a connection to a published port.
    fn handle_socket(&self, socket: OwnedFd) {
        let Some(guest) = lock(&self.published).as_ref().and_then(PublishedPorts::next) else {
            return;
        };
        let relay = self.relay.clone();
        // The program inside may accept late, or never.
        let _ =
            thread::Builder::new().name("published".into()).stack_size(STACK).spawn(move || {
                if let Some((inside, outside)) = guest.connect_inside(socket) {
                    relay.relay(RelayPair::new(inside, outside));
                }
            });
    }

    /// Connects a program, or denies it, on a thread of its own.
    fn handle_connect(self: &Arc<Self>, program: PendingConnect) {
        let slot = match self.stays_inside(program.destination()) {
            true => self.within.take(),
            false if self.relay.open_connections() >= fd_limit::max_connections() => None,
            false => self.beyond.take(),
        };
        let Some(slot) = slot else { return program.fail(libc::EAGAIN) };
        self.signal_poller.add(program.signal_check());
        let egress = self.clone();
        // If no thread can start, the program is dropped with the closure and gets ENETUNREACH.
        let _ = thread::Builder::new().name("connects".into()).stack_size(STACK).spawn(move || {
            egress.dispatch(program);
            drop(slot);
        });
    }

    /// True if the address is inside the sandbox.
    fn stays_inside(&self, to: SocketAddr) -> bool {
        let address = to.ip().to_canonical();
        let is_loopback = address.is_loopback() || address.is_unspecified();
        FakeIpPool::is_own(address)
            || is_loopback && !self.gate.hosts_loopback(address, to.port()).is_open()
    }

    /// Connects by the kind of the destination: inside, the host's loopback, a name or an address.
    fn dispatch(&self, program: PendingConnect) {
        let (address, port) =
            (program.destination().ip().to_canonical(), program.destination().port());
        debug!(target: "egress", caller = program.pid(), %address, port, "connect");
        if program.socket_kind() == SocketKind::NotStream {
            return self.datagrams(program, address);
        }
        if address.is_loopback() || address.is_unspecified() {
            return self.loopback(program, port);
        }
        if FakeIpPool::is_own(address) {
            return loopback::connect_inside(program);
        }
        match self.pool.name_of(address, Instant::now()) {
            Some(name) => self.dial(program, &HostTarget::Name(name), port),
            // A fake IP that has expired.
            None if FakeIpPool::is_fake(address) => program.fail(libc::ENETUNREACH),
            None => self.dial(program, &HostTarget::Address(address), port),
        }
    }

    /// Denies datagrams: none leave the sandbox. The C library connects UDP sockets to sort
    /// addresses by reachability, fake IPs as well, and copes with the error.
    fn datagrams(&self, program: PendingConnect, address: IpAddr) {
        if !FakeIpPool::is_fake(address) {
            self.gate
                .refuse_datagrams(program.destination(), &EgressCaller::from_program(&program));
        }
        program.fail(libc::ENETUNREACH);
    }

    /// Dials a host, if the policy or the user allows it.
    fn dial(&self, program: PendingConnect, target: &HostTarget, port: u16) {
        if let Some(number) = socket_state::connect_errno(program.socket()) {
            return program.fail(number);
        }
        let caller = EgressCaller::from_program(&program);
        let admitted = self.gate.deny_or_ask(
            self.gate.decide_host(target, port, None),
            Some(program),
            &caller,
        );
        let Ok(AllowedConnect { program: Some(program), decision, also }) = admitted else {
            return;
        };
        let (host, named) = match target {
            HostTarget::Name(name) => (DialHost::Name(name.to_string()), Some(name)),
            HostTarget::Address(address) => (DialHost::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named =
                named.map(|name| self.gate.decide_address(name, address, port, also.as_ref()));
            named
                .filter(|decision| !decision.is_open())
                .map_or(Ok(()), |decision| Err(Box::new(decision)))
        };
        let injection = named.and_then(|name| self.gate.injection_for(name, port));
        let goal = DialGoal { host, port, judge: &judge, caller, decision: &decision, injection };
        debug!(
            target: "egress",
            host = decision.target(),
            route = ?decision.route,
            injects_secret = goal.injection.is_some(),
            "allowed"
        );
        match (decision.route, named) {
            // The HTTP inside TLS is checked, so the ClientHello need not be.
            _ if goal.injection.is_some() => self.relay(program, None, &goal),
            (Some(ConnectRoute::Checked(check)), Some(name)) => {
                self.relay(program, Some(stream_check(check, name, port)), &goal)
            }
            _ => self.dial_and_replace_fd(program, &goal),
        }
    }

    /// Gives the program the dialed socket, once it is connected: an unconnected socket of the
    /// host's network could be used for anything else.
    ///
    /// A program that already polls its own socket gets a relay instead. A nonblocking program does
    /// not wait for long.
    fn dial_and_replace_fd(&self, program: PendingConnect, goal: &DialGoal<'_>) {
        if program.is_watched() {
            debug!(target: "egress", "relays: an epoll instance watches the socket");
            return self.relay(program, None, goal);
        }
        let options = match SocketOptions::from_socket(program.socket()) {
            Ok(options) => options,
            Err(error) => return program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let is_nonblocking = options.blocking_mode() == BlockingMode::Never;
        let dialer = if is_nonblocking { &self.nonblocking_dialer } else { &self.dialer };
        let attempt = self.active_dials.begin(goal.unfinished());
        let deadline = ConnectDeadline::from_socket(program.socket());
        let is_wanted =
            || program.is_waiting() && !self.active_dials.is_closed() && !deadline.is_over();
        match dialer.connect_while(&is_wanted, &goal.host, goal.port, &options, goal.judge) {
            Ok(reached) => match options.apply_blocking_mode(reached.socket.as_fd()) {
                Ok(()) => {
                    if attempt.settle(|| goal.record_connected(&self.gate, reached.peer)).is_some()
                    {
                        drop(program.replace(&reached.socket, Ok(())));
                    }
                }
                Err(error) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
            },
            // The program's buffers may be too short for the addresses of the other family.
            Err(DialFailure::OtherFamily) => {
                drop(attempt);
                self.relay(program, None, goal);
            }
            Err(failure) if is_nonblocking && failure.errno() == libc::ETIMEDOUT => {
                drop(attempt);
                self.relay(program, None, goal);
            }
            Err(failure) => {
                attempt.settle(|| goal.record_failed(&self.gate, &failure));
                program.fail(connect_errno(&failure, deadline));
            }
        }
    }

    /// Connects the program's own socket to the relay, and the relay to the host. A nonblocking
    /// program is connected before the dial succeeds.
    fn relay(&self, program: PendingConnect, check: Option<OutboundCheck>, goal: &DialGoal<'_>) {
        let options = SocketOptions::from_socket(program.socket()).unwrap_or_default();
        let (waiting, outbound) = (options.blocking_mode(), options.path_options());
        let dial = |is_wanted: &dyn Fn() -> bool| {
            self.dialer.connect_while(is_wanted, &goal.host, goal.port, &outbound, goal.judge)
        };
        let attempt = self.active_dials.begin(goal.unfinished());
        let is_open = || !self.active_dials.is_closed();
        if waiting == BlockingMode::Never {
            let Some(inside) = self.let_in(program) else { return };
            match dial(&|| !is_broken_off(&inside) && is_open()) {
                Ok(reached) => self.carry(inside, reached, check, goal, attempt),
                Err(failure) => {
                    attempt.settle(|| goal.record_failed(&self.gate, &failure));
                    reset(&inside);
                }
            }
            return;
        }
        let deadline = ConnectDeadline::from_socket(program.socket());
        match dial(&|| program.is_waiting() && is_open() && !deadline.is_over()) {
            Ok(reached) => {
                if let Some(inside) = self.let_in(program) {
                    self.carry(inside, reached, check, goal, attempt);
                }
            }
            Err(failure) => {
                attempt.settle(|| goal.record_failed(&self.gate, &failure));
                program.fail(connect_errno(&failure, deadline));
            }
        }
    }

    /// Connects a program's own socket, and returns the other end.
    fn let_in(&self, program: PendingConnect) -> Option<OwnedFd> {
        match self.inlet.connect(program.socket(), &|| program.is_waiting()) {
            Ok(inside) => program.succeed().ok().map(|()| inside),
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
        match attempt.settle(|| goal.record_relayed(&self.gate, outside)) {
            Some(Ok((outside, ended))) => self.relay.relay(RelayPair {
                inside,
                outside,
                early_bytes: Vec::new(),
                check,
                on_end: ended,
            }),
            Some(Err(_)) | None => reset(&inside),
        }
    }
}

/// Errno for a program whose connect failed. If its own timeout is over, the errno is the kernel's
/// for that.
fn connect_errno(failure: &DialFailure<Box<HostDecision>>, deadline: ConnectDeadline) -> i32 {
    if matches!(failure, DialFailure::Cancelled) && deadline.is_over() {
        libc::EINPROGRESS
    } else {
        failure.errno()
    }
}

/// True if the peer is gone, as far as that is visible: a peer that closed its sending side may
/// still wait for a reply.
fn is_broken_off(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).is_ok()
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Closes with a reset, so that the peer sees an aborted connection.
fn reset(socket: &OwnedFd) {
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Addresses of this machine, except its loopback, which is guarded as a whole.
pub fn own_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(net::own_addresses()?.into_iter().filter(|address| !address.is_loopback()).collect())
}
