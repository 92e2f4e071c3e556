//! Questions to the user about an access that is about to be denied, and the effect of each answer.
//!
//! Only the process that wants the access waits: each question has its own thread. The number of
//! open questions is limited; beyond the limit an access is denied without a question.

mod connect;
mod eligible;
mod live_policy;
mod read_target;
mod subject;
mod write_target;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::apply::WriteIntent;
use crate::locks::lock;
use ringfence_api::{Ask, AskAnswer, Asker, Denial, GrantedAccess, Operation};

use crate::launcher::denial_log::DenialLog;

pub(crate) use connect::{AskedConnect, HostPort};
pub(crate) use eligible::{is_session_grant, is_worth_asking, is_worth_asking_to_write};
pub(crate) use live_policy::{ActivePolicy, LivePolicy};
pub(crate) use read_target::ReadTarget;
pub(crate) use subject::{AskSubject, ParkedRequest};
pub(crate) use write_target::WriteTarget;

/// Most questions that may be open at a time.
const MAX_OPEN_QUESTIONS: usize = 16;

/// Most processes that may wait for one answer.
const MAX_WAITERS_PER_QUESTION: usize = 64;

/// Time after a denial in which the same question is not asked again: a program that retries in a
/// loop would flood the user.
const REASK_PAUSE: Duration = Duration::from_secs(2);

/// Target and operation of a question. Equal keys share one answer.
type QuestionKey = (OsString, &'static str);

/// Open questions of one sandbox.
pub(crate) struct QuestionBroker {
    asker: Arc<dyn Asker>,
    state: Mutex<QuestionState>,
    granted: Mutex<Vec<GrantedAccess>>,
    policy: Arc<LivePolicy>,
    denials: Arc<Mutex<DenialLog>>,
    /// Channel to the thread that spawns question threads. The asking thread may be pinned to a
    /// CPU, and its children would inherit that.
    spawner: OnceLock<Sender<Box<dyn FnOnce() + Send>>>,
}

#[derive(Debug, Default)]
struct QuestionState {
    /// Requests that wait, by question.
    waiting: HashMap<QuestionKey, Vec<QuestionWaiter>>,
    /// Set while a thread polls for signals that interrupt a waiting syscall.
    is_polling: bool,
    /// Questions that were denied a short time ago.
    refused: HashMap<QuestionKey, Instant>,
}

/// A request that waits for an answer.
#[derive(Debug)]
struct QuestionWaiter {
    denial: Denial,
    held: ParkedRequest,
}

impl fmt::Debug for QuestionBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuestionBroker").field("asker", &self.asker).finish_non_exhaustive()
    }
}

impl QuestionBroker {
    pub(crate) fn new(
        asker: Arc<dyn Asker>,
        policy: Arc<LivePolicy>,
        denials: Arc<Mutex<DenialLog>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            asker,
            state: Mutex::default(),
            granted: Mutex::default(),
            policy,
            denials,
            spawner: OnceLock::new(),
        })
    }

    /// Starts the spawner thread. Call it only once threads are allowed: the sandbox is forked from
    /// a single-threaded process. A second call does nothing.
    pub(crate) fn start_spawner(&self) {
        if self.spawner.get().is_some() {
            return;
        }
        let (spawner, jobs) = channel::<Box<dyn FnOnce() + Send>>();
        let begin = move || {
            for question in jobs {
                // If the thread cannot start, the question is dropped and its requests are denied.
                let _ = thread::Builder::new().name("ask".into()).spawn(question);
            }
        };
        if thread::Builder::new()
            .name("ask-spawner".into())
            .stack_size(64 * 1024)
            .spawn(begin)
            .is_ok()
        {
            let _ = self.spawner.set(spawner);
        }
    }

    /// Asks about `matter`, unless the same question is open or was denied a moment ago.
    pub(crate) fn ask(self: &Arc<Self>, denial: Denial, matter: AskSubject, held: ParkedRequest) {
        let key = (matter.name(), denial.operation.word());
        let needs_polling = held.needs_signal_polling();
        let waiting = QuestionWaiter { denial: denial.clone(), held };
        let mut state = lock(&self.state);
        state.refused.retain(|_, since| since.elapsed() < REASK_PAUSE);
        let (known, is_refused) = (state.waiting.len(), state.refused.contains_key(&key));
        let refused = match state.waiting.get_mut(&key) {
            _ if is_refused => Some(waiting),
            Some(others) if others.len() < MAX_WAITERS_PER_QUESTION => {
                others.push(waiting);
                return;
            }
            None if known < MAX_OPEN_QUESTIONS => {
                state.waiting.insert(key.clone(), vec![waiting]);
                None
            }
            Some(_) | None => Some(waiting),
        };
        let starts_polling =
            needs_polling && refused.is_none() && !std::mem::replace(&mut state.is_polling, true);
        drop(state);
        if let Some(QuestionWaiter { denial, held }) = refused {
            self.record_denial(denial);
            return drop(held);
        }
        let turn = QuestionTurn { asks: self.clone(), key: Some(key), matter };
        // Without a spawner thread the question is dropped here.
        let _ = self.spawner.get().map(|spawner| spawner.send(Box::new(move || turn.take(denial))));
        if starts_polling {
            let asks = self.clone();
            let _ = self
                .spawner
                .get()
                .map(|spawner| spawner.send(Box::new(move || asks.poll_signals())));
        }
    }

    /// Polls for signals that are pending for callers that wait in a syscall, and releases those
    /// callers. The kernel does not report such signals.
    fn poll_signals(&self) {
        const POLL_INTERVAL: Duration = Duration::from_millis(25);
        loop {
            thread::sleep(POLL_INTERVAL);
            let mut state = lock(&self.state);
            for waiting in state.waiting.values_mut() {
                waiting.iter_mut().for_each(|one| one.held.check_signals());
                // A caller that retries the syscall waits anew.
                waiting.retain(|one| one.held.is_waiting());
            }
            if state.waiting.values().flatten().all(|one| !one.held.needs_signal_polling()) {
                state.is_polling = false;
                return;
            }
        }
    }

    /// Grants one request, because of an earlier answer or a new one. Denies it if the target is no
    /// longer what the question was about.
    pub(crate) fn grant(
        &self,
        denial: Denial,
        answer: AskAnswer,
        matter: &AskSubject,
        held: ParkedRequest,
    ) {
        // Record first: the released process may end itself, and us, at once.
        match matter.prepare(held) {
            Ok(through) => {
                self.note(denial, answer, 1);
                through.complete();
            }
            Err(held) => {
                self.record_denial(denial);
                drop(held);
            }
        }
    }

    fn note(&self, denial: Denial, answer: AskAnswer, count: u64) {
        const MAX_KEPT: usize = 1000;
        let mut granted = lock(&self.granted);
        let is_same = |one: &GrantedAccess| {
            let (one, other) = ((&one.denial, one.answer), (&denial, answer));
            one.1 == other.1
                && one.0.target == other.0.target
                && one.0.operation == other.0.operation
                && one.0.program == other.0.program
        };
        match granted.iter().position(is_same) {
            Some(at) => granted[at].denial.count += count,
            None if granted.len() < MAX_KEPT => {
                granted.push(GrantedAccess { denial: Denial { count, ..denial }, answer })
            }
            None => {}
        }
    }

    /// Records a final denial.
    pub(crate) fn record_denial(&self, denial: Denial) {
        lock(&self.denials).record(denial);
    }

    /// Accesses granted by an answer since the last call.
    pub(crate) fn take_granted(&self) -> Vec<GrantedAccess> {
        std::mem::take(&mut lock(&self.granted))
    }
}

/// One question in progress. Dropping it releases every request that still waits for it.
struct QuestionTurn {
    asks: Arc<QuestionBroker>,
    /// `None` once the waiting requests are taken: a later equal question is a new one.
    key: Option<QuestionKey>,
    matter: AskSubject,
}

impl QuestionTurn {
    fn take(mut self, denial: Denial) {
        let mut options = self.asks.policy.answer_options(&self.matter);
        options.push(AskAnswer::Deny);
        let ask = Ask { denial, options };
        let mut answer = Some(self.asks.asker.ask(&ask))
            .filter(|answer| ask.options.contains(answer))
            .unwrap_or(AskAnswer::Deny);
        match answer {
            AskAnswer::Deny => {
                lock(&self.asks.state)
                    .refused
                    .extend(self.key.clone().map(|key| (key, Instant::now())));
                return;
            }
            AskAnswer::AllowOnce => {}
            AskAnswer::AllowSession | AskAnswer::AllowPermanent => {
                if self.open() {
                    // Recorded even if no request waits any more: the grant holds from now on.
                    self.asks.note(ask.denial, answer, 0);
                } else {
                    // The session grant failed, so this request is granted once, if possible.
                    answer = AskAnswer::AllowOnce;
                }
            }
        }
        for QuestionWaiter { denial, held } in self.waiting() {
            if held.is_waiting() {
                self.asks.grant(denial, answer, &self.matter, held);
            }
        }
    }

    /// Grants the access for the rest of the session.
    fn open(&self) -> bool {
        match &self.matter {
            AskSubject::Read(target) => self.asks.policy.grant_read(target),
            AskSubject::Write(place) => {
                self.asks.policy.grant_write(place, || place.ensure_exists(self.deed()))
            }
            AskSubject::Connect(wanted) => {
                self.asks.policy.grant_host(&wanted.rule);
                true
            }
        }
    }

    /// The write of the first request that still waits in a syscall.
    fn deed(&self) -> Option<WriteIntent> {
        let state = lock(&self.asks.state);
        let waiting =
            state.waiting.get(self.key.as_ref()?)?.iter().filter(|one| one.held.is_waiting());
        waiting
            .filter_map(|one| {
                if let ParkedRequest::Call(pending) = &one.held {
                    Some(pending.intent())
                } else {
                    None
                }
            })
            .next()
    }

    fn waiting(&mut self) -> Vec<QuestionWaiter> {
        self.key
            .take()
            .and_then(|key| lock(&self.asks.state).waiting.remove(&key))
            .unwrap_or_default()
    }
}

impl Drop for QuestionTurn {
    fn drop(&mut self) {
        for QuestionWaiter { denial, held } in self.waiting() {
            // A request interrupted by a signal is not a denial.
            if held.is_waiting() {
                self.asks.record_denial(denial);
            }
        }
    }
}

/// True if the tripwire starts the question for this operation. The notify handler starts those
/// about writes.
pub(crate) fn is_tripwire_question(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::Execute)
}
