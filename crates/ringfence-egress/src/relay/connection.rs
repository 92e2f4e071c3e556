//! One connection that is carried: two sides, two lanes, and how it ends.

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
use crate::dial::outcome;

/// How long one who was refused may take to read why.
const FAREWELL: Duration = Duration::from_secs(2);
/// How much is in flight on this machine at most, in each direction; the kernel takes it twofold.
const IN_FLIGHT: usize = 384 * 1024;
/// When the one inside has said everything and hears nothing, it is asked so often whether it is
/// still there: if it is gone, nobody else would ever say so.
const ASKED_AFTER: Duration = Duration::from_secs(60);

/// A connection that is carried.
pub(super) struct RelayedConnection {
    pub(super) inside: RelayEndpoint,
    pub(super) outside: RelayEndpoint,
    outward: RelayDirection,
    inward: RelayDirection,
    phase: RelayPhase,
    /// When it has to have got further.
    pub(super) due: Option<Instant>,
    /// The one inside is asked whether it is still there.
    asked: bool,
    /// It waits for its next turn.
    pub(super) queued: bool,
    /// Who is told of the end.
    pub(super) ended: Option<Box<dyn FnOnce(RelayEnd) + Send>>,
}

enum RelayPhase {
    /// The side outside is not connected yet.
    Connecting,
    /// Bytes flow inwards, and outwards once they were looked at.
    Looking,
    Flowing,
    /// It was refused, and told of; the one inside may read why.
    Parting {
        answer: Vec<u8>,
    },
}

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelaySide {
    Inside,
    Outside,
}

/// What is to be done with a connection next.
pub(super) enum RelayAction {
    /// Wait for the kernel.
    Wait,
    /// Go on when others have had their turn.
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
            // What comes in pieces goes on in pieces: to wait for more is the business of those who
            // speak.
            let _ = sockopt::set_tcp_nodelay(socket, true);
            // What is urgent keeps its place among the rest; otherwise it would be left out.
            let _ = sockopt::set_socket_oobinline(socket, true);
        }
        make_near(&pair.inside);
        let peer = peer.flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
            make_near(&pair.outside);
        }
        let mut check = pair.check;
        let answers = check.as_mut().and_then(|check| check.answers());
        let outward = RelayDirection::checked(check, pair.said);
        let mut carried = RelayedConnection {
            inside: RelayEndpoint::new(pair.inside),
            outside: RelayEndpoint::new(pair.outside),
            phase: if connecting { RelayPhase::Connecting } else { RelayPhase::Looking },
            outward,
            inward: RelayDirection::checked(answers, Vec::new()),
            due: Some(now + if connecting { limits.connecting } else { limits.first }),
            asked: false,
            queued: false,
            ended: None,
        };
        if connecting {
            carried.outside.readable = false;
            carried.outside.writable = false;
        }
        Ok(carried)
    }

    /// Takes in what the kernel says of one side.
    pub(super) fn hear(&mut self, which: RelaySide, events: EventFlags) {
        let side = if which == RelaySide::Inside { &mut self.inside } else { &mut self.outside };
        let wrong = events.intersects(EventFlags::ERR | EventFlags::HUP);
        side.readable |= wrong || events.intersects(EventFlags::IN | EventFlags::RDHUP);
        side.writable |= wrong || events.contains(EventFlags::OUT);
        side.failed |= events.contains(EventFlags::ERR);
        side.urgent |= events.contains(EventFlags::PRI);
    }

    /// Does what can be done.
    pub(super) fn step(
        &mut self,
        limits: &RelayLimits,
        tools: &mut LaneResources,
        now: Instant,
    ) -> RelayAction {
        if matches!(self.phase, RelayPhase::Parting { .. }) {
            return self.part(tools);
        }
        if matches!(self.phase, RelayPhase::Connecting) && self.outside.writable {
            if let Err(error) = outcome(&self.outside.socket) {
                return RelayAction::Over(RelayEndReason::Unreachable(error));
            }
            self.phase = RelayPhase::Looking;
            self.due = Some(now + limits.first);
        }
        let mut outward = match self.outward.pump(&mut self.inside, &mut self.outside, tools) {
            Ok(stop) => stop,
            Err(fault) => return self.fail(RelaySide::Inside, fault, tools, now),
        };
        let inward = match self.inward.pump(&mut self.outside, &mut self.inside, tools) {
            Ok(stop) => stop,
            Err(fault) => return self.fail(RelaySide::Outside, fault, tools, now),
        };
        if self.inward.sight.has_looked() && self.outward.sight.look_again() {
            outward = match self.outward.pump(&mut self.inside, &mut self.outside, tools) {
                Ok(stop) => stop,
                Err(fault) => return self.fail(RelaySide::Inside, fault, tools, now),
            };
        }
        if matches!(self.phase, RelayPhase::Looking)
            && (self.outward.sight.is_judged() || self.outward.is_read())
        {
            self.phase = RelayPhase::Flowing;
            self.due = None;
        }
        if self.outward.is_shut() && self.inward.is_shut() {
            return RelayAction::Over(RelayEndReason::Closed);
        }
        if outward == DirectionStop::Turn || inward == DirectionStop::Turn {
            return RelayAction::Again;
        }
        self.look_for_failure()
    }

    /// An end that has failed and is not read any more, since nothing comes of it or nothing can
    /// be got rid of, would be noticed by nobody.
    fn look_for_failure(&mut self) -> RelayAction {
        for (which, side) in
            [(RelaySide::Inside, &mut self.inside), (RelaySide::Outside, &mut self.outside)]
        {
            if std::mem::take(&mut side.failed)
                && let Err(error) = outcome(&side.socket)
            {
                return RelayAction::Over(ending(which, error));
            }
        }
        if self.outward.is_shut() && !std::mem::replace(&mut self.asked, true) {
            let _ = sockopt::set_tcp_keepidle(&self.inside.socket, ASKED_AFTER);
            let _ = sockopt::set_socket_keepalive(&self.inside.socket, true);
        }
        RelayAction::Wait
    }

    /// What follows from a fault in the lane that is read at `source`.
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
            DirectionFault::Source(error) => RelayAction::Over(ending(source, error)),
            DirectionFault::Target(error) => RelayAction::Over(ending(target, error)),
            DirectionFault::Refused(objection) => {
                // Told before anything can be noticed of it inside.
                self.tell(RelayEndReason::Refused(objection.reason));
                self.phase = RelayPhase::Parting { answer: objection.answer };
                self.due = Some(now + FAREWELL);
                self.part(tools)
            }
        }
    }

    /// Tells the one inside why, and waits until it has read that: a socket that is closed while
    /// something was not read is reset, and what was on its way to the other end is lost.
    fn part(&mut self, tools: &mut LaneResources) -> RelayAction {
        let RelayPhase::Parting { answer } = &mut self.phase else { return RelayAction::Wait };
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

    /// What it means that the time is over.
    pub(super) fn late(&self) -> RelayEndReason {
        match &self.phase {
            RelayPhase::Connecting => RelayEndReason::Unreachable(Errno::TIMEDOUT.into()),
            RelayPhase::Parting { .. } => RelayEndReason::Closed,
            RelayPhase::Looking | RelayPhase::Flowing => RelayEndReason::Slow,
        }
    }

    /// Tells of the end, once.
    fn tell(&mut self, why: RelayEndReason) {
        if let Some(ended) = self.ended.take() {
            ended(RelayEnd { sent: self.outward.carried, received: self.inward.carried, why });
        }
    }

    /// Tells of the end and closes both sides. What did not end in order ends with a reset, so
    /// that nobody takes half of something for the whole.
    pub(super) fn end(mut self, why: RelayEndReason, tools: &mut LaneResources) {
        self.outward.clear(tools);
        self.inward.clear(tools);
        let reset: &[&RelayEndpoint] = match (&self.phase, &why) {
            // The one inside has been told in words, and what was let through before is whole.
            (RelayPhase::Parting { .. }, _) if self.outward.carried > 0 => &[],
            (RelayPhase::Parting { .. }, _) => &[&self.outside],
            (_, RelayEndReason::Closed) => &[],
            _ => &[&self.inside, &self.outside],
        };
        for side in reset {
            let _ = sockopt::set_socket_linger(side.socket.as_fd(), Some(Duration::ZERO));
        }
        self.tell(why);
    }
}

/// Prepares a socket whose other end is on this machine. There is no congestion on the way, and
/// what some hosts use against it (`bbr`) spaces out what is sent. There is no distance either,
/// so little has to be in flight: left alone, buffers grow to megabytes.
fn make_near(socket: &OwnedFd) {
    let _ = sockopt::set_tcp_congestion(socket, "reno");
    let _ = sockopt::set_socket_send_buffer_size(socket, IN_FLIGHT);
    let _ = sockopt::set_socket_recv_buffer_size(socket, IN_FLIGHT);
}

fn ending(which: RelaySide, error: io::Error) -> RelayEndReason {
    match which {
        RelaySide::Inside => RelayEndReason::Inside(error),
        RelaySide::Outside => RelayEndReason::Outside(error),
    }
}
