//! The thread of a sandbox, and its request queue.
//!
//! One thread creates the sandbox, runs its commands one after the other and ends it. The kernel
//! ends a sandbox with the thread that created it, so nothing is left when the program is killed.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use ringfence_api::{Denial, Permission, QuarantinedFile};
use ringfence_audit::session_id;
use ringfence_engine::session::Session;
use ringfence_engine::{EngineError, ProviderRegistry};
use ringfence_provider::{Interrupter, ProviderError};
use ringfence_sys::memory;
use ringfence_tools::FileTools;

use super::SandboxSpec;
use super::open::{OpenSession, open};
use super::policy_poller::PolicyPoller;
use crate::oneshot::{OneshotSender, oneshot};
use crate::{BoxFuture, Command, ExecuteResult, SandboxBackend, SandboxError};

/// The handle of a sandbox thread. Dropping it ends the sandbox.
pub(super) struct SandboxThread {
    pub(super) id: String,
    opened: Weak<Session>,
    requests: Mutex<Option<Sender<ThreadRequest>>>,
}

enum ThreadRequest {
    Execute(Command, Arc<CommandTicket>, OneshotSender<Result<ExecuteResult, SandboxError>>),
    End(OneshotSender<Result<Vec<QuarantinedFile>, SandboxError>>),
}

impl SandboxThread {
    pub(super) async fn open(
        provider: &str,
        registry: ProviderRegistry,
        spec: SandboxSpec,
        poller: Arc<PolicyPoller>,
    ) -> Result<Self, SandboxError> {
        let (id, provider) = (session_id(), provider.to_owned());
        let (requests, receiver) = mpsc::channel();
        let (opened, opened_receiver) = oneshot();
        let (own, failed) = (id.clone(), |source| SandboxError::File {
            what: "start",
            file: "a thread".into(),
            source,
        });
        let run_thread = move || match open(&own, &provider, registry, spec) {
            Ok(session) => {
                poller.add(&session.opened);
                drop(poller);
                opened.send(Ok(Arc::downgrade(&session.opened)));
                serve(session, &own, &receiver);
                // By default the allocator keeps the peak memory of many concurrent threads.
                memory::trim_heap();
            }
            Err(error) => opened.send(Err(error)),
        };
        thread::Builder::new().name("ringfence".into()).spawn(run_thread).map_err(failed)?;
        // If the caller drops this future, the handle is dropped, and the sandbox ends.
        let mut handle = Self { id, opened: Weak::new(), requests: Mutex::new(Some(requests)) };
        handle.opened = opened_receiver.await.unwrap_or_else(|| Err(handle.gone()))?;
        Ok(handle)
    }

    pub(super) fn is_open(&self) -> bool {
        self.requests().is_some()
    }

    fn requests(&self) -> MutexGuard<'_, Option<Sender<ThreadRequest>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> SandboxError {
        SandboxError::Gone { id: self.id.clone() }
    }

    pub(super) async fn close(&self) -> Result<Vec<QuarantinedFile>, SandboxError> {
        let Some(requests) = self.requests().take() else { return Ok(Vec::new()) };
        let (ended, awaited) = oneshot();
        if requests.send(ThreadRequest::End(ended)).is_err() {
            return Ok(Vec::new());
        }
        drop(requests);
        awaited.await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

impl SandboxBackend for Arc<SandboxThread> {
    fn id(&self) -> &str {
        &self.id
    }

    fn execute(&self, command: Command) -> BoxFuture<'static, Result<ExecuteResult, SandboxError>> {
        let handle = self.clone();
        Box::pin(async move {
            let (result, awaited) = oneshot();
            let ticket = Arc::new(CommandTicket::default());
            let request = ThreadRequest::Execute(command, ticket.clone(), result);
            match handle.requests().as_ref() {
                Some(requests) => requests.send(request).map_err(|_| handle.gone())?,
                None => return Err(SandboxError::Ended { id: handle.id.clone() }),
            }
            let _cancel_guard = CancelOnDrop(ticket);
            awaited.await.unwrap_or_else(|| Err(handle.gone()))
        })
    }

    fn dispose(&self) -> BoxFuture<'_, Result<Vec<QuarantinedFile>, SandboxError>> {
        Box::pin(self.close())
    }

    fn tools(&self) -> Result<FileTools, SandboxError> {
        let ended = || SandboxError::Ended { id: self.id.clone() };
        let opened = self.opened.upgrade().filter(|_| self.is_open()).ok_or_else(ended)?;
        if !opened.shares_project() {
            return Err(SandboxError::NotOffered { what: "tools".into() });
        }
        // An embedding program has no log for calls that may go unrecorded.
        FileTools::for_session(&opened, Box::new(|_| ()))
            .map_err(|error| to_sandbox_error(error, &self.id))
    }

    fn permission(&self, denial: &Denial) -> Option<Permission> {
        self.opened.upgrade()?.permission_for(denial)
    }
}

/// The progress of a command.
#[derive(Default)]
enum CommandProgress {
    #[default]
    Waiting,
    Running(Box<dyn Interrupter>),
    /// Ended or cancelled.
    Over,
}

/// State shared by the caller of a command and the sandbox thread.
#[derive(Default)]
struct CommandTicket(Mutex<CommandProgress>);

impl CommandTicket {
    fn lock(&self) -> MutexGuard<'_, CommandProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        !matches!(*self.lock(), CommandProgress::Over)
    }

    /// Makes the command interruptible; interrupts it at once if it was cancelled.
    fn begin(&self, interrupter: Box<dyn Interrupter>) {
        let mut progress = self.lock();
        match *progress {
            CommandProgress::Over => interrupter.interrupt(),
            _ => *progress = CommandProgress::Running(interrupter),
        }
    }

    fn end(&self) {
        *self.lock() = CommandProgress::Over;
    }
}

/// Cancels the command if its future is dropped before the end.
struct CancelOnDrop(Arc<CommandTicket>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        // The lock is held meanwhile: an interrupt must not hit the next command.
        if let CommandProgress::Running(interrupter) = &*progress {
            interrupter.interrupt();
        }
        *progress = CommandProgress::Over;
    }
}

/// Serves requests until the queue is closed.
fn serve(mut session: OpenSession, id: &str, receiver: &Receiver<ThreadRequest>) {
    while let Ok(request) = receiver.recv() {
        match request {
            ThreadRequest::Execute(command, ticket, result) => {
                if let Some(executed) = run(&mut session, command, &ticket) {
                    result.send(executed.map_err(|error| to_sandbox_error(error, id)));
                }
            }
            ThreadRequest::End(ended) => {
                let moved = session
                    .opened
                    .end()
                    .map_err(|error| SandboxError::NotExecuted { source: Box::new(error) });
                ended.send(moved);
                return;
            }
        }
    }
    // No caller is left to report an error to.
    let _ = session.opened.end();
}

/// Runs the command; `None` if it was cancelled.
fn run(
    session: &mut OpenSession,
    command: Command,
    ticket: &CommandTicket,
) -> Option<Result<ExecuteResult, EngineError>> {
    if !ticket.is_wanted() {
        return None;
    }
    let result = session.execute(command, &mut |interrupter| ticket.begin(interrupter));
    ticket.end();
    Some(result)
}

fn to_sandbox_error(error: EngineError, id: &str) -> SandboxError {
    match error {
        EngineError::Provider(ProviderError::Gone { what: "sandbox" }) => {
            SandboxError::Gone { id: id.to_owned() }
        }
        EngineError::Narrowed { .. } => {
            SandboxError::Narrowed { id: id.to_owned(), source: Box::new(error) }
        }
        EngineError::Provider(ProviderError::NotStarted { .. }) => SandboxError::not_created(error),
        error => SandboxError::NotExecuted { source: Box::new(error) },
    }
}
