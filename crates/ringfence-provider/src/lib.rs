//! Places where commands run.
//!
//! A [`Provider`] opens a [`Session`] for a policy; a session runs commands. This trait is
//! the only dynamic call on the way of a command. What the words of the traits promise, each
//! place is put to by the checks in [`conformance`].

#![forbid(unsafe_code)]

pub mod conformance;

use std::io;

use ringfence_api::{Denial, Outcome, Request};
use ringfence_enforce::{Person, Plan};
use ringfence_policy::Grants;

/// A kind of place.
pub trait Provider {
    /// Its name in the registry and in messages.
    fn name(&self) -> &'static str;

    /// Makes ready what `grants` ask for. Nothing runs yet.
    fn open(&self, grants: &Grants, person: &Person) -> Result<Box<dyn Session>, ProviderError>;
}

/// A sandbox that was opened.
pub trait Session {
    /// What will be enforced, and the gaps.
    fn plan(&self) -> &Plan;

    /// Runs one command to its end.
    fn run(&mut self, request: &Request) -> Result<Outcome, ProviderError>;

    /// What was refused to a command that ended in an error, and so has no outcome: for the
    /// record. The second number is that of [`Outcome::denials_dropped`].
    fn refused(&mut self) -> (Vec<Denial>, u64);
}

/// Why a place could not run a command.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The sandbox could not be made.
    #[error("cannot start the sandbox for `{command}`")]
    NotStarted {
        /// The command.
        command: String,
        /// A command line that helps.
        hint: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The command itself could not be executed in the sandbox.
    #[error("cannot execute `{command}`")]
    NotExecuted {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A standard stream is a directory, which would lead out of the sandbox.
    #[error("standard {stream} is a directory")]
    StreamIsDirectory {
        /// `input`, `output` or `error`.
        stream: &'static str,
    },
    /// Talking to the operating system failed in the middle.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl ProviderError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            ProviderError::NotStarted { .. } => "sandbox-not-started",
            ProviderError::NotExecuted { .. } => "command-not-executed",
            ProviderError::StreamIsDirectory { .. } => "stream-is-directory",
            ProviderError::System { .. } => "system",
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProviderError::NotStarted { hint, .. } => Some(hint.clone()),
            ProviderError::NotExecuted { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("`ringfence explain exec PATH` shows whether a rule opens the program".into())
            }
            ProviderError::NotExecuted { .. } => None,
            ProviderError::StreamIsDirectory { .. } => Some("redirect it from a file or from /dev/null".into()),
            ProviderError::System { .. } => None,
        }
    }

    /// The exit status of the command line: 127 not found, 126 not executable, 125 ours.
    pub fn status(&self) -> i32 {
        match self {
            ProviderError::NotExecuted { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            ProviderError::NotExecuted { .. } => 126,
            _ => 125,
        }
    }
}
