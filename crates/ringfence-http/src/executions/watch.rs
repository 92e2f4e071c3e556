//! A command on its way: what it writes, who watches, and how it is given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ringfence_provider::Interrupter;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::OutputBuffer;
use crate::error::ProblemJson;
use crate::tenants::lock;

/// A command on its way, wherever it runs.
pub(crate) struct CommandWatch {
    /// What it writes. Whoever watches has it as long as they watch; afterwards it stands in the
    /// result.
    output: Mutex<Option<Arc<OutputBuffer>>>,
    /// Changes with every change.
    changed: watch::Sender<u64>,
    interrupter: Mutex<Option<Box<dyn Interrupter>>>,
    is_unwanted: AtomicBool,
}

/// Something that can be watched to its end.
pub(crate) trait Watchable: Send + Sync {
    /// What it is known by.
    fn id(&self) -> &str;

    /// Its way so far.
    fn course(&self) -> &CommandWatch;

    /// What became of it, once it is over.
    fn end(&self) -> Option<Result<Value, Option<ProblemJson>>>;
}

impl CommandWatch {
    pub(crate) fn new() -> Self {
        Self { output: Mutex::new(Some(Arc::default())), ..Self::over() }
    }

    /// One that has come to its end.
    pub(super) fn over() -> Self {
        Self {
            output: Mutex::default(),
            changed: watch::channel(0).0,
            interrupter: Mutex::default(),
            is_unwanted: AtomicBool::new(false),
        }
    }

    /// Hears of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Ends it, whether it runs already or not.
    pub(crate) fn cancel(&self) {
        {
            // Held meanwhile: what begins now sees one or the other.
            let interrupter = lock(&self.interrupter);
            self.is_unwanted.store(true, Ordering::SeqCst);
            if let Some(interrupter) = &*interrupter {
                interrupter.interrupt();
            }
        }
        self.stirs();
    }

    /// What it writes, for somebody who begins to watch.
    pub(crate) fn output(&self) -> Option<Arc<OutputBuffer>> {
        lock(&self.output).clone()
    }

    pub(crate) fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::SeqCst)
    }

    pub(crate) fn runs(&self, by: Box<dyn Interrupter>) {
        let mut interrupter = lock(&self.interrupter);
        if self.is_unwanted() {
            by.interrupt();
        }
        *interrupter = Some(by);
    }

    pub(crate) fn stirs(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    /// It runs no more: whoever interrupted it now would mean another.
    pub(crate) fn stops(&self) {
        *lock(&self.interrupter) = None;
    }

    /// Nothing more is written.
    pub(crate) fn falls_silent(&self) {
        *lock(&self.output) = None;
    }

    /// Waits for something, unless nobody wants it any more.
    pub(crate) async fn wanted<T>(&self, what: impl Future<Output = T>) -> Option<T> {
        let mut changes = self.watch();
        let left = async {
            while !self.is_unwanted() {
                let _ = changes.changed().await;
            }
        };
        tokio::select! {
            had = what => Some(had).filter(|_| !self.is_unwanted()),
            () = left => None,
        }
    }

    /// Waits for its places.
    pub(crate) async fn turn(
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
        self.wanted(all).await.flatten()
    }
}
