//! State shared by all clients of a server: the client sandboxes, the limits, and calls that wait
//! for the user.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use ringfence_engine::EngineError;
use rmcp::model::{
    CallToolRequestParams, ElicitResult, InputRequest, InputRequiredResult, JsonObject,
    ProtocolVersion, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::SandboxOpener;
use crate::call::InFlightCall;
use crate::questions::{ANSWER_TIMEOUT, ClientQuestion};
use crate::sandbox::{ClientSandbox, ClientSandboxes, lock};
use crate::schema::{self, ToolFailure};

/// Calls at once; each has a thread.
const CALLS: usize = 64;
/// Further calls that wait for the user: a client that asks and never returns blocks no other call.
const WAITING_CALLS: usize = 64;
/// Each session has a sandbox: a few MiB, and about a dozen processes and fds.
pub(crate) const SESSIONS: usize = 16;
/// The key of the single question of a call.
const KEY: &str = "permission";

/// The app state of the MCP server.
pub(crate) struct McpState {
    sandboxes: ClientSandboxes,
    calls: Arc<Semaphore>,
    waiting_permits: Arc<Semaphore>,
    waiters: WaiterQueue,
    waiting: Arc<Mutex<HashMap<String, ParkedCall>>>,
    all_tools: Vec<Tool>,
}

/// A call that has returned a question. It resumes when its client repeats the call with the
/// answer.
struct ParkedCall {
    running: InFlightCall,
    question: ClientQuestion,
    _waiter: QueuedWaiter,
    /// The tool name and arguments; a resumed call must repeat them.
    call_params: (String, Option<JsonObject>),
}

/// Calls that wait for the user, the oldest first.
#[derive(Clone, Default)]
struct WaiterQueue(Arc<Mutex<VecDeque<Arc<Notify>>>>);

/// A call in the [`WaiterQueue`].
pub(crate) struct QueuedWaiter {
    given_up: Arc<Notify>,
    queue: WaiterQueue,
}

impl QueuedWaiter {
    /// Resolves when this is the oldest waiter and another call needs its permit.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        lock(&self.queue.0).retain(|other| !Arc::ptr_eq(other, &self.given_up));
    }
}

impl McpState {
    pub(crate) fn open(opening: SandboxOpener) -> Result<Arc<Self>, EngineError> {
        let sandboxes = ClientSandboxes::new(opening)?;
        let [calls, waiting_permits] =
            [CALLS, WAITING_CALLS].map(|count| Arc::new(Semaphore::new(count)));
        Ok(Arc::new(Self {
            sandboxes,
            calls,
            waiting_permits,
            waiters: WaiterQueue::default(),
            waiting: Arc::default(),
            all_tools: schema::tools(),
        }))
    }

    /// The tools that the policy allows at this moment.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let policy = self.sandboxes.common().session.policy();
        self.all_tools
            .iter()
            .filter(|tool| policy.grants.tools.rule_against(&tool.name).is_none())
            .cloned()
            .collect()
    }

    /// A permit for one more call, if one is free.
    pub(crate) fn take_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.calls.clone().try_acquire_owned().ok()
    }

    /// Queues a call that waits for the user, and frees its call permit for others. A client that
    /// has gone away is not noticed, so if too many calls wait, the oldest is abandoned.
    pub(crate) fn waiter(&self, running: &InFlightCall) -> QueuedWaiter {
        let waiter = QueuedWaiter { given_up: Arc::default(), queue: self.waiters.clone() };
        let mut waiters = lock(&self.waiters.0);
        match self.waiting_permits.clone().try_acquire_owned() {
            Ok(permit) => running.exchange_permit(permit),
            Err(_) => waiters.pop_front().iter().for_each(|longest| longest.notify_one()),
        }
        waiters.push_back(waiter.given_up.clone());
        drop(waiters);
        waiter
    }

    /// Parks a call until its client returns with the answer or [`ANSWER_TIMEOUT`] has passed.
    pub(crate) fn park(
        &self,
        running: InFlightCall,
        question: ClientQuestion,
        call: &CallToolRequestParams,
    ) -> Result<InputRequiredResult, ToolFailure> {
        let state = random_id().map_err(|error| {
            ToolFailure::new(
                "internal",
                format!("cannot create an id for the question: {error}"),
                None,
            )
        })?;
        let requests = [(KEY.to_owned(), InputRequest::Elicitation(question.form()))].into();
        let call_params = (call.name.to_string(), call.arguments.clone());
        let waiter = self.waiter(&running);
        let given_up = waiter.given_up.clone();
        lock(&self.waiting)
            .insert(state.clone(), ParkedCall { running, question, _waiter: waiter, call_params });
        let (waiting, parked_id) = (self.waiting.clone(), state.clone());
        tokio::spawn(async move {
            // Timeout and notification lead to the same.
            let _ = tokio::time::timeout(ANSWER_TIMEOUT, given_up.notified()).await;
            // Dropping a parked call cancels it and answers its question with deny.
            let removed = lock(&waiting).remove(&parked_id);
            drop(removed);
        });
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Resumes a parked call.
    pub(crate) fn resume(
        &self,
        state: &str,
        call: &CallToolRequestParams,
    ) -> Result<InFlightCall, ToolFailure> {
        let not_found = || {
            ToolFailure::new(
                "gone",
                "no call is waiting for this `requestState`",
                Some("call the tool again".into()),
            )
        };
        let mut waiting = lock(&self.waiting);
        let is_same = |other: &ParkedCall| {
            other.call_params.0 == call.name && other.call_params.1 == call.arguments
        };
        if !waiting.get(state).is_some_and(is_same) {
            return Err(not_found());
        }
        let ParkedCall { running, question, .. } = waiting.remove(state).ok_or_else(not_found)?;
        let said = call.input_responses.as_ref().and_then(|responses| responses.get(KEY)).cloned();
        question.answer(said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok()));
        Ok(running)
    }

    /// Ends all calls and sandboxes.
    pub(crate) fn end(&self) {
        drop(std::mem::take(&mut *lock(&self.waiting)));
        self.sandboxes.end();
    }
}

/// Selects the sandbox of a client.
pub(crate) enum ClientScope {
    /// The shared sandbox.
    Common,
    /// The session's own sandbox, opened by its first call; requests without a session use the
    /// shared one.
    Session(Arc<OnceLock<Arc<ClientSandbox>>>),
}

impl ClientScope {
    pub(crate) async fn sandbox(
        &self,
        app: &Arc<McpState>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<ClientSandbox>, ToolFailure> {
        match self {
            ClientScope::Session(own) if is_in_session(context) => {
                let (own, app) = (own.clone(), app.clone());
                let made = tokio::task::spawn_blocking(move || open_session_sandbox(&own, &app));
                made.await.unwrap_or_else(|_| {
                    Err(ToolFailure::new(
                        "internal",
                        "the sandbox was lost: internal error in ringfence",
                        None,
                    ))
                })
            }
            _ => Ok(app.sandboxes.common().clone()),
        }
    }
}

impl Drop for ClientScope {
    /// The end of a session ends its sandbox and everything that runs in it.
    fn drop(&mut self) {
        if let ClientScope::Session(own) = self
            && let Some(sandbox) = own.get().cloned()
        {
            // Ending takes a moment, and the dropping thread serves other clients.
            std::thread::spawn(move || sandbox.end());
        }
    }
}

fn open_session_sandbox(
    own: &OnceLock<Arc<ClientSandbox>>,
    app: &McpState,
) -> Result<Arc<ClientSandbox>, ToolFailure> {
    if let Some(sandbox) = own.get() {
        return Ok(sandbox.clone());
    }
    let Some(sandbox) = app.sandboxes.open_another(SESSIONS)? else {
        let hint = "end another session, or start another server".to_owned();
        return Err(ToolFailure::new(
            "busy",
            format!("too many sessions: all {SESSIONS} sandboxes are in use"),
            Some(hint),
        ));
    };
    Ok(own.get_or_init(|| sandbox).clone())
}

/// True if the request belongs to a session. The newest protocol version has none, even if the
/// headers name one.
fn is_in_session(context: &RequestContext<RoleServer>) -> bool {
    let is_newest =
        context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    !is_newest
        && context
            .extensions
            .get::<::http::request::Parts>()
            .is_some_and(|parts| parts.headers.contains_key("mcp-session-id"))
}

/// A random id that cannot be guessed.
fn random_id() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
