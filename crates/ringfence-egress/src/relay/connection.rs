//! One relayed connection: two sockets, two directions, and its end.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::direction::{
    DirectionFault, DirectionStop, LaneResources, RelayDirection, RelayEndpoint,
};
use super::{RelayEnd, RelayEndReason, RelayLimits, RelayPair};
use crate::dial::connect_result;

/// Time that a refused program has to read the reason.
const REFUSAL_GRACE: Duration = Duration::from_secs(2);
/// Maximum of bytes in flight per direction on this machine; the kernel doubles it.
const IN_FLIGHT: usize = 384 * 1024;
/// Keepalive idle time of the inside socket once the program has shut down its sending side and the
/// host is silent: nothing else would report a dead peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// One relayed connection.
pub(super) struct RelayedConnection {
    pub(super) inside: RelayEndpoint,
    pub(super) outside: RelayEndpoint,
    outward: RelayDirection,
    inward: RelayDirection,
    phase: RelayPhase,
    /// Deadline of the current phase.
    pub(super) due: Option<Instant>,
    /// Set once keepalive is enabled on the inside socket.
    keepalive_enabled: bool,
    /// Set while it is queued for another turn.
    pub(super) queued: bool,
    /// Called when the connection ends.
    pub(super) ended: Option<Box<dyn FnOnce(RelayEnd) + Send>>,
}

enum RelayPhase {
    /// The outside socket is not connected yet.
    Connecting,
    /// Bytes flow inwards, and outwards once they are checked.
    Checking,
    Relaying,
    /// Refused and reported; the program may read the reason.
    Refused {
        answer: Vec<u8>,
    },
}

/// Side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelaySide {
    Inside,
    Outside,
}

/// Next step of the event loop for a connection.
pub(super) enum RelayAction {
    /// Wait for an epoll event.
    Wait,
    /// Run again after the other connections.
    Again,
    Over(RelayEndReason),
}

impl RelayedConnection {
    pub(super) fn new(
        pair: RelayPair,
        limits: &RelayLimits,
        now: Instant,
    ) -> io::Result<RelayedConnection> {
        let peer = match rustix::net::getpeername(&pair.outside) {
            Ok(peer) => Some(peer),
            Err(Errno::NOTCONN) => None,
            Err(error) => return Err(error.into()),
        };
        let connecting = peer.is_none();
        for socket in [&pair.inside, &pair.outside] {
            rustix::io::ioctl_fionbio(socket, true)?;
            // Small writes are passed on as they come: batching is up to the two endpoints.
            let _ = sockopt::set_tcp_nodelay(socket, true);
            // Urgent data stays in the stream; otherwise it would be lost.
            let _ = sockopt::set_socket_oobinline(socket, true);
        }
        configure_local_socket(&pair.inside);
        let peer = peer.flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
            configure_local_socket(&pair.outside);
        }
        let mut check = pair.check;
        let answers = check.as_mut().and_then(|check| check.opposite_check());
        let outward = RelayDirection::checked(check, pair.early_bytes);
        let mut carried = RelayedConnection {
            inside: RelayEndpoint::new(pair.inside),
            outside: RelayEndpoint::new(pair.outside),
            phase: if connecting { RelayPhase::Connecting } else { RelayPhase::Checking },
            outward,
            inward: RelayDirection::checked(answers, Vec::new()),
            due: Some(now + if connecting { limits.connecting } else { limits.first_bytes }),
            keepalive_enabled: false,
            queued: false,
            ended: None,
        };
        if connecting {
            carried.outside.readable = false;
            carried.outside.writable = false;
        }
        Ok(carried)
    }

    /// Records the epoll events of one side.
    pub(super) fn record_events(&mut self, which: RelaySide, events: EventFlags) {
        let side = if which == RelaySide::Inside { &mut self.inside } else { &mut self.outside };
        let wrong = events.intersects(EventFlags::ERR | EventFlags::HUP);
        side.readable |= wrong || events.intersects(EventFlags::IN | EventFlags::RDHUP);
        side.writable |= wrong || events.contains(EventFlags::OUT);
        side.failed |= events.contains(EventFlags::ERR);
        side.urgent |= events.contains(EventFlags::PRI);
    }

    /// Makes all progress that is possible now.
    pub(super) fn step(
        &mut self,
        limits: &RelayLimits,
        tools: &mut LaneResources,
        now: Instant,
    ) -> RelayAction {
        if matches!(self.phase, RelayPhase::Refused { .. }) {
            return self.finish_refused(tools);
        }
        if matches!(self.phase, RelayPhase::Connecting) && self.outside.writable {
            if let Err(error) = connect_result(&self.outside.socket) {
                return RelayAction::Over(RelayEndReason::Unreachable(error));
            }
            self.phase = RelayPhase::Checking;
            self.due = Some(now + limits.first_bytes);
        }
        let mut outward = match self.outward.pump(&mut self.inside, &mut self.outside, tools) {
            Ok(stop) => stop,
            Err(fault) => return self.fail(RelaySide::Inside, fault, tools, now),
        };
        let inward = match self.inward.pump(&mut self.outside, &mut self.inside, tools) {
            Ok(stop) => stop,
            Err(fault) => return self.fail(RelaySide::Outside, fault, tools, now),
        };
        if self.inward.inspector.take_has_checked() && self.outward.inspector.mark_for_recheck() {
            outward = match self.outward.pump(&mut self.inside, &mut self.outside, tools) {
                Ok(stop) => stop,
                Err(fault) => return self.fail(RelaySide::Inside, fault, tools, now),
            };
        }
        if matches!(self.phase, RelayPhase::Checking)
            && (self.outward.inspector.is_judged() || self.outward.is_at_eof())
        {
            self.phase = RelayPhase::Relaying;
            self.due = None;
        }
        if self.outward.is_closed() && self.inward.is_closed() {
            return RelayAction::Over(RelayEndReason::Closed);
        }
        if outward == DirectionStop::Turn || inward == DirectionStop::Turn {
            return RelayAction::Again;
        }
        self.look_for_failure()
    }

    /// Reports the error of a failed socket that is not read any more (nothing left to read, or no
    /// space to write): no other code would notice it.
    fn look_for_failure(&mut self) -> RelayAction {
        for (which, side) in
            [(RelaySide::Inside, &mut self.inside), (RelaySide::Outside, &mut self.outside)]
        {
            if std::mem::take(&mut side.failed)
                && let Err(error) = connect_result(&side.socket)
            {
                return RelayAction::Over(reason_for_side(which, error));
            }
        }
        if self.outward.is_closed() && !std::mem::replace(&mut self.keepalive_enabled, true) {
            let _ = sockopt::set_tcp_keepidle(&self.inside.socket, KEEPALIVE_IDLE);
            let _ = sockopt::set_socket_keepalive(&self.inside.socket, true);
        }
        RelayAction::Wait
    }

    /// Handles a fault in the direction read from `source`.
    fn fail(
        &mut self,
        source: RelaySide,
        fault: DirectionFault,
        tools: &mut LaneResources,
        now: Instant,
    ) -> RelayAction {
        let target =
            if source == RelaySide::Inside { RelaySide::Outside } else { RelaySide::Inside };
        match fault {
            DirectionFault::Source(error) => RelayAction::Over(reason_for_side(source, error)),
            DirectionFault::Target(error) => RelayAction::Over(reason_for_side(target, error)),
            DirectionFault::Refused(objection) => {
                // Reported before the program can notice it.
                self.report_end(RelayEndReason::Refused(objection.reason));
                self.phase = RelayPhase::Refused { answer: objection.answer };
                self.due = Some(now + REFUSAL_GRACE);
                self.finish_refused(tools)
            }
        }
    }

    /// Sends the reason to the program and waits until it has read it: a socket that is closed with
    /// unread data is reset, and data on its way to the peer is lost.
    fn finish_refused(&mut self, tools: &mut LaneResources) -> RelayAction {
        let RelayPhase::Refused { answer } = &mut self.phase else { return RelayAction::Wait };
        while !answer.is_empty() {
            match send(&self.inside.socket, answer, SendFlags::NOSIGNAL) {
                Ok(count) => drop(answer.drain(..count)),
                Err(Errno::AGAIN) => return RelayAction::Wait,
                Err(_) => return RelayAction::Over(RelayEndReason::Closed),
            }
        }
        let _ = shutdown(&self.inside.socket, Shutdown::Write);
        for _ in 0..64 {
            match recv(&self.inside.socket, tools.scratch.as_mut_slice(), RecvFlags::empty()) {
                Ok((_, count)) if count > 0 => {}
                Err(Errno::AGAIN) => return RelayAction::Wait,
                _ => return RelayAction::Over(RelayEndReason::Closed),
            }
        }
        RelayAction::Again
    }

    /// End reason when the deadline has passed.
    pub(super) fn timeout_reason(&self) -> RelayEndReason {
        match &self.phase {
            RelayPhase::Connecting => RelayEndReason::Unreachable(Errno::TIMEDOUT.into()),
            RelayPhase::Refused { .. } => RelayEndReason::Closed,
            RelayPhase::Checking | RelayPhase::Relaying => RelayEndReason::Slow,
        }
    }

    /// Calls the end callback, once.
    fn report_end(&mut self, why: RelayEndReason) {
        if let Some(ended) = self.ended.take() {
            ended(RelayEnd {
                sent: self.outward.carried,
                received: self.inward.carried,
                reason: why,
            });
        }
    }

    /// Calls the end callback and closes both sockets. An abnormal end resets them, so that neither
    /// peer takes a part for the whole.
    pub(super) fn end(mut self, why: RelayEndReason, tools: &mut LaneResources) {
        self.outward.clear(tools);
        self.inward.clear(tools);
        let reset: &[&RelayEndpoint] = match (&self.phase, &why) {
            // The program got the reason, and the data let through before is complete.
            (RelayPhase::Refused { .. }, _) if self.outward.carried > 0 => &[],
            (RelayPhase::Refused { .. }, _) => &[&self.outside],
            (_, RelayEndReason::Closed) => &[],
            _ => &[&self.inside, &self.outside],
        };
        for side in reset {
            let _ = sockopt::set_socket_linger(side.socket.as_fd(), Some(Duration::ZERO));
        }
        self.report_end(why);
    }
}

/// Configures a socket whose peer is on this machine. There is no congestion, and `bbr` (the
/// default of some hosts) would pace the data. Little has to be in flight: without a limit the
/// buffers grow to megabytes.
fn configure_local_socket(socket: &OwnedFd) {
    let _ = sockopt::set_tcp_congestion(socket, "reno");
    let _ = sockopt::set_socket_send_buffer_size(socket, IN_FLIGHT);
    let _ = sockopt::set_socket_recv_buffer_size(socket, IN_FLIGHT);
}

fn reason_for_side(which: RelaySide, error: io::Error) -> RelayEndReason {
    match which {
        RelaySide::Inside => RelayEndReason::Inside(error),
        RelaySide::Outside => RelayEndReason::Outside(error),
    }
}
