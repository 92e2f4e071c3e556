//! Pending questions of a session, answered from another terminal.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_api::session_protocol::{QuestionReport, SessionError, SessionReply};
use ringfence_api::{Ask, AskAnswer, Asker, lock};

use super::client_peer::RequestResult;

/// The maximum number of open questions; further accesses are denied at once.
const MAX_OPEN: usize = 64;

/// The open questions.
#[derive(Debug)]
pub(crate) struct PendingQuestions {
    answer_timeout: Duration,
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
    /// Creates the list; each question waits for `patience`.
    pub(super) fn new(answer_timeout: Duration) -> Self {
        Self { answer_timeout, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Lists the questions of `session` without an answer.
    pub(super) fn list(&self, session: &str) -> Vec<QuestionReport> {
        let state = lock(&self.state);
        let waiting = state.open.iter().filter(|(_, open)| open.answer.is_none());
        waiting
            .filter_map(|(number, open)| QuestionReport::from_ask(*number, &open.ask, session))
            .collect()
    }

    /// Handles an `answer` request.
    pub(super) fn handle_answer(&self, question: u64, answer: AskAnswer) -> RequestResult {
        match self.answer(question, answer) {
            Ok(()) => Ok(Some(SessionReply::Answered { question })),
            Err(why) => Err(SessionError::new("usage", why)),
        }
    }

    /// Answers a question; returns a message on failure.
    fn answer(&self, number: u64, answer: AskAnswer) -> Result<(), String> {
        let mut state = lock(&self.state);
        let open = state.open.get_mut(&number).filter(|open| open.answer.is_none());
        let open = open.ok_or_else(|| format!("no open question {number}"))?;
        if !open.ask.options.contains(&answer) {
            let offered: Vec<String> = open.ask.options.iter().map(ToString::to_string).collect();
            return Err(format!("{answer} is not offered; use one of {}", offered.join(", ")));
        }
        open.answer = Some(answer);
        self.changed.notify_all();
        Ok(())
    }
}

impl Asker for PendingQuestions {
    fn ask(&self, ask: &Ask) -> AskAnswer {
        let end = Instant::now() + self.answer_timeout;
        let mut state = lock(&self.state);
        if state.open.len() >= MAX_OPEN {
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
