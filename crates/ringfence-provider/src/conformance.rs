//! Checks of the documented behaviour, for any provider.
//!
//! A [`ConformanceCheck`] takes an unused provider and a [`ConformanceFixture`] made for it. It
//! opens sandboxes, runs commands, and checks the outcomes and the host. It uses the traits and the
//! host's files, and nothing else of a provider. Every provider must pass the same checks. The
//! checks need host paths.
//!
//! Commands are `/bin/sh` lines with the usual small tools; the network is tried with bash, which
//! needs no other program for it. Each check looks for a trace of its command, so that a provider
//! that does nothing passes none of them.
//!
//! The process that runs a check must have [`INPUT`] on its standard input and [`VARIABLE`] in its
//! environment: a command reads its caller's input, and must not see the caller's variables.

mod check_run;
mod denials;
mod ending;
mod files;
mod fixture;
mod host;
mod sessions;
mod shells;
mod streams;

pub use fixture::{ConformanceFixture, SECRET};

use std::fmt;
use std::io;

use ringfence_policy::PolicyError;

use crate::{Provider, ProviderError};
use check_run::CheckRun;

/// The standard input of the process that runs a check.
pub const INPUT: &[u8] = b"first line\n\x00\xff not text\nno end of line";

/// An environment variable of the process that runs a check; no command may see it.
pub const VARIABLE: (&str, &str) = ("CONFORMANCE_TOKEN", "plugh-never-to-be-seen");

/// One required behaviour of every provider.
#[derive(Clone, Copy)]
pub struct ConformanceCheck {
    /// Its name, which states the behaviour.
    pub name: &'static str,
    /// Its topic.
    pub about: CheckTopic,
    act: fn(&CheckRun<'_>) -> CheckResult,
}

/// The topic of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckTopic {
    /// A command runs and is reported; holds with or without confinement.
    Running,
    /// A shell lives on from one command to the next, confined or not.
    Shells,
    /// A command is confined: a provider that does not confine must fail.
    Confinement,
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
    const fn running(name: &'static str, act: fn(&CheckRun<'_>) -> CheckResult) -> Self {
        Self { name, about: CheckTopic::Running, act }
    }

    const fn shells(name: &'static str, act: fn(&CheckRun<'_>) -> CheckResult) -> Self {
        Self { name, about: CheckTopic::Shells, act }
    }

    const fn confinement(name: &'static str, act: fn(&CheckRun<'_>) -> CheckResult) -> Self {
        Self { name, about: CheckTopic::Confinement, act }
    }

    /// Runs the check on `provider`, in a `fixture` made for it.
    pub fn run(
        &self,
        provider: &dyn Provider,
        fixture: &ConformanceFixture,
    ) -> Result<(), CheckFailure> {
        (self.act)(&CheckRun { provider, fixture })
    }
}

impl fmt::Debug for ConformanceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.about)
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

    use super::checks;

    #[test]
    fn check_names_are_unique() {
        let names: BTreeSet<&str> = checks().map(|check| check.name).collect();
        assert_eq!(names.len(), checks().count());
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')),
            "{names:?}"
        );
    }
}
