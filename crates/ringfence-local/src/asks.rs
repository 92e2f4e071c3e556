//! Questions to a person about what is about to be refused, and what comes of the answers.
//!
//! Whoever wants it waits meanwhile, and nobody else does: each question has a thread of its
//! own. There is an end to how many wait at a time, and those beyond are refused as if nobody
//! could be asked.

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
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_api::{Ask, AskAnswer, Asker, Denial, GrantedAccess, Operation};
use ringfence_enforce::apply::WriteIntent;

use crate::denial_log::DenialLog;

pub(crate) use connect::{HostPort, ParkedConnect};
pub(crate) use eligible::{is_granted, is_worth_asking, is_worth_asking_to_write};
pub(crate) use live_policy::{ActivePolicy, LivePolicy};
pub(crate) use read_target::ReadTarget;
pub(crate) use subject::{AskSubject, ParkedRequest};
pub(crate) use write_target::WriteTarget;

/// So many different questions may wait for an answer at a time.
const QUESTIONS: usize = 16;

/// So many may wait for the same answer.
const COMPANIONS: usize = 64;

/// So long a refusal is not asked about again: a program that tries in a loop would leave the
/// person no time for anything else.
const REST: Duration = Duration::from_secs(2);

/// The same question has the same answer while it is asked.
type QuestionKey = (OsString, &'static str);

/// The questions of one sandbox.
pub(crate) struct QuestionBroker {
    asker: Arc<dyn Asker>,
    book: Mutex<QuestionState>,
    granted: Mutex<Vec<GrantedAccess>>,
    ground: Arc<LivePolicy>,
    denials: Arc<Mutex<DenialLog>>,
    /// Where threads are begun. Not by whoever asks: that one may be kept to a processor, and
    /// those it begins would be as well.
    clerk: OnceLock<Sender<Box<dyn FnOnce() + Send>>>,
}

#[derive(Debug, Default)]
struct QuestionState {
    /// Who waits for which answer.
    waiting: HashMap<QuestionKey, Vec<QuestionWaiter>>,
    /// Whether somebody looks after those who may have to be called away.
    is_minded: bool,
    /// What was refused not long ago.
    refused: HashMap<QuestionKey, Instant>,
}

/// Somebody who waits.
#[derive(Debug)]
struct QuestionWaiter {
    denial: Denial,
    held: ParkedRequest,
}

impl fmt::Debug for QuestionBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asks").field("asker", &self.asker).finish_non_exhaustive()
    }
}

impl QuestionBroker {
    pub(crate) fn of(
        asker: Arc<dyn Asker>,
        ground: Arc<LivePolicy>,
        denials: Arc<Mutex<DenialLog>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            asker,
            book: Mutex::default(),
            granted: Mutex::default(),
            ground,
            denials,
            clerk: OnceLock::new(),
        })
    }

    /// To be called once there may be threads: a program of one thread is copied to make the
    /// sandbox. A second time does nothing.
    pub(crate) fn begin(&self) {
        if self.clerk.get().is_some() {
            return;
        }
        let (clerk, begun) = channel::<Box<dyn FnOnce() + Send>>();
        let begin = move || {
            for question in begun {
                // Without a thread, the question is dropped, and whoever waits is refused.
                let _ = thread::Builder::new().name("ask".into()).spawn(question);
            }
        };
        if thread::Builder::new().name("clerk".into()).stack_size(64 * 1024).spawn(begin).is_ok() {
            let _ = self.clerk.set(clerk);
        }
    }

    fn book(&self) -> MutexGuard<'_, QuestionState> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about `matter`, unless it is asked about already or was refused just now.
    pub(crate) fn ask(self: &Arc<Self>, denial: Denial, matter: AskSubject, held: ParkedRequest) {
        let key = (matter.name(), denial.operation.word());
        let is_minded = held.is_to_be_minded();
        let waiting = QuestionWaiter { denial: denial.clone(), held };
        let mut book = self.book();
        book.refused.retain(|_, since| since.elapsed() < REST);
        let (known, is_refused) = (book.waiting.len(), book.refused.contains_key(&key));
        let refused = match book.waiting.get_mut(&key) {
            _ if is_refused => Some(waiting),
            Some(others) if others.len() < COMPANIONS => {
                others.push(waiting);
                return;
            }
            None if known < QUESTIONS => {
                book.waiting.insert(key.clone(), vec![waiting]);
                None
            }
            Some(_) | None => Some(waiting),
        };
        let is_to_be_minded =
            is_minded && refused.is_none() && !std::mem::replace(&mut book.is_minded, true);
        drop(book);
        if let Some(QuestionWaiter { denial, held }) = refused {
            self.refused(denial);
            return drop(held);
        }
        let turn = QuestionTurn { asks: self.clone(), key: Some(key), matter };
        // Where there is nobody to take it, it is dropped here.
        let _ = self.clerk.get().map(|clerk| clerk.send(Box::new(move || turn.take(denial))));
        if is_to_be_minded {
            let asks = self.clone();
            let _ = self.clerk.get().map(|clerk| clerk.send(Box::new(move || asks.mind())));
        }
    }

    /// Lets those who wait in a call go when a signal waits for them, as long as there are any:
    /// the kernel does not tell of it.
    fn mind(&self) {
        const AGAIN: Duration = Duration::from_millis(25);
        loop {
            thread::sleep(AGAIN);
            let mut book = self.book();
            for waiting in book.waiting.values_mut() {
                waiting.iter_mut().for_each(|one| one.held.mind_signals());
                // Whoever calls again waits anew.
                waiting.retain(|one| one.held.is_waiting());
            }
            if book.waiting.values().flatten().all(|one| !one.held.is_to_be_minded()) {
                book.is_minded = false;
                return;
            }
        }
    }

    /// Lets one through, because of an answer that was given before or just now; refused if
    /// what was asked about is no longer there.
    pub(crate) fn let_through(
        &self,
        denial: Denial,
        answer: AskAnswer,
        matter: &AskSubject,
        held: ParkedRequest,
    ) {
        // Either is recorded first: what whoever waits does next may be its end, and ours.
        match matter.through(held) {
            Ok(through) => {
                self.note(denial, answer, 1);
                through.tell();
            }
            Err(held) => {
                self.refused(denial);
                drop(held);
            }
        }
    }

    fn note(&self, denial: Denial, answer: AskAnswer, count: u64) {
        const READABLE: usize = 1000;
        let mut granted = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |one: &GrantedAccess| {
            let (one, other) = ((&one.denial, one.answer), (&denial, answer));
            one.1 == other.1
                && one.0.target == other.0.target
                && one.0.operation == other.0.operation
                && one.0.program == other.0.program
        };
        match granted.iter().position(is_same) {
            Some(at) => granted[at].denial.count += count,
            None if granted.len() < READABLE => {
                granted.push(GrantedAccess { denial: Denial { count, ..denial }, answer })
            }
            None => {}
        }
    }

    /// It stays refused.
    pub(crate) fn refused(&self, denial: Denial) {
        self.denials.lock().unwrap_or_else(PoisonError::into_inner).note(denial);
    }

    /// What went through so far because somebody said so.
    pub(crate) fn granted(&self) -> Vec<GrantedAccess> {
        std::mem::take(&mut self.granted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One question on its way. However it ends, nobody is left waiting for it.
struct QuestionTurn {
    asks: Arc<QuestionBroker>,
    /// Until those who wait were taken: whoever asks the same after that is another's.
    key: Option<QuestionKey>,
    matter: AskSubject,
}

impl QuestionTurn {
    fn take(mut self, denial: Denial) {
        let mut options = self.asks.ground.offers(&self.matter);
        options.push(AskAnswer::Deny);
        let ask = Ask { denial, options };
        let mut answer = Some(self.asks.asker.ask(&ask))
            .filter(|answer| ask.options.contains(answer))
            .unwrap_or(AskAnswer::Deny);
        match answer {
            AskAnswer::Deny => {
                self.asks.book().refused.extend(self.key.clone().map(|key| (key, Instant::now())));
                return;
            }
            AskAnswer::AllowOnce => {}
            AskAnswer::AllowSession | AskAnswer::AllowPermanent => {
                if self.open() {
                    // Also where nobody waits any more: it is open from now on.
                    self.asks.note(ask.denial, answer, 0);
                } else {
                    // What could not be opened for good is open this once, if it can be.
                    answer = AskAnswer::AllowOnce;
                }
            }
        }
        for QuestionWaiter { denial, held } in self.waiting() {
            if held.is_waiting() {
                self.asks.let_through(denial, answer, &self.matter, held);
            }
        }
    }

    /// Opens it for the rest of the session.
    fn open(&self) -> bool {
        match &self.matter {
            AskSubject::Read(target) => self.asks.ground.open_to_read(target),
            AskSubject::Write(place) => {
                self.asks.ground.open_to_write(place, || place.ready(self.deed()))
            }
            AskSubject::Connect(wanted) => {
                self.asks.ground.open_host(&wanted.rule);
                true
            }
        }
    }

    /// What the first of those who still wait in a call wants done.
    fn deed(&self) -> Option<WriteIntent> {
        let book = self.asks.book();
        let waiting =
            book.waiting.get(self.key.as_ref()?)?.iter().filter(|one| one.held.is_waiting());
        waiting
            .filter_map(|one| {
                if let ParkedRequest::Call(plea) = &one.held { Some(plea.deed()) } else { None }
            })
            .next()
    }

    fn waiting(&mut self) -> Vec<QuestionWaiter> {
        self.key.take().and_then(|key| self.asks.book().waiting.remove(&key)).unwrap_or_default()
    }
}

impl Drop for QuestionTurn {
    fn drop(&mut self) {
        for QuestionWaiter { denial, held } in self.waiting() {
            // Whoever was called away was not refused.
            if held.is_waiting() {
                self.asks.refused(denial);
            }
        }
    }
}

/// Whether the tripwire is where a question about this begins: what is written to, the usher
/// hears of.
pub(crate) fn is_asked_about(operation: Operation) -> bool {
    matches!(operation, Operation::Read | Operation::Execute)
}
