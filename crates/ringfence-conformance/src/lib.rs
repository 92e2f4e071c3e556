//! Checks of the documented behaviour, for any provider.
//!
//! A provider's test is a program that calls [`main`] with the [`CheckTier`]s that the provider
//! claims. Each check opens sandboxes, runs commands, and checks the outcomes and the host. It uses
//! the traits and the host's files, and nothing else of a provider.
//!
//! Commands are `/bin/sh` lines with the usual small tools; the network is tried with bash, which
//! needs no other program for it. Each check looks for a trace of its command, so that a provider
//! that does nothing passes none of them.
//!
//! Paths in requests are the host's. Paths in the text of commands and in their output are the
//! sandbox's, translated by [`PreparedSandbox::paths`](ringfence_provider::PreparedSandbox::paths).

#![forbid(unsafe_code)]

/// The table of a file's checks: the tiers of each, and the function that gives it its name.
macro_rules! checks {
    ($($($tier:ident)|+: $act:ident,)*) => {
        pub(crate) const CHECKS: &[crate::ConformanceCheck] = &[$(crate::ConformanceCheck {
            name: stringify!($act),
            tiers: &[$(crate::CheckTier::$tier),+],
            act: $act,
        }),*];
    };
}

mod check_run;
mod denials;
mod ending;
mod files;
mod fixture;
mod host;
mod sessions;
mod shells;
mod streams;
mod suite;

pub use suite::{SuiteResult, find_check, main, run_each};

use std::fmt;
use std::io;
use std::path::Path;

use ringfence_policy::{AbsPath, PolicyError};
use ringfence_provider::{Provider, ProviderError};

use check_run::{CheckRun, CheckStep};
use fixture::ConformanceFixture;

/// One required behaviour of every provider that claims its tiers.
#[derive(Clone, Copy)]
pub struct ConformanceCheck {
    /// Its name, which states the behaviour.
    pub name: &'static str,
    /// The tiers that it belongs to.
    pub tiers: &'static [CheckTier],
    act: fn(&CheckRun<'_>) -> CheckResult,
}

/// A part of the behaviour that a provider may claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckTier {
    /// A command runs and is reported, and a demand that is not enforced is a gap. Every provider
    /// claims it.
    Core,
    /// A shell lives on from one command to the next.
    Shells,
    /// Rules on paths hold.
    Files,
    /// Denied and protected names cannot be created.
    Names,
    /// The host's network is closed.
    Network,
    /// No process outlives its command or reaches those of the host.
    Processes,
    /// Denials are exact, and planted git files are quarantined. Needs shells.
    Reports,
    /// The sandbox is on this host: the same uid, `/proc`, fds.
    Unix,
}

impl CheckTier {
    /// All tiers.
    pub const ALL: &[CheckTier] = &[
        CheckTier::Core,
        CheckTier::Shells,
        CheckTier::Files,
        CheckTier::Names,
        CheckTier::Network,
        CheckTier::Processes,
        CheckTier::Reports,
        CheckTier::Unix,
    ];

    /// True if a provider without confinement must fail the checks of this tier.
    pub fn is_confinement(self) -> bool {
        !matches!(self, CheckTier::Core | CheckTier::Shells | CheckTier::Unix)
    }
}

/// The result of a check.
type CheckResult = Result<(), CheckFailure>;

/// All checks.
pub fn checks() -> impl Iterator<Item = &'static ConformanceCheck> {
    [
        ending::CHECKS,
        streams::CHECKS,
        files::CHECKS,
        host::CHECKS,
        sessions::CHECKS,
        shells::CHECKS,
        denials::CHECKS,
    ]
    .into_iter()
    .flatten()
}

impl ConformanceCheck {
    /// True if a provider that claims these tiers must pass the check.
    pub fn is_claimed_by(&self, tiers: &[CheckTier]) -> bool {
        self.tiers.iter().all(|tier| tiers.contains(tier))
    }

    /// True if a provider without confinement must fail the check.
    pub fn is_confinement(&self) -> bool {
        self.tiers.iter().any(|tier| tier.is_confinement())
    }

    /// Runs the check on an unused `provider`, in an empty directory that is not below `/tmp`.
    ///
    /// The process needs the standard input and the variable that [`run_each`] gives it: a command
    /// reads its caller's input, and must not see the caller's variables.
    pub fn run(&self, provider: &dyn Provider, directory: &Path) -> Result<(), CheckFailure> {
        let base = AbsPath::new(directory)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
            .during("read the path of the directory")?;
        let fixture = ConformanceFixture::prepare(&base).during("prepare the fixture")?;
        (self.act)(&CheckRun { provider, fixture: &fixture })
    }
}

impl fmt::Debug for ConformanceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.tiers)
    }
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckFailure {
    /// An observation differs from the requirement.
    #[error("{what}: wanted {wanted}, found {found}")]
    Differs {
        /// The observed property.
        what: String,
        /// The required value.
        wanted: String,
        /// The actual value.
        found: String,
    },
    /// The provider did not run a command that it must run.
    #[error("`{command}` was not run")]
    NotRun {
        /// The command.
        command: String,
        /// The provider's error.
        source: ProviderError,
    },
    /// The policy of the check does not resolve: an error in the check or its fixture.
    #[error("the policy of the check does not resolve")]
    Policy {
        /// The cause.
        source: PolicyError,
    },
    /// An operation on the host failed: an error of the runner.
    #[error("cannot {what}")]
    Host {
        /// The attempted operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn check_names_are_unique() {
        let names: BTreeSet<&str> = checks().map(|check| check.name).collect();
        assert_eq!(names.len(), checks().count());
    }

    #[test]
    fn guide_shows_the_example() {
        let example = concat!(
            include_str!("../examples/bwrap/provider.rs"),
            include_str!("../examples/bwrap/main.rs"),
            include_str!("../tests/bwrap.rs"),
        );
        let guide = include_str!("../../../docs/backends.md");
        let blocks: Vec<&str> = guide
            .split("```rust\n")
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap_or_default())
            .collect();
        assert!(blocks.len() >= 6, "{}", blocks.len());
        for block in blocks {
            assert!(example.contains(block), "not in the example:\n{block}");
        }
    }

    #[test]
    fn every_tier_has_checks() {
        for tier in CheckTier::ALL {
            assert!(checks().any(|check| check.tiers.contains(tier)), "{tier:?}");
        }
        assert!(checks().all(|check| check.is_claimed_by(CheckTier::ALL)));
    }
}
