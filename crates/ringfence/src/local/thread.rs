//! The thread of a sandbox, and where commands for it are handed in.
//!
//! One thread makes the sandbox, runs its commands one after the other and ends it. It must be
//! the same one: the kernel ends a sandbox with the thread that made it, which is why nothing
//! is left when the program is killed.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use ringfence_api::{Denial, Permission, QuarantinedFile};
use ringfence_audit::session_id;
use ringfence_engine::EngineError;
use ringfence_engine::session::Session;
use ringfence_provider::{Interrupter, ProviderError};
use ringfence_sys::memory;
use ringfence_tools::FileTools;

use super::open::{OpenSession, open};
use super::policy_poller::PolicyPoller;
use crate::oneshot::{OneshotSender, promise};
use crate::{Command, ExecuteResult, SandboxCreateOptions, SandboxError};

/// Where commands for one sandbox are handed in. Dropping it ends the sandbox.
pub(super) struct SandboxThread {
    id: String,
    opened: Weak<Session>,
    orders: Mutex<Option<Sender<ThreadRequest>>>,
}

enum ThreadRequest {
    Execute(Command, Arc<CommandTicket>, OneshotSender<Result<ExecuteResult, SandboxError>>),
    End(OneshotSender<Result<Vec<QuarantinedFile>, SandboxError>>),
}

impl SandboxThread {
    pub(super) async fn open(
        options: SandboxCreateOptions,
        followers: Arc<PolicyPoller>,
    ) -> Result<Self, SandboxError> {
        let id = session_id();
        let (orders, handed_in) = mpsc::channel();
        let (opened, is_opened) = promise();
        let (own, failed) = (id.clone(), |source| SandboxError::File {
            what: "start",
            file: "a thread".into(),
            source,
        });
        let keeper = move || match open(&own, options) {
            Ok(session) => {
                followers.add(&session.opened);
                drop(followers);
                opened.keep(Ok(Arc::downgrade(&session.opened)));
                keep(session, &own, &handed_in);
                // Left to itself, the allocator keeps what many threads had at the same time.
                memory::give_back();
            }
            Err(error) => opened.keep(Err(error)),
        };
        thread::Builder::new().name("ringfence".into()).spawn(keeper).map_err(failed)?;
        // Whoever does not wait for it drops the desk, and with it the sandbox.
        let mut desk = Self { id, opened: Weak::new(), orders: Mutex::new(Some(orders)) };
        desk.opened = is_opened.await.unwrap_or_else(|| Err(desk.gone()))?;
        Ok(desk)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn is_open(&self) -> bool {
        self.orders().is_some()
    }

    pub(super) fn tools(&self) -> Result<FileTools, SandboxError> {
        let ended = || SandboxError::Ended { id: self.id.clone() };
        let opened = self.opened.upgrade().filter(|_| self.is_open()).ok_or_else(ended)?;
        // Where calls may go unrecorded there is nobody here who could be told.
        opened.tools(Box::new(|_| ())).map_err(|error| told(error, &self.id))
    }

    pub(super) fn permission(&self, denial: &Denial) -> Option<Permission> {
        self.opened.upgrade()?.permission_for(denial)
    }

    fn orders(&self) -> MutexGuard<'_, Option<Sender<ThreadRequest>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> SandboxError {
        SandboxError::Gone { id: self.id.clone() }
    }

    pub(super) async fn execute(&self, command: Command) -> Result<ExecuteResult, SandboxError> {
        let (result, awaited) = promise();
        let ticket = Arc::new(CommandTicket::default());
        let order = ThreadRequest::Execute(command, ticket.clone(), result);
        match self.orders().as_ref() {
            Some(orders) => orders.send(order).map_err(|_| self.gone())?,
            None => return Err(SandboxError::Ended { id: self.id.clone() }),
        }
        let _gives_up = CancelOnDrop(ticket);
        awaited.await.unwrap_or_else(|| Err(self.gone()))
    }

    pub(super) async fn close(&self) -> Result<Vec<QuarantinedFile>, SandboxError> {
        let Some(orders) = self.orders().take() else { return Ok(Vec::new()) };
        let (ended, awaited) = promise();
        if orders.send(ThreadRequest::End(ended)).is_err() {
            return Ok(Vec::new());
        }
        drop(orders);
        awaited.await.unwrap_or_else(|| Ok(Vec::new()))
    }
}

/// How far it is with a command.
#[derive(Default)]
enum CommandProgress {
    #[default]
    Waiting,
    Running(Box<dyn Interrupter>),
    /// Or nobody wants it any more.
    Over,
}

/// What whoever asked for a command and whoever runs it both know of it.
#[derive(Default)]
struct CommandTicket(Mutex<CommandProgress>);

impl CommandTicket {
    fn lock(&self) -> MutexGuard<'_, CommandProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_wanted(&self) -> bool {
        !matches!(*self.lock(), CommandProgress::Over)
    }

    /// It can be interrupted from now on, and is at once if nobody wants it any more.
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

/// Whoever asked for a command. Dropped before its end, they do not want it any more.
struct CancelOnDrop(Arc<CommandTicket>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        // Held meanwhile: the next command is somebody else's.
        if let CommandProgress::Running(interrupter) = &*progress {
            interrupter.interrupt();
        }
        *progress = CommandProgress::Over;
    }
}

/// Runs what is handed in until there will be nothing more.
fn keep(mut session: OpenSession, id: &str, handed_in: &Receiver<ThreadRequest>) {
    while let Ok(order) = handed_in.recv() {
        match order {
            ThreadRequest::Execute(command, ticket, result) => {
                if let Some(executed) = run(&mut session, command, &ticket) {
                    result.keep(executed.map_err(|error| told(error, id)));
                }
            }
            ThreadRequest::End(ended) => {
                let moved = session
                    .opened
                    .end()
                    .map_err(|error| SandboxError::NotExecuted { source: Box::new(error) });
                ended.keep(moved);
                return;
            }
        }
    }
    // Nobody is left who could be told.
    let _ = session.opened.end();
}

/// `None` if nobody wants it any more.
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

fn told(error: EngineError, id: &str) -> SandboxError {
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
