//! The time limit of a command: polite signals come before it, SIGKILL when it is reached.

use std::time::{Duration, Instant};

/// Times at which a command with a limit is asked to end, and is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// The first polite signal.
    pub(crate) polite: Instant,
    /// SIGKILL.
    pub(crate) hard: Instant,
}

impl Deadline {
    /// Deadline of a command that began at `begun`. It is asked to end a tenth of its time before
    /// the limit, at most two seconds: short limits lose little, and long ones leave time to clean
    /// up.
    pub(crate) fn new(begun: Instant, limit: Duration) -> Self {
        const MAX_GRACE: Duration = Duration::from_secs(2);
        let grace = (limit / 10).min(MAX_GRACE);
        Self { polite: begun + (limit - grace), hard: begun + limit }
    }

    /// The second polite signal, for callers that send two.
    pub(crate) fn firm(self) -> Instant {
        self.polite + (self.hard - self.polite) / 2
    }

    /// Time of the signal that follows `sent`; `None` after SIGKILL. It may be in the past: on a
    /// busy host a signal is sent late, and that does not delay the next one.
    pub(crate) fn after(self, sent: i32) -> Option<Instant> {
        match sent {
            libc::SIGINT => Some(self.firm()),
            libc::SIGTERM => Some(self.hard),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polite_signals_come_before_the_limit() {
        let begun = Instant::now();
        let check = |limit_ms, polite_ms| {
            let deadline = Deadline::new(begun, Duration::from_millis(limit_ms));
            assert_eq!(deadline.hard - begun, Duration::from_millis(limit_ms));
            assert_eq!(deadline.polite - begun, Duration::from_millis(polite_ms));
            assert!(deadline.polite <= deadline.firm() && deadline.firm() <= deadline.hard);
        };
        check(1000, 900);
        check(10_000, 9000);
        check(300_000, 298_000);
        check(0, 0);
    }
    #[test]
    fn late_signal_does_not_delay_sigkill() {
        let now = Instant::now();
        let deadline = Deadline::new(now - Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(deadline.after(libc::SIGINT), Some(deadline.firm()));
        assert_eq!(deadline.after(libc::SIGTERM), Some(deadline.hard));
        assert!(deadline.hard < now);
        assert_eq!(deadline.after(libc::SIGKILL), None);
    }
}
