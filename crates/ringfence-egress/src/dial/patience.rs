//! Time limit of a dial, combined with cancellation by the caller.

use std::time::{Duration, Instant};

/// Poll interval of the cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// Deadline, and a test whether the caller still waits.
#[derive(Clone, Copy)]
pub struct DialPatience<'a> {
    end: Instant,
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> DialPatience<'a> {
    /// Ends at `end`, or earlier when `is_wanted` is false.
    pub fn new(end: Instant, is_wanted: &'a dyn Fn() -> bool) -> Self {
        Self { end, is_wanted }
    }

    /// Ends at `end`, without cancellation.
    pub fn until(end: Instant) -> DialPatience<'static> {
        DialPatience { end, is_wanted: &|| true }
    }

    /// Time left at most.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Time to wait before the next test.
    pub fn step(&self) -> Duration {
        self.left().min(LOOK)
    }

    /// True if the caller gave up.
    pub fn is_given_up(&self) -> bool {
        !(self.is_wanted)()
    }

    /// True if the deadline has passed or the caller gave up.
    pub fn is_over(&self) -> bool {
        self.left().is_zero() || self.is_given_up()
    }
}
