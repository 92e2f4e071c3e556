//! One call: its work on a thread, its output as it comes, its questions, its end and its
//! cancellation.

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

/// So often a client hears how far it is, if there is something to hear.
const OFTEN: Duration = Duration::from_millis(100);
/// And so often where there is nothing: clients give up calls that they hear nothing of.
const SELDOM: Duration = Duration::from_secs(5);
/// As much of what was written goes into one piece of news, the end of it.
const NEWS: usize = 4096;

/// A call that is being served. Dropped, it is not wanted any more.
pub(crate) struct InFlightCall {
    work: JoinHandle<Result<CallToolResult, JoinError>>,
    watched: Arc<CallState>,
    /// Of a client that can ask people.
    questions: Option<UnboundedReceiver<ClientQuestion>>,
    began: Instant,
    place: CallPermit,
}

/// Room for one call, as long as it takes. Which it is may change meanwhile.
type CallPermit = Arc<Mutex<Option<OwnedSemaphorePermit>>>;

/// What there is to do next.
pub(crate) enum CallEvent {
    Answer(Box<CallToolResult>),
    Ask(ClientQuestion),
}

/// What both sides of a call know of it.
#[derive(Default)]
pub(crate) struct CallState {
    state: Mutex<CallStateInner>,
    wrote: Notify,
}

#[derive(Default)]
struct CallStateInner {
    is_withdrawn: bool,
    runs: Option<Box<dyn Interrupter>>,
    /// What was written since somebody was told.
    news: Vec<u8>,
}

impl InFlightCall {
    /// Begins it; `asks` says whether its client can ask people.
    pub(crate) fn begin(
        room: Arc<ClientSandbox>,
        order: ToolRequest,
        asks: ClientElicitation,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let watched = Arc::new(CallState::default());
        let (to, questions) = match asks {
            ClientElicitation::People => Some(room.questions.hear()).unzip(),
            ClientElicitation::Nobody => (None, None),
        };
        let beside = watched.clone();
        // Lines run in the order in which they came; threads would take the shell as they please.
        let queue = matches!(order, ToolRequest::Shell(_)).then(|| room.queue.clone());
        let place: CallPermit = Arc::new(Mutex::new(Some(place)));
        let held = place.clone();
        let work = move || {
            let answer = carry_out(&room, order, &beside, to);
            lock(&held).take();
            answer
        };
        let work = async move {
            let _turn = match queue {
                Some(queue) => Some(queue.lock_owned().await),
                None => None,
            };
            tokio::task::spawn_blocking(work).await
        };
        Self { work: tokio::spawn(work), watched, questions, began: Instant::now(), place }
    }

    /// Takes another place, and gives its own to somebody else. One that has ended needs none.
    pub(crate) fn moves_to(&self, seat: OwnedSemaphorePermit) {
        let mut place = lock(&self.place);
        if place.is_some() {
            *place = Some(seat);
        }
    }

    /// Waits for what comes next, and tells how it goes on meanwhile.
    pub(crate) async fn next(&mut self, context: &RequestContext<RoleServer>) -> CallEvent {
        let watched = self.watched.clone();
        let telling = tell(&watched, self.began, context);
        tokio::pin!(telling);
        let mut is_withdrawn = false;
        loop {
            tokio::select! {
                () = &mut telling => {}
                () = context.ct.cancelled(), if !is_withdrawn => {
                    is_withdrawn = true;
                    watched.withdraw();
                }
                Some(question) = asked(&mut self.questions) => return CallEvent::Ask(question),
                ended = &mut self.work => {
                    let lost = |_| reply::failed(&ToolFailure::new("internal", "the call was lost by a mistake in ringfence", None));
                    return CallEvent::Answer(Box::new(ended.flatten().unwrap_or_else(lost)));
                }
            }
        }
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.watched.withdraw();
    }
}

/// Whether a client can ask people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientElicitation {
    People,
    Nobody,
}

async fn asked(
    questions: &mut Option<UnboundedReceiver<ClientQuestion>>,
) -> Option<ClientQuestion> {
    match questions {
        Some(questions) => questions.recv().await,
        None => std::future::pending().await,
    }
}

fn carry_out(
    room: &ClientSandbox,
    order: ToolRequest,
    watched: &Arc<CallState>,
    asks: Option<UnboundedSender<ClientQuestion>>,
) -> CallToolResult {
    order.carry_out(room, watched, asks).unwrap_or_else(|failure| reply::failed(&failure))
}

impl CallState {
    /// It is its turn.
    pub(crate) fn begin(&self, reach: CommandControl) -> StartDecision {
        let mut state = lock(&self.state);
        state.runs = Some(reach.interrupter);
        if state.is_withdrawn { StartDecision::Left } else { StartDecision::Taken }
    }

    /// What it runs has ended: whoever comes too late must not mean the next one.
    pub(crate) fn end(&self) {
        lock(&self.state).runs = None;
    }

    /// It has written something.
    pub(crate) fn wrote(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.news.extend_from_slice(&bytes[bytes.len().saturating_sub(NEWS)..]);
        let beyond = state.news.len().saturating_sub(NEWS);
        state.news.drain(..beyond);
        self.wrote.notify_one();
    }

    /// Nobody wants it any more.
    fn withdraw(&self) {
        let mut state = lock(&self.state);
        state.is_withdrawn = true;
        if let Some(runs) = &state.runs {
            runs.interrupt();
        }
    }
}

/// Tells a client that wants it how a call goes on; never ends.
fn tell<'a>(
    watched: &'a CallState,
    began: Instant,
    context: &'a RequestContext<RoleServer>,
) -> impl Future<Output = ()> + 'a {
    let (peer, token) = (context.peer.clone(), context.meta.get_progress_token());
    async move {
        let Some(token) = token else { return std::future::pending().await };
        let mut clock = interval(SELDOM);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        clock.tick().await;
        loop {
            let is_news = tokio::select! {
                () = watched.wrote.notified() => true,
                _ = clock.tick() => false,
            };
            let seconds = began.elapsed().as_secs_f64();
            let news = std::mem::take(&mut lock(&watched.state).news);
            let message = if news.is_empty() {
                format!("runs for {seconds:.0} s")
            } else {
                String::from_utf8_lossy(&news).into_owned()
            };
            let told = ProgressNotificationParam::new(token.clone(), seconds).with_message(message);
            // A client that is gone is noticed elsewhere.
            let _ = peer.notify_progress(told).await;
            if is_news {
                clock.reset();
                tokio::time::sleep(OFTEN).await;
            }
        }
    }
}
