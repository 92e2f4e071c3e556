//! The way out of a sandbox, as its policy has it.
//!
//! A program connects, and waits; each has a thread here. Whom it means is known by the address
//! that stands for the name it has looked up, or it means an address itself. If the policy opens
//! that, it is dialed on the host's side, and the program gets the very connection; or, where
//! what is said on it has to name the host as well, its own socket is connected to a relay.

mod gate;
mod goal;
mod loopback;
mod minds;
mod opened;
mod outer;
mod pending;
mod publish;
mod seal;
mod slots;
mod state;
mod window;

pub(crate) use gate::Gate;
pub(crate) use opened::Opened;
pub(crate) use outer::outer;
pub(crate) use seal::Seal;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_egress::dial::{Dialer, Failure, Host, Options, Reached, Waiting};
use ringfence_egress::dns::{Server, Sockets};
use ringfence_egress::pool::Pool;
use ringfence_egress::proxy::{Proxy, Speaks};
use ringfence_egress::relay::{Inlet, Limits, Pair, Relay};
use ringfence_enforce::apply::{Carries, Connecting, Doors, Reins};
use ringfence_policy::{Host as Whom, Passage, Way};
use ringfence_sys::net;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;

use crate::room;
use gate::{Admitted, Caller};
use goal::{Goal, Look, look};
use minds::Minds;
use opened::lock;
use pending::{Attempt, Pending};
use publish::Published;
pub(crate) use publish::Reserved;
use ringfence_provider::ProviderError;
use slots::Slots;
use state::Deadline;
use window::Window;

/// Enough for a thread that connects.
const STACK: usize = 256 * 1024;
/// How long reaching somebody may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a program that does not want to wait is kept waiting for a connection of its own.
const IMPATIENCE: Duration = Duration::from_millis(200);

/// The ways out of one sandbox, until they are closed.
pub(crate) struct Egress {
    gate: Arc<Gate>,
    pool: Arc<Pool>,
    inlet: Inlet,
    relay: Arc<Relay>,
    dialer: Dialer,
    /// For those who do not want to wait.
    quick: Dialer,
    /// For those who connect within the sandbox, and for those who leave it: neither keeps the
    /// other out.
    within: Slots,
    beyond: Slots,
    pending: Arc<Pending>,
    published: Mutex<Option<Published>>,
    minds: Minds,
    proxy: Mutex<Option<Proxy>>,
    _names: Server,
}

impl std::fmt::Debug for Egress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Egress").field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl Egress {
    /// Serves these, and lets those in who come to `ports`.
    pub(crate) fn open(
        doors: Doors,
        gate: Arc<Gate>,
        ports: Reserved,
        reins: Reins,
    ) -> Result<Opened, ProviderError> {
        let system = |source| ProviderError::System { what: "open the way to hosts", source };
        let pool = Arc::new(Pool::new());
        let sockets = Sockets { datagrams: doors.names, streams: doors.long_names };
        let names =
            Server::start(sockets, gate.clone(), pool.clone(), Vec::new()).map_err(system)?;
        let inlet = Inlet::new(doors.v4, doors.v6).map_err(system)?;
        let relay = Arc::new(Relay::start(Limits::default()).map_err(system)?);
        let pending = Arc::<Pending>::default();
        let window = || Arc::new(Window::of(gate.clone(), pool.clone(), pending.clone()));
        let proxy = doors
            .proxy
            .map(|listener| Proxy::serve(listener, Speaks::Either, window(), relay.clone()));
        let proxy = proxy.transpose().map_err(system)?;
        let published = Published::open(ports, publish::PATIENCE, move || reins.ask_for_socket())
            .map_err(system)?;
        let (dialer, quick) = (gate.dialer(PATIENCE), gate.dialer(IMPATIENCE));
        Ok(Opened::of(Self {
            published: Mutex::new(Some(published)),
            minds: Minds::start().map_err(system)?,
            proxy: Mutex::new(proxy),
            pending,
            gate,
            pool,
            inlet,
            relay,
            dialer,
            quick,
            within: Slots::default(),
            beyond: Slots::default(),
            _names: names,
        }))
    }

    /// A socket of the sandbox's network is there, for somebody who has come from the host.
    fn arrived(&self, socket: OwnedFd) {
        let Some(guest) = lock(&self.published).as_ref().and_then(Published::next) else { return };
        let relay = self.relay.clone();
        // Whoever is to let it in may not do so for a long time, or at all.
        let _ =
            thread::Builder::new().name("published".into()).stack_size(STACK).spawn(move || {
                if let Some((inside, outside)) = guest.let_in(socket) {
                    relay.carry(Pair::new(inside, outside));
                }
            });
    }

    /// Connects a program, or refuses to, on a thread of its own.
    fn connects(self: &Arc<Self>, program: Connecting) {
        let slot = match self.stays(program.to()) {
            true => self.within.take(),
            false if self.relay.count() >= room::for_connections() => None,
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
        Pool::is_own(address)
            || is_loopback && !self.gate.hosts_loopback(address, to.port()).is_open()
    }

    fn connect(&self, program: Connecting) {
        let (address, port) = (program.to().ip().to_canonical(), program.to().port());
        if program.carries() == Carries::Datagrams {
            return self.datagrams(program, address);
        }
        if address.is_loopback() || address.is_unspecified() {
            return self.loopback(program, port);
        }
        if Pool::is_own(address) {
            return loopback::within(program);
        }
        match self.pool.name_of(address, Instant::now()) {
            Some(name) => self.dial(program, &Whom::Name(name), port),
            // It stood for a name once.
            None if Pool::covers(address) => program.fail(libc::ENETUNREACH),
            None => self.dial(program, &Whom::Address(address), port),
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

    /// Reaches somebody, as far as that is open or somebody who is asked opens it.
    fn dial(&self, program: Connecting, whom: &Whom, port: u16) {
        if let Some(number) = state::refusal(program.socket()) {
            return program.fail(number);
        }
        let caller = Caller::of(&program);
        let admitted = self.gate.admit(self.gate.host(whom, port, None), Some(program), &caller);
        let Ok(Admitted { program: Some(program), passage, also }) = admitted else { return };
        let (host, named) = match whom {
            Whom::Name(name) => (Host::Name(name.to_string()), Some(name)),
            Whom::Address(address) => (Host::Address(*address), None),
        };
        let judge = |address: IpAddr| {
            let named = named.map(|name| self.gate.address_of(name, address, port, also.as_ref()));
            named
                .filter(|passage| !passage.is_open())
                .map_or(Ok(()), |passage| Err(Box::new(passage)))
        };
        let sealing = named.and_then(|name| self.gate.sealing(name, port));
        let goal = Goal { host, port, judge: &judge, caller, passage: &passage, sealing };
        match (passage.way, named) {
            // What is said inside of TLS is looked at, so its hello need not be.
            _ if goal.sealing.is_some() => self.relay(program, None, &goal),
            (Some(Way::Checked(check)), Some(name)) => {
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
    fn hand_over(&self, program: Connecting, goal: &Goal<'_>) {
        if program.is_watched() {
            return self.relay(program, None, goal);
        }
        let options = match Options::of(program.socket()) {
            Ok(options) => options,
            Err(error) => return program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let is_impatient = options.waiting() == Waiting::Never;
        let dialer = if is_impatient { &self.quick } else { &self.dialer };
        let attempt = self.pending.begin(goal.unfinished());
        let deadline = Deadline::of(program.socket());
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
            // A socket is not replaced by one whose addresses are longer than the program has room for.
            Err(Failure::OtherFamily) => {
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
    fn relay(&self, program: Connecting, check: Option<Look>, goal: &Goal<'_>) {
        let options = Options::of(program.socket()).unwrap_or_default();
        let (waiting, far) = (options.waiting(), options.for_the_way());
        let dial = |is_wanted: &dyn Fn() -> bool| {
            self.dialer.connect_while(is_wanted, &goal.host, goal.port, &far, goal.judge)
        };
        let attempt = self.pending.begin(goal.unfinished());
        let is_open = || !self.pending.is_closed();
        if waiting == Waiting::Never {
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
        let deadline = Deadline::of(program.socket());
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
    fn let_in(&self, program: Connecting) -> Option<OwnedFd> {
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
        outside: Reached,
        check: Option<Look>,
        goal: &Goal<'_>,
        attempt: Attempt<'_>,
    ) {
        match attempt.settle(|| goal.carried(&self.gate, outside)) {
            Some(Ok((outside, ended))) => {
                self.relay.carry(Pair { inside, outside, said: Vec::new(), check, ended })
            }
            Some(Err(_)) | None => reset(&inside),
        }
    }
}

/// What a program is told that was not connected. One whose own time is over is told what the
/// kernel says then.
fn number(failure: &Failure<Box<Passage>>, deadline: Deadline) -> i32 {
    if matches!(failure, Failure::Unwanted) && deadline.is_over() {
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
