//! How long somebody is waited for.

use std::time::{Duration, Instant};

/// How often it is looked whether anybody still wants what is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// Until when something may take, and as long as somebody wants it.
#[derive(Clone, Copy)]
pub struct DialPatience<'a> {
    end: Instant,
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> DialPatience<'a> {
    /// Until `end`, and for no longer than `is_wanted` says so.
    pub fn new(end: Instant, is_wanted: &'a dyn Fn() -> bool) -> Self {
        Self { end, is_wanted }
    }

    /// Until `end`, whoever is there.
    pub fn until(end: Instant) -> DialPatience<'static> {
        DialPatience { end, is_wanted: &|| true }
    }

    /// How much time there is, at most.
    pub fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// How long to wait before it is asked again whether it has come to an end.
    pub fn step(&self) -> Duration {
        self.left().min(LOOK)
    }

    /// Whether nobody wants it any more.
    pub fn is_given_up(&self) -> bool {
        !(self.is_wanted)()
    }

    /// Whether it has come to an end, by the one or the other.
    pub fn is_over(&self) -> bool {
        self.left().is_zero() || self.is_given_up()
    }
}
