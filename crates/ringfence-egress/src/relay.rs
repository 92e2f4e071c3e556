//! Relays bytes between a socket inside the sandbox and one outside.
//!
//! One thread serves all connections of a [`SpliceRelay`]. Bytes are spliced from socket to pipe to
//! socket without a copy; a connection holds a pipe only while bytes are in it. A half-close is
//! passed on as a half-close, a reset as a reset. Backpressure works in both directions. Urgent
//! data is forwarded in order, as normal data.

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

/// Two sockets to relay between.
pub struct RelayPair {
    /// Socket to the program in the sandbox.
    pub inside: OwnedFd,
    /// Socket to the host. It may still be connecting.
    pub outside: OwnedFd,
    /// Bytes already read from inside and not sent yet.
    pub early_bytes: Vec<u8>,
    /// Check of the bytes sent from inside, if any.
    pub check: Option<Box<dyn StreamCheck>>,
    /// Called when the connection ends, on the relay thread: it must not block.
    pub on_end: Box<dyn FnOnce(RelayEnd) + Send>,
}

impl RelayPair {
    /// A pair without early bytes, check or end callback.
    pub fn new(inside: OwnedFd, outside: OwnedFd) -> RelayPair {
        RelayPair { inside, outside, early_bytes: Vec::new(), check: None, on_end: Box::new(drop) }
    }
}

/// Result of a connection.
#[derive(Debug)]
pub struct RelayEnd {
    /// Bytes sent out.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Reason for the end.
    pub reason: RelayEndReason,
}

/// Reason why a connection ended.
#[derive(Debug)]
pub enum RelayEndReason {
    /// Both sides closed.
    Closed,
    /// The inside socket failed.
    Inside(io::Error),
    /// The outside socket failed.
    Outside(io::Error),
    /// The outside connect failed.
    Unreachable(io::Error),
    /// The check refused the bytes.
    Refused(String),
    /// The first bytes did not come, or could not be judged, within the time limit.
    Slow,
    /// The relay stopped.
    Stopped,
    /// The relay could not be set up.
    Broken(io::Error),
}

impl fmt::Display for RelayEndReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayEndReason::Closed => out.write_str("closed by both sides"),
            RelayEndReason::Inside(error) => {
                write!(out, "connection to the sandboxed program failed: {error}")
            }
            RelayEndReason::Outside(error) => write!(out, "connection to the host failed: {error}"),
            RelayEndReason::Unreachable(error) => write!(out, "cannot connect: {error}"),
            RelayEndReason::Refused(reason) => out.write_str(reason),
            RelayEndReason::Slow => out.write_str("protocol not recognized within the time limit"),
            RelayEndReason::Stopped => out.write_str("the sandbox has ended"),
            RelayEndReason::Broken(error) => write!(out, "cannot relay: {error}"),
        }
    }
}

/// Time limits. A connection that passed its check may be idle forever.
#[derive(Debug, Clone, Copy)]
pub struct RelayLimits {
    /// From connected to judged first bytes; applies only with a check.
    pub first_bytes: Duration,
    /// Limit for the outside connect.
    pub connecting: Duration,
}

impl Default for RelayLimits {
    fn default() -> RelayLimits {
        RelayLimits { first_bytes: Duration::from_secs(30), connecting: Duration::from_secs(30) }
    }
}

/// Relay thread. Closing or dropping it ends all connections.
pub struct SpliceRelay {
    shared: Arc<RelayShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl SpliceRelay {
    /// Starts the thread.
    pub fn start(limits: RelayLimits) -> io::Result<SpliceRelay> {
        let wake_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(RelayShared {
            wake_fd,
            pairs: Mutex::new(Some(Vec::new())),
            stopped: AtomicBool::new(false),
            count: AtomicUsize::new(0),
        });
        let relay_loop = event_loop::RelayLoop::new(Arc::clone(&shared), limits)?;
        let thread = thread::Builder::new().name("relay".into()).spawn(move || relay_loop.run())?;
        Ok(SpliceRelay { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Relays `pair` until it ends.
    pub fn relay(&self, pair: RelayPair) {
        match self.shared.pairs().as_mut() {
            Some(pairs) => pairs.push(pair),
            None => {
                return (pair.on_end)(RelayEnd {
                    sent: 0,
                    received: 0,
                    reason: RelayEndReason::Stopped,
                });
            }
        }
        self.shared.wake();
    }

    /// Ends all connections and joins the thread, even if other handles exist; all end callbacks
    /// have run when it returns. A pair handed in later ends at once.
    pub fn close(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The relay thread itself can drop the last handle, through an end callback.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != thread::current().id())
        {
            let _ = thread.join();
        }
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.shared.count.load(Ordering::Relaxed)
    }
}

impl Drop for SpliceRelay {
    fn drop(&mut self) {
        self.close();
    }
}

/// State shared by the relay thread and its callers.
struct RelayShared {
    wake_fd: OwnedFd,
    /// Pairs handed in; `None` once the relay has stopped.
    pairs: Mutex<Option<Vec<RelayPair>>>,
    stopped: AtomicBool,
    count: AtomicUsize,
}

impl RelayShared {
    fn wake(&self) {
        // The write fails only if the counter is full, and then the thread is woken anyway.
        let _ = rustix::io::write(&self.wake_fd, &1_u64.to_ne_bytes());
    }

    /// Takes the pairs handed in since the last call, and clears the eventfd.
    fn take_pairs(&self) -> Vec<RelayPair> {
        let _ = rustix::io::read(&self.wake_fd, &mut [0; 8]);
        self.pairs().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes the remaining pairs and accepts no more.
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
