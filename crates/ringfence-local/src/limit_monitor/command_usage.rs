//! What one command has spent of its time and of its words.

use std::time::Duration;

use ringfence_api::{ExitStatus, LimitBreach};
use ringfence_policy::{Limit, Limits};

use super::note;

/// What one command has spent, of what nobody else can count.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandUsage {
    output: Option<u64>,
    file_size: Option<u64>,
    wrote: u64,
    breaches: Vec<LimitBreach>,
}

impl CommandUsage {
    pub(crate) fn within(limits: &Limits) -> Self {
        Self { output: limits.output, file_size: limits.file_size, ..Self::default() }
    }

    /// It wrote so much more to its streams.
    pub(crate) fn wrote(&mut self, length: usize) {
        self.wrote += length as u64;
        if let Some(configured) = self.output.filter(|most| self.wrote > *most) {
            note(
                &mut self.breaches,
                LimitBreach { limit: Limit::Output, configured, observed: self.wrote },
            );
        }
    }

    /// Whether it is to end for that.
    pub(crate) fn is_too_much(&self) -> bool {
        self.breaches.iter().any(|breach| breach.limit == Limit::Output)
    }

    /// It was told to end because its time is up. The polite signal comes a little before the
    /// limit.
    pub(crate) fn took(&mut self, duration: Duration, most: Option<Duration>) {
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

    /// Somebody else has noticed these.
    pub(crate) fn note(&mut self, breaches: Vec<LimitBreach>) {
        breaches.into_iter().for_each(|breach| note(&mut self.breaches, breach));
    }

    /// All of it, when it has ended, and what others have noticed.
    pub(crate) fn finish(
        mut self,
        status: ExitStatus,
        others: Vec<LimitBreach>,
    ) -> Vec<LimitBreach> {
        // A shell tells by its own status how a program ended.
        const BY_SHELL: i32 = 128 + libc::SIGXFSZ;
        let is_cut =
            matches!(status, ExitStatus::Killed(libc::SIGXFSZ) | ExitStatus::Exited(BY_SHELL));
        if let Some(most) = self.file_size.filter(|_| is_cut) {
            note(
                &mut self.breaches,
                LimitBreach { limit: Limit::FileSize, configured: most, observed: most },
            );
        }
        self.note(others);
        self.breaches
    }
}
