//! Minds the signals of those who wait to be connected.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence_enforce::apply::SignalCheck;

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(25);

/// Those who wait.
#[derive(Default)]
struct WaiterList {
    waiting: Mutex<(Vec<SignalCheck>, bool)>,
    changed: Condvar,
}

/// A thread that looks at them, as long as there are any. It ends when this is dropped.
pub(super) struct SignalPoller {
    list: Arc<WaiterList>,
    thread: Option<JoinHandle<()>>,
}

impl SignalPoller {
    pub(super) fn start() -> std::io::Result<Self> {
        let list = Arc::<WaiterList>::default();
        let looked_at = list.clone();
        let thread = thread::Builder::new()
            .name("minds".into())
            .stack_size(super::STACK)
            .spawn(move || looked_at.look())?;
        Ok(Self { list, thread: Some(thread) })
    }

    /// One more.
    pub(super) fn add(&self, minder: SignalCheck) {
        self.list.waiting.lock().unwrap_or_else(PoisonError::into_inner).0.push(minder);
        self.list.changed.notify_one();
    }
}

impl WaiterList {
    fn look(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while !waiting.1 {
            if waiting.0.is_empty() {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Most are connected before they are looked at once.
            waiting = self
                .changed
                .wait_timeout_while(waiting, LOOK, |(_, is_over)| !*is_over)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            waiting.0.retain(SignalCheck::mind);
        }
    }
}

impl Drop for SignalPoller {
    fn drop(&mut self) {
        self.list.waiting.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.list.changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
