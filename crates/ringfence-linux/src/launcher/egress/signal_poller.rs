//! Polls for signals that interrupt callers in `connect`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::apply::SignalCheck;
use crate::locks::lock;

/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Callers that wait.
#[derive(Default)]
struct WaiterList {
    waiting: Mutex<(Vec<SignalCheck>, bool)>,
    changed: Condvar,
}

/// Thread that polls while callers wait. It ends when this is dropped.
pub(super) struct SignalPoller {
    list: Arc<WaiterList>,
    thread: Option<JoinHandle<()>>,
}

impl SignalPoller {
    pub(super) fn start() -> std::io::Result<Self> {
        let list = Arc::<WaiterList>::default();
        let polled = list.clone();
        let thread = thread::Builder::new()
            .name("signal-poll".into())
            .stack_size(super::STACK)
            .spawn(move || polled.poll_loop())?;
        Ok(Self { list, thread: Some(thread) })
    }

    /// Adds a caller.
    pub(super) fn add(&self, check: SignalCheck) {
        lock(&self.list.waiting).0.push(check);
        self.list.changed.notify_one();
    }
}

impl WaiterList {
    fn poll_loop(&self) {
        let mut waiting = lock(&self.waiting);
        while !waiting.1 {
            if waiting.0.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Most callers are connected before the first poll.
            waiting = self
                .changed
                .wait_timeout_while(waiting, POLL_INTERVAL, |(_, is_over)| !*is_over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            waiting.0.retain(SignalCheck::check);
        }
    }
}

impl Drop for SignalPoller {
    fn drop(&mut self) {
        lock(&self.list.waiting).1 = true;
        self.list.changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
