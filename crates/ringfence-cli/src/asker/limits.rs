//! Limits on questions: a command must not wear the user down.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use ringfence_api::AskAnswer;

/// After this many denials in a row, everything is denied.
const DENIALS_IN_A_ROW: u32 = 10;
/// The maximum number of questions in a minute.
const PER_MINUTE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// The history of questions.
#[derive(Debug, Default)]
pub(super) struct AskLimits {
    /// The questions of the last minute.
    recent: VecDeque<Instant>,
    refused: u32,
    is_over: bool,
}

/// The reason why no more questions are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskStop {
    /// Too many denials in a row.
    Refused,
    /// Too many questions.
    Many,
}

impl fmt::Display for AskStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskStop::Refused => write!(f, "{DENIALS_IN_A_ROW} denials in a row"),
            AskStop::Many => write!(f, "more than {PER_MINUTE} questions in a minute"),
        }
    }
}

impl AskLimits {
    /// True if no more questions are asked.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Counts a question; returns a stop if it is one too many.
    pub(super) fn count_question(&mut self, now: Instant) -> Option<AskStop> {
        while self.recent.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.recent.pop_front();
        }
        if self.recent.len() >= PER_MINUTE {
            self.is_over = true;
            return Some(AskStop::Many);
        }
        self.recent.push_back(now);
        None
    }

    /// Counts an answer; returns a stop after too many denials.
    pub(super) fn count_answer(&mut self, answer: AskAnswer) -> Option<AskStop> {
        self.refused = if answer == AskAnswer::Deny { self.refused + 1 } else { 0 };
        self.is_over |= self.refused >= DENIALS_IN_A_ROW;
        self.is_over.then_some(AskStop::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenth_denial_in_a_row_ends_the_questions() {
        let mut limits = AskLimits::default();
        for _ in 0..3 {
            for _ in 0..9 {
                assert_eq!(limits.count_answer(AskAnswer::Deny), None);
            }
            assert_eq!(limits.count_answer(AskAnswer::AllowOnce), None);
        }
        let ends: Vec<_> = (0..10).map(|_| limits.count_answer(AskAnswer::Deny)).collect();
        assert_eq!((ends[8], ends[9], limits.is_over()), (None, Some(AskStop::Refused), true));
    }

    #[test]
    fn at_most_thirty_questions_a_minute_are_asked() {
        let begun = Instant::now();
        let mut slow = AskLimits::default();
        assert!(
            (0..100).all(|number| slow
                .count_question(begun + Duration::from_secs(2) * number)
                .is_none())
        );
        let mut quick = AskLimits::default();
        let ends: Vec<_> = (0..31)
            .map(|number| quick.count_question(begun + Duration::from_millis(number)))
            .collect();
        assert!(ends[..30].iter().all(Option::is_none));
        assert_eq!((ends[30], quick.is_over()), (Some(AskStop::Many), true));
    }
}
