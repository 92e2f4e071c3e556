//! Questions of a session, which wait for whoever answers them from another terminal.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::{Ask, AskAnswer, Asker, Permission};
use serde_json::{Value, json};

/// More than anybody reads: what comes beyond is refused at once.
const MANY: usize = 64;

/// Those that are open.
#[derive(Debug)]
pub(crate) struct PendingQuestions {
    patience: Duration,
    state: Mutex<PendingQuestionsState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct PendingQuestionsState {
    next: u64,
    open: BTreeMap<u64, PendingQuestion>,
}

#[derive(Debug)]
struct PendingQuestion {
    ask: Ask,
    answer: Option<AskAnswer>,
}

impl PendingQuestions {
    /// Each waits so long for its answer.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, PendingQuestionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that wait for an answer.
    pub(super) fn list(&self) -> Value {
        let state = self.lock();
        let waiting = state.open.iter().filter(|(_, open)| open.answer.is_none());
        let told = waiting.filter_map(|(number, PendingQuestion { ask, .. })| {
            let permission = Permission::of(&ask.denial, &ask.options)?;
            Some(json!({
                "question": number,
                "operation": ask.denial.operation.word(),
                "target": ask.denial.target,
                "program": ask.denial.program,
                "pid": ask.denial.pid,
                "permission": permission,
            }))
        });
        told.collect()
    }

    /// Answers one, in the words of the wire.
    pub(super) fn answer_to(&self, said: &Value) -> Value {
        let refused = |message: String| json!({ "error": { "code": "usage", "message": message } });
        let Ok(answer) = serde_json::from_value::<AskAnswer>(said["answer"].clone()) else {
            return refused("no such answer".into());
        };
        match self.answer(said["question"].as_u64().unwrap_or_default(), answer) {
            Ok(()) => json!({ "answered": said["question"] }),
            Err(why) => refused(why),
        }
    }

    /// Answers one; says what is wrong if that cannot be.
    fn answer(&self, number: u64, answer: AskAnswer) -> Result<(), String> {
        let mut state = self.lock();
        let open = state.open.get_mut(&number).filter(|open| open.answer.is_none());
        let open = open.ok_or_else(|| format!("there is no question {number} that waits"))?;
        if !open.ask.options.contains(&answer) {
            let offered: Vec<String> = open.ask.options.iter().map(ToString::to_string).collect();
            return Err(format!("{answer} is not offered; it may be {}", offered.join(", ")));
        }
        open.answer = Some(answer);
        self.changed.notify_all();
        Ok(())
    }
}

impl Asker for PendingQuestions {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let end = Instant::now() + self.patience;
        let mut state = self.lock();
        if state.open.len() >= MANY {
            return AskAnswer::Deny;
        }
        state.next += 1;
        let number = state.next;
        state.open.insert(number, PendingQuestion { ask: ask.clone(), answer: None });
        loop {
            let answer = state.open.get(&number).and_then(|open| open.answer);
            let left = end.saturating_duration_since(Instant::now());
            if answer.is_some() || left.is_zero() {
                state.open.remove(&number);
                return answer.unwrap_or(AskAnswer::Deny);
            }
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
