//! One tool call: its worker thread, progress reports, questions, result and cancellation.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_engine::session::{CommandControl, StartDecision};
use ringfence_provider::Interrupter;
use rmcp::model::{CallToolResult, ProgressNotificationParam};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::questions::ClientQuestion;
use crate::reply;
use crate::request::ToolRequest;
use crate::sandbox::{ClientSandbox, lock};
use crate::schema::ToolFailure;

/// Shortest interval between two progress notifications that carry output.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of progress notifications without output: clients drop calls that stay silent.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// The most output bytes in one progress notification; older bytes are left out.
const PROGRESS_BYTES: usize = 4096;

/// A call in progress. Dropping it cancels it.
pub(crate) struct InFlightCall {
    work: JoinHandle<Result<CallToolResult, JoinError>>,
    call_state: Arc<CallState>,
    /// Present if the client can ask the user.
    questions: Option<UnboundedReceiver<ClientQuestion>>,
    began: Instant,
    permit: CallPermit,
}

/// The permit that one call holds while it runs. It may be exchanged for another meanwhile.
type CallPermit = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

/// The next event of a call.
pub(crate) enum CallEvent {
    Answer(Box<CallToolResult>),
    Ask(ClientQuestion),
}

/// State shared by the async task and the worker thread of a call.
#[derive(Default)]
pub(crate) struct CallState {
    state: Mutex<CallStateInner>,
    output_ready: Notify,
}

#[derive(Default)]
struct CallStateInner {
    is_cancelled: bool,
    interrupter: Option<Box<dyn Interrupter>>,
    /// Output since the last progress notification.
    recent_output: Vec<u8>,
}

impl InFlightCall {
    /// Starts the call; `asks` states if its client can ask the user.
    pub(crate) fn begin(
        sandbox: Arc<ClientSandbox>,
        tool_request: ToolRequest,
        asks: ClientElicitation,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let call_state = Arc::new(CallState::default());
        let (to, questions) = match asks {
            ClientElicitation::Supported => Some(sandbox.questions.register_call()).unzip(),
            ClientElicitation::Unsupported => (None, None),
        };
        let shared = call_state.clone();
        // Shell commands run in the order of arrival; worker threads would take the shell in any
        // order.
        let queue = matches!(tool_request, ToolRequest::Shell(_)).then(|| sandbox.queue.clone());
        let permit: CallPermit = Arc::new(Mutex::new(Some(permit)));
        let held_permit = permit.clone();
        let work = move || {
            let answer = execute(&sandbox, tool_request, &shared, to);
            lock(&held_permit).take();
            answer
        };
        let work = async move {
            let _turn = match queue {
                Some(queue) => Some(queue.lock_owned().await),
                None => None,
            };
            tokio::task::spawn_blocking(work).await
        };
        Self { work: tokio::spawn(work), call_state, questions, began: Instant::now(), permit }
    }

    /// Exchanges the permit for `new_permit` and frees the old one. An ended call needs none.
    pub(crate) fn exchange_permit(&self, new_permit: OwnedSemaphorePermit) {
        let mut permit = lock(&self.permit);
        if permit.is_some() {
            *permit = Some(new_permit);
        }
    }

    /// Waits for the next event, and sends progress notifications meanwhile.
    pub(crate) async fn next(&mut self, context: &RequestContext<RoleServer>) -> CallEvent {
        let call_state = self.call_state.clone();
        let progress = send_progress(&call_state, self.began, context);
        tokio::pin!(progress);
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                () = &mut progress => {}
                () = context.ct.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    call_state.cancel();
                }
                Some(question) = next_question(&mut self.questions) => return CallEvent::Ask(question),
                ended = &mut self.work => {
                    let lost = |_| reply::failure(&ToolFailure::new("internal", "the call was lost: internal error in ringfence", None));
                    return CallEvent::Answer(Box::new(ended.flatten().unwrap_or_else(lost)));
                }
            }
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.call_state.cancel();
    }
}

/// The client's ability to ask the user a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientElicitation {
    Supported,
    Unsupported,
}

async fn next_question(
    questions: &mut Option<UnboundedReceiver<ClientQuestion>>,
) -> Option<ClientQuestion> {
    match questions {
        Some(questions) => questions.recv().await,
        None => std::future::pending().await,
    }
}

fn execute(
    sandbox: &ClientSandbox,
    tool_request: ToolRequest,
    call_state: &Arc<CallState>,
    asks: Option<UnboundedSender<ClientQuestion>>,
) -> CallToolResult {
    tool_request
        .execute(sandbox, call_state, asks)
        .unwrap_or_else(|failure| reply::failure(&failure))
}

impl CallState {
    /// Called when the command starts.
    pub(crate) fn begin(&self, reach: CommandControl) -> StartDecision {
        let mut state = lock(&self.state);
        state.interrupter = Some(reach.interrupter);
        if state.is_cancelled { StartDecision::Left } else { StartDecision::Taken }
    }

    /// Called when the command has ended: a late interrupt must not hit the next command.
    pub(crate) fn end(&self) {
        lock(&self.state).interrupter = None;
    }

    /// Records output for the next progress notification.
    pub(crate) fn record_output(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.recent_output.extend_from_slice(&bytes[bytes.len().saturating_sub(PROGRESS_BYTES)..]);
        let excess = state.recent_output.len().saturating_sub(PROGRESS_BYTES);
        state.recent_output.drain(..excess);
        self.output_ready.notify_one();
    }

    /// Cancels the call.
    fn cancel(&self) {
        let mut state = lock(&self.state);
        state.is_cancelled = true;
        if let Some(interrupter) = &state.interrupter {
            interrupter.interrupt();
        }
    }
}

/// Sends progress notifications to a client that asked for them; never returns.
fn send_progress<'a>(
    call_state: &'a CallState,
    began: Instant,
    context: &'a RequestContext<RoleServer>,
) -> impl Future<Output = ()> + 'a {
    let (peer, token) = (context.peer.clone(), context.meta.get_progress_token());
    async move {
        let Some(token) = token else { return std::future::pending().await };
        let mut clock = interval(HEARTBEAT_INTERVAL);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clock.tick().await;
        loop {
            let has_output = tokio::select! {
                () = call_state.output_ready.notified() => true,
                _ = clock.tick() => false,
            };
            let seconds = began.elapsed().as_secs_f64();
            let recent_output = std::mem::take(&mut lock(&call_state.state).recent_output);
            let message = if recent_output.is_empty() {
                format!("running for {seconds:.0} s")
            } else {
                String::from_utf8_lossy(&recent_output).into_owned()
            };
            let notification =
                ProgressNotificationParam::new(token.clone(), seconds).with_message(message);
            // The transport notices a client that has disconnected.
            let _ = peer.notify_progress(notification).await;
            if has_output {
                clock.reset();
                tokio::time::sleep(PROGRESS_INTERVAL).await;
            }
        }
    }
}
