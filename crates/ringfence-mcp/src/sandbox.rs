//! The sandbox of a client, opened and owned by a thread of its own.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, Weak};

use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(crate) use ringfence_api::lock;
use ringfence_engine::EngineError;
use ringfence_engine::session::Session;
use ringfence_provider::ProviderError;
use ringfence_tools::FileTools;

use crate::SandboxOpener;
use crate::call::CallState;
use crate::outputs::Outputs;
use crate::questions::QuestionRouter;

/// Interval at which the owner thread checks the policy while commands run.
const POLICY_POLL: Duration = Duration::from_secs(1);

/// A sandbox, its tools, and the askers for its questions.
pub(crate) struct ClientSandbox {
    pub(crate) session: Arc<Session>,
    pub(crate) tools: FileTools,
    pub(crate) questions: Arc<QuestionRouter>,
    /// Command output beyond the part that answers show.
    pub(crate) outputs: Outputs,
    /// Serializes access to the shell, in the order of arrival.
    pub(crate) queue: Arc<tokio::sync::Mutex<()>>,
    /// The call that uses the shell, or used it last.
    turn: Mutex<Weak<CallState>>,
    /// The kernel ends a sandbox with the thread that created it, so this thread stays alive.
    owner: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl ClientSandbox {
    fn create(open: &Arc<SandboxOpener>) -> Result<Self, EngineError> {
        let questions = Arc::new(QuestionRouter::new(open.fallback_asker.clone()));
        let ((opened_tx, opened_rx), (stop_tx, stop_rx)) = (mpsc::channel(), mpsc::channel::<()>());
        let (open, asker) = (open.clone(), questions.clone());
        let own = move || {
            let session = (open.open)(asker).map(Arc::new);
            let owned = session.as_ref().ok().cloned();
            let _ = opened_tx.send(session);
            let Some(owned) = owned else { return };
            while stop_rx.recv_timeout(POLICY_POLL) == Err(RecvTimeoutError::Timeout) {
                owned.follow_policy();
            }
            // The audit log has the quarantined files.
            let _ = owned.end();
        };
        let failed = |source| ProviderError::System { what: "start a thread", source };
        let owner = thread::Builder::new().name("sandbox".into()).spawn(own).map_err(failed)?;
        let session = opened_rx.recv().map_err(|_| ProviderError::Gone { what: "sandbox" })??;
        // An agent cannot fix a failed audit write where the policy allows one.
        let tools = FileTools::for_session(&session, Box::new(|_| ()))?;
        let outputs = Outputs::default();
        Ok(Self {
            session,
            tools,
            questions,
            outputs,
            queue: Arc::default(),
            turn: Mutex::default(),
            owner: Mutex::new(Some((stop_tx, owner))),
        })
    }

    /// Gives the shell to `call`. The previous call has ended: a late interrupt for it would hit
    /// `call`.
    pub(crate) fn give_shell_to(&self, call: &Arc<CallState>) {
        let before = std::mem::replace(&mut *lock(&self.turn), Arc::downgrade(call));
        if let Some(before) = before.upgrade() {
            before.end();
        }
    }

    /// Ends the sandbox and everything in it, also while commands run.
    pub(crate) fn end(&self) {
        let owner = lock(&self.owner).take();
        if let Some((stop_tx, owner)) = owner {
            drop(stop_tx);
            let _ = owner.join();
        }
    }
}

impl Drop for ClientSandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// All client sandboxes of a server.
pub(crate) struct ClientSandboxes {
    open: Arc<SandboxOpener>,
    /// Shared by all clients without a session; opened first.
    common: Arc<ClientSandbox>,
    others: Mutex<Vec<Weak<ClientSandbox>>>,
}

impl ClientSandboxes {
    /// Opens the shared sandbox: a server that cannot confine anything does not start.
    pub(crate) fn new(open: SandboxOpener) -> Result<Self, EngineError> {
        let open = Arc::new(open);
        let common = Arc::new(ClientSandbox::create(&open)?);
        Ok(Self { open, common, others: Mutex::default() })
    }

    pub(crate) fn common(&self) -> &Arc<ClientSandbox> {
        &self.common
    }

    /// Opens one more; `None` if there are already `most`.
    pub(crate) fn open_another(
        &self,
        most: usize,
    ) -> Result<Option<Arc<ClientSandbox>>, EngineError> {
        // The lock is held while opening, so that a concurrent caller counts this sandbox.
        let mut others = lock(&self.others);
        others.retain(|sandbox| sandbox.strong_count() > 0);
        if others.len() >= most {
            return Ok(None);
        }
        let sandbox = Arc::new(ClientSandbox::create(&self.open)?);
        others.push(Arc::downgrade(&sandbox));
        Ok(Some(sandbox))
    }

    /// Ends all of them.
    pub(crate) fn end(&self) {
        let others = std::mem::take(&mut *lock(&self.others));
        others.iter().filter_map(Weak::upgrade).for_each(|sandbox| sandbox.end());
        self.common.end();
    }
}
