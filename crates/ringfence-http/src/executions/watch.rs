//! The observable side of a command: its output, its changes and its cancellation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_provider::Interrupter;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::OutputBuffer;
use crate::error::ProblemJson;
use crate::tenants::lock;

/// The observable side of a command, in a skill or a sandbox.
pub(crate) struct CommandWatch {
    /// Its output. A reader holds it while it reads; after the end the result has the output.
    output: Mutex<Option<Arc<OutputBuffer>>>,
    /// A counter that grows with every change.
    changed: watch::Sender<u64>,
    interrupter: Mutex<Option<Box<dyn Interrupter>>>,
    is_cancelled: AtomicBool,
}

/// A command that can be watched to its end.
pub(crate) trait Watchable: Send + Sync {
    /// Its id.
    fn id(&self) -> &str;

    /// Its observable side.
    fn progress(&self) -> &CommandWatch;

    /// The outcome, once it is over.
    fn end(&self) -> Option<Result<Value, Option<ProblemJson>>>;
}

impl CommandWatch {
    pub(crate) fn new() -> Self {
        Self { output: Mutex::new(Some(Arc::default())), ..Self::over() }
    }

    /// A command that has ended.
    pub(super) fn over() -> Self {
        Self {
            output: Mutex::default(),
            changed: watch::channel(0).0,
            interrupter: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// Notifies of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Cancels the command, started or not.
    pub(crate) fn cancel(&self) {
        {
            // The lock is held meanwhile: a command that starts now sees either the flag or the
            // interrupt.
            let interrupter = lock(&self.interrupter);
            self.is_cancelled.store(true, Ordering::SeqCst);
            if let Some(interrupter) = &*interrupter {
                interrupter.interrupt();
            }
        }
        self.notify_change();
    }

    /// The output, for a new reader.
    pub(crate) fn output(&self) -> Option<Arc<OutputBuffer>> {
        lock(&self.output).clone()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn set_interrupter(&self, by: Box<dyn Interrupter>) {
        let mut interrupter = lock(&self.interrupter);
        if self.is_cancelled() {
            by.interrupt();
        }
        *interrupter = Some(by);
    }

    pub(crate) fn notify_change(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    /// Called when the command has ended: an interrupt would hit the next one.
    pub(crate) fn clear_interrupter(&self) {
        *lock(&self.interrupter) = None;
    }

    /// Called when no more output follows.
    pub(crate) fn close_output(&self) {
        *lock(&self.output) = None;
    }

    /// Waits for `what`; `None` if the command is cancelled meanwhile.
    pub(crate) async fn unless_cancelled<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let mut changes = self.watch();
        let cancelled = async {
            while !self.is_cancelled() {
                let _ = changes.changed().await;
            }
        };
        tokio::select! {
            value = what => Some(value).filter(|_| !self.is_cancelled()),
            () = cancelled => None,
        }
    }

    /// Waits for the permits.
    pub(crate) async fn acquire(
        &self,
        places: [Arc<Semaphore>; 2],
    ) -> Option<Vec<OwnedSemaphorePermit>> {
        let all = async {
            let mut taken = Vec::new();
            for place in places {
                taken.push(place.acquire_owned().await.ok()?);
            }
            Some(taken)
        };
        self.unless_cancelled(all).await.flatten()
    }
}
