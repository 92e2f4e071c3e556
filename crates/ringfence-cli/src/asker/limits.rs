//! How much a person is asked: a command must not wear them down.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use ringfence_api::AskAnswer;

/// After so many refusals in a row the person means all of it.
const IN_A_ROW: u32 = 10;
/// More questions than this nobody reads.
const A_MINUTE: usize = 30;
const MINUTE: Duration = Duration::from_secs(60);

/// What was asked so far.
#[derive(Debug, Default)]
pub(super) struct AskLimits {
    /// The questions of the last minute.
    recent: VecDeque<Instant>,
    refused: u32,
    is_over: bool,
}

/// Why nothing more is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AskStop {
    /// Everything was refused.
    Refused,
    /// There were too many.
    Many,
}

impl fmt::Display for AskStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskStop::Refused => write!(f, "{IN_A_ROW} times in a row no"),
            AskStop::Many => write!(f, "more than {A_MINUTE} questions in a minute"),
        }
    }
}

impl AskLimits {
    /// Whether nothing is asked any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// A question is about to be asked; an end if it is one too many.
    pub(super) fn begin(&mut self, now: Instant) -> Option<AskStop> {
        while self.recent.front().is_some_and(|first| now.duration_since(*first) >= MINUTE) {
            self.recent.pop_front();
        }
        if self.recent.len() >= A_MINUTE {
            self.is_over = true;
            return Some(AskStop::Many);
        }
        self.recent.push_back(now);
        None
    }

    /// It was answered.
    pub(super) fn note(&mut self, answer: AskAnswer) -> Option<AskStop> {
        self.refused = if answer == AskAnswer::Deny { self.refused + 1 } else { 0 };
        self.is_over |= self.refused >= IN_A_ROW;
        self.is_over.then_some(AskStop::Refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_in_a_row_are_the_last() {
        let mut limits = AskLimits::default();
        for _ in 0..3 {
            for _ in 0..9 {
                assert_eq!(limits.note(AskAnswer::Deny), None);
            }
            assert_eq!(limits.note(AskAnswer::AllowOnce), None);
        }
        let ends: Vec<_> = (0..10).map(|_| limits.note(AskAnswer::Deny)).collect();
        assert_eq!((ends[8], ends[9], limits.is_over()), (None, Some(AskStop::Refused), true));
    }

    #[test]
    fn thirty_in_a_minute_are_the_most() {
        let begun = Instant::now();
        let mut slow = AskLimits::default();
        assert!(
            (0..100).all(|number| slow.begin(begun + Duration::from_secs(2) * number).is_none())
        );
        let mut quick = AskLimits::default();
        let ends: Vec<_> =
            (0..31).map(|number| quick.begin(begun + Duration::from_millis(number))).collect();
        assert!(ends[..30].iter().all(Option::is_none));
        assert_eq!((ends[30], quick.is_over()), (Some(AskStop::Many), true));
    }
}
