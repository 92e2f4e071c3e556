//! What all clients of a server share: the rooms, how many may do what, and calls that wait for a
//! person.

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
use crate::questions::{ClientQuestion, PATIENCE};
use crate::sandbox::{ClientSandbox, ClientSandboxes, lock};
use crate::schema::{self, ToolFailure};

/// Each has a thread.
const CALLS: usize = 64;
/// As many more wait for a person: whoever asks and does not come again takes no place away.
const SEATS: usize = 64;
/// Each session has a sandbox: a few MiB and a dozen processes and descriptors.
pub(crate) const SESSIONS: usize = 16;
/// The key of the one question of a call.
const KEY: &str = "permission";

/// What all clients share.
pub(crate) struct McpState {
    rooms: ClientSandboxes,
    calls: Arc<Semaphore>,
    seats: Arc<Semaphore>,
    waiters: WaiterQueue,
    waiting: Arc<Mutex<HashMap<String, ParkedCall>>>,
    all_tools: Vec<Tool>,
}

/// A call that has asked: it goes on when its client comes again with the answer.
struct ParkedCall {
    running: InFlightCall,
    question: ClientQuestion,
    _waiter: QueuedWaiter,
    /// What was called: nobody goes on with something else.
    called: (String, Option<JsonObject>),
}

/// Those who wait for a person, whoever does so longest first.
#[derive(Clone, Default)]
struct WaiterQueue(Arc<Mutex<VecDeque<Arc<Notify>>>>);

/// One of them.
pub(crate) struct QueuedWaiter {
    given_up: Arc<Notify>,
    among: WaiterQueue,
}

impl QueuedWaiter {
    /// Returns once others want to ask and it has waited longest.
    pub(crate) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for QueuedWaiter {
    fn drop(&mut self) {
        lock(&self.among.0).retain(|one| !Arc::ptr_eq(one, &self.given_up));
    }
}

impl McpState {
    pub(crate) fn open(opening: SandboxOpener) -> Result<Arc<Self>, EngineError> {
        let rooms = ClientSandboxes::new(opening)?;
        let [calls, seats] = [CALLS, SEATS].map(|count| Arc::new(Semaphore::new(count)));
        Ok(Arc::new(Self {
            rooms,
            calls,
            seats,
            waiters: WaiterQueue::default(),
            waiting: Arc::default(),
            all_tools: schema::tools(),
        }))
    }

    /// Those that the policy has not taken away by now.
    pub(crate) fn tools(&self) -> Vec<Tool> {
        let policy = self.rooms.common().opened.policy();
        self.all_tools
            .iter()
            .filter(|tool| policy.grants.tools.against(&tool.name).is_none())
            .cloned()
            .collect()
    }

    /// Room for one more call.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.calls.clone().try_acquire_owned().ok()
    }

    /// A call that waits for a person from now on: its place is free for others. Nobody knows of
    /// clients that have gone away, so where too many wait, whoever did so longest is given up.
    pub(crate) fn waiter(&self, running: &InFlightCall) -> QueuedWaiter {
        let waiter = QueuedWaiter { given_up: Arc::default(), among: self.waiters.clone() };
        let mut waiters = lock(&self.waiters.0);
        match self.seats.clone().try_acquire_owned() {
            Ok(seat) => running.moves_to(seat),
            Err(_) => waiters.pop_front().iter().for_each(|longest| longest.notify_one()),
        }
        waiters.push_back(waiter.given_up.clone());
        drop(waiters);
        waiter
    }

    /// Has a call wait for its client to come again, as long as a person may take.
    pub(crate) fn wait(
        &self,
        running: InFlightCall,
        question: ClientQuestion,
        call: &CallToolRequestParams,
    ) -> Result<InputRequiredResult, ToolFailure> {
        let state = handle().map_err(|error| {
            ToolFailure::new(
                "internal",
                format!("cannot make a name for the question: {error}"),
                None,
            )
        })?;
        let requests = [(KEY.to_owned(), InputRequest::Elicitation(question.form()))].into();
        let called = (call.name.to_string(), call.arguments.clone());
        let waiter = self.waiter(&running);
        let given_up = waiter.given_up.clone();
        lock(&self.waiting)
            .insert(state.clone(), ParkedCall { running, question, _waiter: waiter, called });
        let (waiting, gone) = (self.waiting.clone(), state.clone());
        tokio::spawn(async move {
            // However it ends.
            let _ = tokio::time::timeout(PATIENCE, given_up.notified()).await;
            // Dropped, the call is not wanted any more, and the answer is no.
            let over = lock(&waiting).remove(&gone);
            drop(over);
        });
        Ok(InputRequiredResult::new(Some(requests), Some(state)))
    }

    /// Goes on with one that waits.
    pub(crate) fn go_on(
        &self,
        state: &str,
        call: &CallToolRequestParams,
    ) -> Result<InFlightCall, ToolFailure> {
        let gone = || {
            ToolFailure::new(
                "gone",
                "no call waits under this `requestState`",
                Some("call the tool anew".into()),
            )
        };
        let mut waiting = lock(&self.waiting);
        let is_same =
            |one: &ParkedCall| one.called.0 == call.name && one.called.1 == call.arguments;
        if !waiting.get(state).is_some_and(is_same) {
            return Err(gone());
        }
        let ParkedCall { running, question, .. } = waiting.remove(state).ok_or_else(gone)?;
        let said = call.input_responses.as_ref().and_then(|responses| responses.get(KEY)).cloned();
        question.answer(said.and_then(|said| serde_json::from_value::<ElicitResult>(said).ok()));
        Ok(running)
    }

    /// Ends everything.
    pub(crate) fn end(&self) {
        drop(std::mem::take(&mut *lock(&self.waiting)));
        self.rooms.end();
    }
}

/// Which room a client has.
pub(crate) enum ClientScope {
    /// That of all.
    Common,
    /// One for its session, made with the first call of it; requests without one get that of all.
    Session(Arc<OnceLock<Arc<ClientSandbox>>>),
}

impl ClientScope {
    pub(crate) async fn room(
        &self,
        house: &Arc<McpState>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<ClientSandbox>, ToolFailure> {
        match self {
            ClientScope::Session(own) if is_in_session(context) => {
                let (own, house) = (own.clone(), house.clone());
                let made = tokio::task::spawn_blocking(move || of_session(&own, &house));
                made.await.unwrap_or_else(|_| {
                    Err(ToolFailure::new(
                        "internal",
                        "the sandbox was lost by a mistake in ringfence",
                        None,
                    ))
                })
            }
            _ => Ok(house.rooms.common().clone()),
        }
    }
}

impl Drop for ClientScope {
    /// The end of a session is that of its sandbox, whatever runs there.
    fn drop(&mut self) {
        if let ClientScope::Session(own) = self
            && let Some(room) = own.get().cloned()
        {
            // It takes a moment, and whoever drops us serves others.
            std::thread::spawn(move || room.end());
        }
    }
}

fn of_session(
    own: &OnceLock<Arc<ClientSandbox>>,
    house: &McpState,
) -> Result<Arc<ClientSandbox>, ToolFailure> {
    if let Some(room) = own.get() {
        return Ok(room.clone());
    }
    let Some(room) = house.rooms.another(SESSIONS)? else {
        let hint = "end another session, or start another server".to_owned();
        return Err(ToolFailure::new(
            "busy",
            format!("{SESSIONS} sessions have a sandbox, and there may be no more"),
            Some(hint),
        ));
    };
    Ok(own.get_or_init(|| room).clone())
}

/// Whether a request belongs to a session, which the newest version of the protocol does not have,
/// whatever its headers say.
fn is_in_session(context: &RequestContext<RoleServer>) -> bool {
    let is_newest =
        context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    !is_newest
        && context
            .extensions
            .get::<::http::request::Parts>()
            .is_some_and(|parts| parts.headers.contains_key("mcp-session-id"))
}

/// A name that nobody guesses.
fn handle() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
