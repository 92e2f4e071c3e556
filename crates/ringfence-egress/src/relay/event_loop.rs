//! The thread that carries: it sleeps until the kernel has something for one of the connections.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::connection::{RelayAction, RelaySide, RelayedConnection};
use super::direction::LaneResources;
use super::{RelayEnd, RelayEndReason, RelayLimits, RelayPair, RelayShared};

/// Events that are taken at once.
const EVENTS: usize = 256;
/// The number under which the thread itself is woken up.
const BELL: u64 = 0;

/// What the thread knows.
pub(super) struct RelayLoop {
    epoll: OwnedFd,
    shared: Arc<RelayShared>,
    limits: RelayLimits,
    tools: LaneResources,
    carried: HashMap<u64, RelayedConnection>,
    /// Those that have more to do than their turn allowed.
    again: VecDeque<u64>,
    due: BTreeSet<(Instant, u64)>,
    last: u64,
}

impl RelayLoop {
    pub(super) fn new(shared: Arc<RelayShared>, limits: RelayLimits) -> io::Result<RelayLoop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &shared.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let tools = LaneResources::new();
        Ok(RelayLoop {
            epoll,
            shared,
            limits,
            tools,
            carried: HashMap::new(),
            again: VecDeque::new(),
            due: BTreeSet::new(),
            last: BELL,
        })
    }

    /// Carries until it is told to stop.
    pub(super) fn run(mut self) {
        // Writing to a pipe or socket that nobody reads sends a signal where `splice` does it,
        // and it has no flag against that. Pending for this thread alone, it disturbs nobody.
        let _ = ringfence_sys::signal::block(&ringfence_sys::signal::SignalSet::of(&[
            rustix::process::Signal::PIPE.as_raw(),
        ]));
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        while !self.shared.is_stopped() {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                // Nothing can be waited for any more; whoever is carried must not wait for ever.
                Err(_) => break,
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    BELL => self.take_in(),
                    token => self.hear(token, flags),
                }
            }
            for _ in 0..self.again.len() {
                if let Some(serial) = self.again.pop_front() {
                    self.carried
                        .get_mut(&serial)
                        .into_iter()
                        .for_each(|carried| carried.queued = false);
                    self.step(serial);
                }
            }
            self.end_late_ones();
        }
        for pair in self.shared.close() {
            (pair.ended)(RelayEnd { sent: 0, received: 0, why: RelayEndReason::Stopped });
        }
        for (_, carried) in self.carried.drain() {
            carried.end(RelayEndReason::Stopped, &mut self.tools);
        }
        self.shared.set_count(0);
    }

    /// How long to sleep; `None` is until something happens.
    fn timeout(&self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let (first, _) = self.due.first()?;
        let left = first.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Takes over what was handed in meanwhile.
    fn take_in(&mut self) {
        for pair in self.shared.taken() {
            self.add(pair);
        }
    }

    fn add(&mut self, mut pair: RelayPair) {
        let ended = std::mem::replace(&mut pair.ended, Box::new(drop));
        let carried = RelayedConnection::new(pair, &self.limits, Instant::now());
        self.last += 1;
        let serial = self.last;
        let listed = carried.and_then(|carried| {
            let flags = EventFlags::IN
                | EventFlags::PRI
                | EventFlags::OUT
                | EventFlags::RDHUP
                | EventFlags::ET;
            for (which, side) in
                [(RelaySide::Inside, &carried.inside), (RelaySide::Outside, &carried.outside)]
            {
                epoll::add(
                    &self.epoll,
                    &side.socket,
                    EventData::new_u64(token(serial, which)),
                    flags,
                )?;
            }
            Ok(carried)
        });
        match listed {
            Ok(mut carried) => {
                carried.ended = Some(ended);
                self.due.extend(carried.due.map(|due| (due, serial)));
                self.carried.insert(serial, carried);
                self.shared.set_count(self.carried.len());
                self.step(serial);
            }
            Err(error) => {
                ended(RelayEnd { sent: 0, received: 0, why: RelayEndReason::Broken(error) })
            }
        }
    }

    fn hear(&mut self, token: u64, flags: EventFlags) {
        let (serial, which) =
            (token >> 1, if token & 1 == 0 { RelaySide::Inside } else { RelaySide::Outside });
        // It may have ended by what was heard just before, of its other side.
        if let Some(carried) = self.carried.get_mut(&serial) {
            carried.hear(which, flags);
            self.step(serial);
        }
    }

    fn step(&mut self, serial: u64) {
        let Some(carried) = self.carried.get_mut(&serial) else { return };
        let before = carried.due;
        let next = carried.step(&self.limits, &mut self.tools, Instant::now());
        if carried.due != before {
            self.due.extend(carried.due.map(|due| (due, serial)));
            before.map(|due| self.due.remove(&(due, serial)));
        }
        match next {
            RelayAction::Wait => {}
            RelayAction::Again => {
                if !std::mem::replace(&mut carried.queued, true) {
                    self.again.push_back(serial);
                }
            }
            RelayAction::Over(why) => self.end(serial, why),
        }
    }

    fn end_late_ones(&mut self) {
        let now = Instant::now();
        while let Some((due, serial)) = self.due.first().copied()
            && due <= now
        {
            self.due.remove(&(due, serial));
            if let Some(carried) = self.carried.get(&serial) {
                let why = carried.late();
                self.end(serial, why);
            }
        }
    }

    fn end(&mut self, serial: u64, why: RelayEndReason) {
        let Some(carried) = self.carried.remove(&serial) else { return };
        if let Some(due) = carried.due {
            self.due.remove(&(due, serial));
        }
        for side in [&carried.inside, &carried.outside] {
            // A copy that somebody else has would keep it in the set.
            let _ = epoll::delete(&self.epoll, &side.socket);
        }
        self.shared.set_count(self.carried.len());
        carried.end(why, &mut self.tools);
    }
}

/// The number under which the kernel speaks of one side of a connection.
fn token(serial: u64, which: RelaySide) -> u64 {
    serial << 1 | u64::from(which == RelaySide::Outside)
}
