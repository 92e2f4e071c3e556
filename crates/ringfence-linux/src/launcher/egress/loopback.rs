//! The loopback of the sandbox, and that of the host.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::apply::{PendingConnect, has_loopback_listener};
use ringfence_api::Denial;
use ringfence_egress::dial::{DialHost, DialPatience, connect_duplicate};
use ringfence_policy::{HostDecision, HostTarget, NetworkRules};
use rustix::fs::OFlags;
use rustix::net::sockopt::Timeout;

use super::dial_goal::DialGoal;
use super::gate::{EgressCaller, denial};
use super::{EgressServer, socket_state};

impl EgressServer {
    /// Connects a program to its own loopback, or to the host's if that is open.
    pub(super) fn loopback(&self, program: PendingConnect, port: u16) {
        let decision = self.gate.hosts_loopback(program.destination().ip().to_canonical(), port);
        if decision.is_open() {
            if let Some(number) = socket_state::connect_errno(program.socket()) {
                return program.fail(number);
            }
            let host = if program.destination().is_ipv6()
                && !program.destination().ip().to_canonical().is_ipv4()
            {
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])
            } else {
                IpAddr::from([127, 0, 0, 1])
            };
            let (host, caller) = (DialHost::Address(host), EgressCaller::from_program(&program));
            let goal = DialGoal {
                host,
                port,
                judge: &|_| Ok(()),
                caller,
                decision: &decision,
                injection: None,
            };
            return self.dial_and_replace_fd(program, &goal);
        }
        // Its own socket, in its own network. If only the host serves that port, the program
        // probably meant the host, so a denial is recorded.
        let Some(result) = connect(&program) else { return };
        let is_refused = program.is_unserved() && is_refused_inside(&result, program.socket());
        if is_refused && has_loopback_listener(port) {
            self.gate.record_denial(&as_localhost(decision), &EgressCaller::from_program(&program));
        }
        match result {
            Ok(()) => drop(program.succeed()),
            Err(error) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// The denial of a connection to a port where nothing in the sandbox listens; `None` if nothing on
/// the host does either: then the failure is the program's own.
pub(crate) fn host_port_denial(
    rules: &NetworkRules,
    port: u16,
    caller: &EgressCaller,
) -> Option<Denial> {
    let decision = rules.decide_host_loopback(Ipv4Addr::LOCALHOST.into(), port);
    (!decision.is_open() && has_loopback_listener(port))
        .then(|| denial(&as_localhost(decision), caller))
}

/// The same decision about `localhost`: programs try both loopback addresses, and a rule opens
/// both.
fn as_localhost(decision: HostDecision) -> HostDecision {
    match HostTarget::new("localhost") {
        Ok(host) => HostDecision { host, ..decision },
        Err(_) => decision,
    }
}

/// Connects a program's own socket in its own network.
pub(super) fn connect_inside(program: PendingConnect) {
    match connect(&program) {
        Some(Ok(())) => drop(program.succeed()),
        Some(Err(error)) => program.fail(error.raw_os_error().unwrap_or(libc::EIO)),
        None => {}
    }
}

/// Connects, and returns the result; `None` if the program has stopped waiting.
fn connect(program: &PendingConnect) -> Option<io::Result<()>> {
    let (socket, to) = (program.socket(), program.destination());
    let is_blocking =
        rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK));
    if !is_blocking {
        return Some(rustix::net::connect(socket, &to).map_err(Into::into));
    }
    let limit = rustix::net::sockopt::socket_timeout(socket, Timeout::Send).ok().flatten();
    // The kernel itself gives up after about two minutes.
    let end = Instant::now() + limit.unwrap_or(Duration::from_secs(3600));
    let result = connect_duplicate(socket, to, &DialPatience::new(end, &|| program.is_waiting()));
    program.is_waiting().then_some(result)
}

/// True if no process in the sandbox listens there. On a loopback the result is known at once, also
/// for a nonblocking socket.
fn is_refused_inside(result: &io::Result<()>, socket: BorrowedFd<'_>) -> bool {
    match result.as_ref().err().and_then(io::Error::raw_os_error) {
        Some(libc::ECONNREFUSED) => true,
        Some(libc::EINPROGRESS) => rustix::net::getpeername(socket).is_err(),
        _ => false,
    }
}
