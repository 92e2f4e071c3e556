//! What every place must do, as checks that any provider can be put to.
//!
//! A [`Check`] takes a provider that nobody has used and a [`Place`] made for it. It opens
//! sessions, runs commands, and looks at the answers and at the host. It asks through the
//! traits alone and knows no operating system's means, so that a machine, a container and a
//! cluster answer for the same things.
//!
//! Commands are lines for `/bin/sh` with the usual small tools; the network is tried with
//! bash, which needs no other program for it. Each check finds a trace of its command having
//! run, so that a place that does nothing passes none of them.
//!
//! Whoever runs a check owes it a process with [`INPUT`] on its standard input and
//! [`VARIABLE`] in its environment: a command reads its caller's input, and the caller's
//! variables are what it must not see.

mod ending;
mod files;
mod host;
mod place;
mod sessions;
mod shells;
mod streams;
mod telling;
mod trial;

pub use place::{Fixture, SECRET};

use std::fmt;
use std::io;

use ringfence_policy::PolicyError;

use crate::{Provider, ProviderError};
use trial::CheckRun;

/// What stands on the standard input of the process that runs a check.
pub const INPUT: &[u8] = b"first line\n\x00\xff not text\nno end of line";

/// A variable of the process that runs a check, which no command may see.
pub const VARIABLE: (&str, &str) = ("CONFORMANCE_TOKEN", "plugh-never-to-be-seen");

/// One thing that every place must do.
#[derive(Clone, Copy)]
pub struct ConformanceCheck {
    /// Its name, which says what is so in a place that passes.
    pub name: &'static str,
    /// What it is about.
    pub about: CheckTopic,
    act: fn(&CheckRun<'_>) -> CheckResult,
}

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckTopic {
    /// A command runs and is told of as if it ran bare: so it is without any confinement.
    Running,
    /// A shell lives on from one command to the next, confined or not.
    Shells,
    /// A command is confined: a place that does not confine must fail.
    Confinement,
}

/// What a check comes to.
type CheckResult = Result<(), CheckFailure>;

/// Every check.
pub fn checks() -> impl Iterator<Item = &'static ConformanceCheck> {
    [
        ending::CHECKS,
        streams::CHECKS,
        files::CHECKS,
        host::CHECKS,
        sessions::CHECKS,
        shells::CHECKS,
        telling::CHECKS,
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

    /// Puts `provider` to it, in a `place` made for this check.
    pub fn run(&self, provider: &dyn Provider, place: &Fixture) -> Result<(), CheckFailure> {
        (self.act)(&CheckRun { provider, place })
    }
}

impl fmt::Debug for ConformanceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.name, self.about)
    }
}

/// How a place falls short.
#[derive(Debug, thiserror::Error)]
pub enum CheckFailure {
    /// Something is not as it must be.
    #[error("{what}: wanted {wanted}, found {found}")]
    Differs {
        /// What was looked at.
        what: String,
        /// How it must be.
        wanted: String,
        /// How it is.
        found: String,
    },
    /// The place would not run a command that it must run.
    #[error("`{command}` was not run")]
    NotRun {
        /// The command.
        command: String,
        /// What the place said.
        source: ProviderError,
    },
    /// The policy of the check does not resolve: the check is at fault, or its place.
    #[error("the policy of the check does not resolve")]
    Policy {
        /// Why.
        source: PolicyError,
    },
    /// The host could not be looked at: the runner is at fault.
    #[error("cannot {what}")]
    Host {
        /// What was attempted.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::checks;

    #[test]
    fn every_check_has_a_name_of_its_own() {
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
