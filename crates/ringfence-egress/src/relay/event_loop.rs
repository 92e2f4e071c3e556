//! The relay thread: an epoll loop over all connections.

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

/// Epoll events taken per wait.
const EVENTS: usize = 256;
/// Epoll token of the wake fd.
const WAKE: u64 = 0;

/// State of the relay thread.
pub(super) struct RelayLoop {
    epoll: OwnedFd,
    shared: Arc<RelayShared>,
    limits: RelayLimits,
    tools: LaneResources,
    carried: HashMap<u64, RelayedConnection>,
    /// Connections that have more to do than one turn allows.
    again: VecDeque<u64>,
    due: BTreeSet<(Instant, u64)>,
    last: u64,
}

impl RelayLoop {
    pub(super) fn new(shared: Arc<RelayShared>, limits: RelayLimits) -> io::Result<RelayLoop> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &shared.wake_fd, EventData::new_u64(WAKE), EventFlags::IN)?;
        let tools = LaneResources::new();
        Ok(RelayLoop {
            epoll,
            shared,
            limits,
            tools,
            carried: HashMap::new(),
            again: VecDeque::new(),
            due: BTreeSet::new(),
            last: WAKE,
        })
    }

    /// Runs until the relay is stopped.
    pub(super) fn run(mut self) {
        // `splice` to a closed pipe or socket raises SIGPIPE and has no flag against it. Blocked in
        // this thread, the signal stays pending and harms nothing.
        let _ = ringfence_sys::signal::block(&ringfence_sys::signal::SignalSet::from_signals(&[
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
                // Epoll is broken; end all connections instead of hanging them.
                Err(_) => break,
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    WAKE => self.accept_pairs(),
                    token => self.handle_event(token, flags),
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
            self.end_overdue();
        }
        for pair in self.shared.close() {
            (pair.on_end)(RelayEnd { sent: 0, received: 0, reason: RelayEndReason::Stopped });
        }
        for (_, carried) in self.carried.drain() {
            carried.end(RelayEndReason::Stopped, &mut self.tools);
        }
        self.shared.set_count(0);
    }

    /// Epoll timeout; `None` waits for the next event.
    fn timeout(&self) -> Option<Timespec> {
        if !self.again.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let (first, _) = self.due.first()?;
        let left = first.saturating_duration_since(Instant::now()) + Duration::from_micros(100);
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) })
    }

    /// Takes over the pairs handed in meanwhile.
    fn accept_pairs(&mut self) {
        for pair in self.shared.take_pairs() {
            self.add(pair);
        }
    }

    fn add(&mut self, mut pair: RelayPair) {
        let ended = std::mem::replace(&mut pair.on_end, Box::new(drop));
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
                ended(RelayEnd { sent: 0, received: 0, reason: RelayEndReason::Broken(error) })
            }
        }
    }

    fn handle_event(&mut self, token: u64, flags: EventFlags) {
        let (serial, which) =
            (token >> 1, if token & 1 == 0 { RelaySide::Inside } else { RelaySide::Outside });
        // An event of its other side may have ended it just before.
        if let Some(carried) = self.carried.get_mut(&serial) {
            carried.record_events(which, flags);
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

    fn end_overdue(&mut self) {
        let now = Instant::now();
        while let Some((due, serial)) = self.due.first().copied()
            && due <= now
        {
            self.due.remove(&(due, serial));
            if let Some(carried) = self.carried.get(&serial) {
                let why = carried.timeout_reason();
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
            // A duplicate of the fd in another process would keep it in the epoll set.
            let _ = epoll::delete(&self.epoll, &side.socket);
        }
        self.shared.set_count(self.carried.len());
        carried.end(why, &mut self.tools);
    }
}

/// Epoll token of one side of a connection.
fn token(serial: u64, which: RelaySide) -> u64 {
    serial << 1 | u64::from(which == RelaySide::Outside)
}
