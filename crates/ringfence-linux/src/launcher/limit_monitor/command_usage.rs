//! Time and output of one command.

use std::time::Duration;

use ringfence_api::{ExitStatus, LimitBreach};
use ringfence_policy::{Limit, Limits};

use super::note;

/// Usage of one command that only its own loop can count.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandUsage {
    output: Option<u64>,
    file_size: Option<u64>,
    written: u64,
    breaches: Vec<LimitBreach>,
}

impl CommandUsage {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { output: limits.output, file_size: limits.file_size, ..Self::default() }
    }

    /// Counts bytes written to its streams.
    pub(crate) fn add_output(&mut self, length: usize) {
        self.written += length as u64;
        if let Some(configured) = self.output.filter(|most| self.written > *most) {
            note(
                &mut self.breaches,
                LimitBreach { limit: Limit::Output, configured, observed: self.written },
            );
        }
    }

    /// True if it must end because of its output.
    pub(crate) fn is_over_output_limit(&self) -> bool {
        self.breaches.iter().any(|breach| breach.limit == Limit::Output)
    }

    /// Records that the time limit was reached. The polite signal comes a little before the limit.
    pub(crate) fn record_timeout(&mut self, duration: Duration, most: Option<Duration>) {
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        if let Some(most) = most {
            let observed = milliseconds(duration.max(most));
            note(
                &mut self.breaches,
                LimitBreach { limit: Limit::Wall, configured: milliseconds(most), observed },
            );
        }
    }

    /// Adds breaches that others found.
    pub(crate) fn add_breaches(&mut self, breaches: Vec<LimitBreach>) {
        breaches.into_iter().for_each(|breach| note(&mut self.breaches, breach));
    }

    /// All breaches at its end, with those that others found.
    pub(crate) fn finish(
        mut self,
        status: ExitStatus,
        others: Vec<LimitBreach>,
    ) -> Vec<LimitBreach> {
        // A shell reports the signal of a program in its own exit status.
        const SHELL_STATUS: i32 = 128 + libc::SIGXFSZ;
        let is_cut =
            matches!(status, ExitStatus::Killed(libc::SIGXFSZ) | ExitStatus::Exited(SHELL_STATUS));
        if let Some(most) = self.file_size.filter(|_| is_cut) {
            note(
                &mut self.breaches,
                LimitBreach { limit: Limit::FileSize, configured: most, observed: most },
            );
        }
        self.add_breaches(others);
        self.breaches
    }
}
