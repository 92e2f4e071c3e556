//! Carrying bytes between a socket inside and one outside.
//!
//! One thread serves all connections of a [`Relay`]. Bytes go from socket to pipe to socket
//! without being copied, and a pipe is lent only while something is in it. The end of one
//! direction is passed on as that, and a reset as a reset. What is slow at one side is not read
//! at the other. Urgent data is carried as any other, in its place and without being urgent.

mod check;
mod connection;
mod direction;
mod event_loop;
mod inlet;
mod inspect;
mod pipes;

pub use check::{StreamCheck, StreamObjection, StreamVerdict};
pub use inlet::LoopbackInlet;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

/// Two sockets between which bytes are to be carried.
pub struct RelayPair {
    /// The one that a program in the sandbox speaks to.
    pub inside: OwnedFd,
    /// The one that leads out. It may still be connecting.
    pub outside: OwnedFd,
    /// What was read from inside before and has not gone out.
    pub said: Vec<u8>,
    /// Who looks at what is said from inside.
    pub check: Option<Box<dyn StreamCheck>>,
    /// Who is told of the end, on the thread that carries: it must not wait for anything.
    pub ended: Box<dyn FnOnce(RelayEnd) + Send>,
}

impl RelayPair {
    /// A pair of which nothing was read, that nobody looks at and whose end is told to nobody.
    pub fn new(inside: OwnedFd, outside: OwnedFd) -> RelayPair {
        RelayPair { inside, outside, said: Vec::new(), check: None, ended: Box::new(drop) }
    }
}

/// What became of a connection.
#[derive(Debug)]
pub struct RelayEnd {
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// Why it ended.
    pub why: RelayEndReason,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum RelayEndReason {
    /// Both have said everything.
    Closed,
    /// The one inside broke it off.
    Inside(io::Error),
    /// The one outside broke it off.
    Outside(io::Error),
    /// Nobody was there outside.
    Unreachable(io::Error),
    /// What was said first may not be said.
    Refused(String),
    /// Nothing was said that could be judged, for too long.
    Slow,
    /// Nobody carries any more.
    Stopped,
    /// It could not be begun.
    Broken(io::Error),
}

impl fmt::Display for RelayEndReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayEndReason::Closed => out.write_str("closed by both"),
            RelayEndReason::Inside(error) => write!(out, "broken off inside: {error}"),
            RelayEndReason::Outside(error) => write!(out, "broken off outside: {error}"),
            RelayEndReason::Unreachable(error) => write!(out, "not reached: {error}"),
            RelayEndReason::Refused(reason) => out.write_str(reason),
            RelayEndReason::Slow => out.write_str("nothing was said in time that says what it is"),
            RelayEndReason::Stopped => out.write_str("the sandbox has ended"),
            RelayEndReason::Broken(error) => write!(out, "cannot be carried: {error}"),
        }
    }
}

/// How long things may take. A connection that was let through may be idle for ever.
#[derive(Debug, Clone, Copy)]
pub struct RelayLimits {
    /// From being connected to having said what can be judged; only where somebody looks.
    pub first: Duration,
    /// For the side outside to be connected.
    pub connecting: Duration,
}

impl Default for RelayLimits {
    fn default() -> RelayLimits {
        RelayLimits { first: Duration::from_secs(30), connecting: Duration::from_secs(30) }
    }
}

/// A thread that carries. When it is closed or dropped, all connections end.
pub struct SpliceRelay {
    shared: Arc<RelayShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SpliceRelay {
    /// Starts the thread.
    pub fn start(limits: RelayLimits) -> io::Result<SpliceRelay> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(RelayShared {
            bell,
            pairs: Mutex::new(Some(Vec::new())),
            stopped: AtomicBool::new(false),
            count: AtomicUsize::new(0),
        });
        let turns = event_loop::RelayLoop::new(Arc::clone(&shared), limits)?;
        let thread = thread::Builder::new().name("relay".into()).spawn(move || turns.run())?;
        Ok(SpliceRelay { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Carries `pair` until it ends.
    pub fn carry(&self, pair: RelayPair) {
        match self.shared.pairs().as_mut() {
            Some(pairs) => pairs.push(pair),
            None => {
                return (pair.ended)(RelayEnd {
                    sent: 0,
                    received: 0,
                    why: RelayEndReason::Stopped,
                });
            }
        }
        self.shared.ring();
    }

    /// Ends all connections, whoever else knows this relay; everybody who is to be told of that
    /// has been when it returns. What is handed in later ends at once.
    pub fn close(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.ring();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last to let go of it may be the thread itself, by way of somebody it told of an end.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }

    /// How many connections are carried.
    pub fn count(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }
}

impl Drop for SpliceRelay {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread and those who hand in have in common.
struct RelayShared {
    bell: OwnedFd,
    /// What was handed in; `None` when nobody takes it any more.
    pairs: Mutex<Option<Vec<RelayPair>>>,
    stopped: AtomicBool,
    count: AtomicUsize,
}

impl RelayShared {
    fn ring(&self) {
        // It can only be full, and then it has rung.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What was handed in since, and the bell silent.
    fn taken(&self) -> Vec<RelayPair> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.pairs().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was handed in since; nothing can be handed in after it.
    fn close(&self) -> Vec<RelayPair> {
        self.pairs().take().unwrap_or_default()
    }

    fn pairs(&self) -> MutexGuard<'_, Option<Vec<RelayPair>>> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    fn set_count(&self, count: usize) {
        self.count.store(count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
