//! A sandbox for a client: made by a thread of its own, which keeps it.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ringfence_engine::EngineError;
use ringfence_engine::session::Session;
use ringfence_provider::ProviderError;
use ringfence_tools::FileTools;

use crate::SandboxOpener;
use crate::call::CallState;
use crate::outputs::Outputs;
use crate::questions::QuestionRouter;

/// How often somebody looks whether the policy was changed, for commands that run.
const LOOK: Duration = Duration::from_secs(1);

/// A sandbox, its tools, and whoever can be asked about it.
pub(crate) struct ClientSandbox {
    pub(crate) opened: Arc<Session>,
    pub(crate) tools: FileTools,
    pub(crate) questions: Arc<QuestionRouter>,
    /// Output of its commands beyond the part that answers show.
    pub(crate) outputs: Outputs,
    /// Those who want the shell, first come, first served.
    pub(crate) queue: Arc<tokio::sync::Mutex<()>>,
    /// The call that has the shell, or had it last.
    turn: Mutex<Weak<CallState>>,
    /// The kernel ends a sandbox with the thread that made it, so that one stays.
    keeper: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl ClientSandbox {
    fn make(open: &Arc<SandboxOpener>) -> Result<Self, EngineError> {
        let questions = Arc::new(QuestionRouter::new(open.elsewhere.clone()));
        let ((made, hears), (stays, leaves)) = (mpsc::channel(), mpsc::channel::<()>());
        let (open, asker) = (open.clone(), questions.clone());
        let keep = move || {
            let opened = (open.open)(asker).map(Arc::new);
            let kept = opened.as_ref().ok().cloned();
            let _ = made.send(opened);
            let Some(kept) = kept else { return };
            while leaves.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                kept.follow();
            }
            // What it says of what it moved away is on record.
            let _ = kept.end();
        };
        let failed = |source| ProviderError::System { what: "start a thread", source };
        let keeper = thread::Builder::new().name("room".into()).spawn(keep).map_err(failed)?;
        let opened = hears.recv().map_err(|_| ProviderError::Gone { what: "sandbox" })??;
        // What could not be recorded where that is allowed is nothing that an agent could mend.
        let tools = opened.tools(Box::new(|_| ()))?;
        let outputs = Outputs::default();
        Ok(Self {
            opened,
            tools,
            questions,
            outputs,
            queue: Arc::default(),
            turn: Mutex::default(),
            keeper: Mutex::new(Some((stays, keeper))),
        })
    }

    /// It is this call's turn in the shell. Whoever had it before has ended, and is not interrupted
    /// any more: that would be the next one.
    pub(crate) fn takes_turn(&self, call: &Arc<CallState>) {
        let before = std::mem::replace(&mut *lock(&self.turn), Arc::downgrade(call));
        if let Some(before) = before.upgrade() {
            before.end();
        }
    }

    /// Ends the sandbox and everything in it, also while commands run.
    pub(crate) fn end(&self) {
        let keeper = lock(&self.keeper).take();
        if let Some((stays, keeper)) = keeper {
            drop(stays);
            let _ = keeper.join();
        }
    }
}

impl Drop for ClientSandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// All rooms of a server.
pub(crate) struct ClientSandboxes {
    open: Arc<SandboxOpener>,
    /// The one of all who come without a session, made first of all.
    common: Arc<ClientSandbox>,
    others: Mutex<Vec<Weak<ClientSandbox>>>,
}

impl ClientSandboxes {
    /// With the first of them: a server that could confine nothing does not start.
    pub(crate) fn new(open: SandboxOpener) -> Result<Self, EngineError> {
        let open = Arc::new(open);
        let common = Arc::new(ClientSandbox::make(&open)?);
        Ok(Self { open, common, others: Mutex::default() })
    }

    pub(crate) fn common(&self) -> &Arc<ClientSandbox> {
        &self.common
    }

    /// One more; `None` where there are as many as there may be.
    pub(crate) fn another(&self, most: usize) -> Result<Option<Arc<ClientSandbox>>, EngineError> {
        // Held meanwhile: whoever comes at the same time would not count it.
        let mut others = lock(&self.others);
        others.retain(|room| room.strong_count() > 0);
        if others.len() >= most {
            return Ok(None);
        }
        let room = Arc::new(ClientSandbox::make(&self.open)?);
        others.push(Arc::downgrade(&room));
        Ok(Some(room))
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        let others = std::mem::take(&mut *lock(&self.others));
        others.iter().filter_map(Weak::upgrade).for_each(|room| room.end());
        self.common.end();
    }
}

pub(crate) fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
