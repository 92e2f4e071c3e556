//! Carrying bytes between a socket inside and one outside.
//!
//! One thread serves all connections of a [`Relay`]. Bytes go from socket to pipe to socket
//! without being copied, and a pipe is lent only while something is in it. The end of one
//! direction is passed on as that, and a reset as a reset. What is slow at one side is not read
//! at the other. Urgent data is carried as any other, in its place and without being urgent.

mod carried;
mod check;
mod inlet;
mod lane;
mod pipes;
mod sight;
mod turn;

pub use check::{Check, Objection, Verdict};
pub use inlet::Inlet;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

/// Two sockets between which bytes are to be carried.
pub struct Pair {
    /// The one that a program in the sandbox speaks to.
    pub inside: OwnedFd,
    /// The one that leads out. It may still be connecting.
    pub outside: OwnedFd,
    /// What was read from inside before and has not gone out.
    pub said: Vec<u8>,
    /// Who looks at what is said from inside.
    pub check: Option<Box<dyn Check>>,
    /// Who is told of the end, on the thread that carries: it must not wait for anything.
    pub ended: Box<dyn FnOnce(End) + Send>,
}

impl Pair {
    /// A pair of which nothing was read, that nobody looks at and whose end is told to nobody.
    pub fn new(inside: OwnedFd, outside: OwnedFd) -> Pair {
        Pair { inside, outside, said: Vec::new(), check: None, ended: Box::new(drop) }
    }
}

/// What became of a connection.
#[derive(Debug)]
pub struct End {
    /// Bytes that went out.
    pub sent: u64,
    /// Bytes that came in.
    pub received: u64,
    /// Why it ended.
    pub why: Ending,
}

/// Why a connection ended.
#[derive(Debug)]
pub enum Ending {
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

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Closed => out.write_str("closed by both"),
            Ending::Inside(error) => write!(out, "broken off inside: {error}"),
            Ending::Outside(error) => write!(out, "broken off outside: {error}"),
            Ending::Unreachable(error) => write!(out, "not reached: {error}"),
            Ending::Refused(reason) => out.write_str(reason),
            Ending::Slow => out.write_str("nothing was said in time that says what it is"),
            Ending::Stopped => out.write_str("the sandbox has ended"),
            Ending::Broken(error) => write!(out, "cannot be carried: {error}"),
        }
    }
}

/// How long things may take. A connection that was let through may be idle for ever.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From being connected to having said what can be judged; only where somebody looks.
    pub first: Duration,
    /// For the side outside to be connected.
    pub connecting: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { first: Duration::from_secs(30), connecting: Duration::from_secs(30) }
    }
}

/// A thread that carries. When it is closed or dropped, all connections end.
pub struct Relay {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Relay {
    /// Starts the thread.
    pub fn start(limits: Limits) -> io::Result<Relay> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            bell,
            pairs: Mutex::new(Some(Vec::new())),
            stopped: AtomicBool::new(false),
            count: AtomicUsize::new(0),
        });
        let turns = turn::Turns::new(Arc::clone(&shared), limits)?;
        let thread = thread::Builder::new().name("relay".into()).spawn(move || turns.run())?;
        Ok(Relay { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Carries `pair` until it ends.
    pub fn carry(&self, pair: Pair) {
        match self.shared.pairs().as_mut() {
            Some(pairs) => pairs.push(pair),
            None => return (pair.ended)(End { sent: 0, received: 0, why: Ending::Stopped }),
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

impl Drop for Relay {
    fn drop(&mut self) {
        self.close();
    }
}

/// What the thread and those who hand in have in common.
struct Shared {
    bell: OwnedFd,
    /// What was handed in; `None` when nobody takes it any more.
    pairs: Mutex<Option<Vec<Pair>>>,
    stopped: AtomicBool,
    count: AtomicUsize,
}

impl Shared {
    fn ring(&self) {
        // It can only be full, and then it has rung.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// What was handed in since, and the bell silent.
    fn taken(&self) -> Vec<Pair> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.pairs().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What was handed in since; nothing can be handed in after it.
    fn close(&self) -> Vec<Pair> {
        self.pairs().take().unwrap_or_default()
    }

    fn pairs(&self) -> MutexGuard<'_, Option<Vec<Pair>>> {
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
