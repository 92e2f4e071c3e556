//! Questions that wait until somebody has decided.
//!
//! Each name has one thread that waits for the gate, however many ask for it. A resolver that
//! loses patience asks again in the same words: that is the same question.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::query::Query;
use super::{NameGate, Verdict};
use ringfence_policy::Name;

/// How many names can wait at once.
const NAMES: usize = 16;
/// How many questions about one name can wait.
const QUESTIONS: usize = 32;

/// Who is to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whence {
    Datagram(SocketAddr),
    /// By the number of the connection: no two have the same.
    Stream(u64),
}

/// A question that waits.
pub(super) struct Waiting {
    pub(super) query: Query,
    pub(super) whence: Whence,
}

/// Names about which somebody is asked.
pub(super) struct Waits {
    names: Vec<(Name, Vec<Waiting>)>,
    sender: Sender<(Name, Verdict)>,
    decided: Receiver<(Name, Verdict)>,
    /// Called on another thread when something was decided.
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// What became of a question that was to wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    Waits,
    /// It was there already.
    Again,
    /// Too many wait.
    Crowded,
}

impl Waits {
    pub(super) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        let (sender, decided) = channel();
        Self { names: Vec::new(), sender, decided, wake }
    }

    pub(super) fn enter(&mut self, name: Name, waiting: Waiting, gate: &Arc<dyn NameGate>) -> Entered {
        if let Some((_, all)) = self.names.iter_mut().find(|(known, _)| *known == name) {
            if all.iter().any(|other| other.query == waiting.query && other.whence == waiting.whence) {
                return Entered::Again;
            }
            if all.len() == QUESTIONS {
                return Entered::Crowded;
            }
            all.push(waiting);
            return Entered::Waits;
        }
        if self.names.len() == NAMES || self.begin(name.clone(), gate).is_err() {
            return Entered::Crowded;
        }
        self.names.push((name, vec![waiting]));
        Entered::Waits
    }

    /// The next name that was decided, with everybody who waits for it.
    pub(super) fn next_decided(&mut self) -> Option<(Name, Verdict, Vec<Waiting>)> {
        let (name, verdict) = self.decided.try_recv().ok()?;
        let at = self.names.iter().position(|(known, _)| *known == name)?;
        let (name, all) = self.names.swap_remove(at);
        Some((name, verdict, all))
    }

    fn begin(&self, name: Name, gate: &Arc<dyn NameGate>) -> std::io::Result<()> {
        let (gate, sender, wake) = (gate.clone(), self.sender.clone(), self.wake.clone());
        let wait = move || {
            // A gate that panics has not said yes.
            let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gate.wait(&name)));
            // Nobody listens any more once the server has ended.
            let _ = sender.send((name, asked.unwrap_or(Verdict::Shut)));
            wake();
        };
        thread::Builder::new().name("lookup".into()).stack_size(256 * 1024).spawn(wait).map(drop)
    }
}
