//! Questions to the user about a denial.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Denial;

/// An answer to a question about a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskAnswer {
    /// Allows this one access; the next one is asked about again.
    AllowOnce,
    /// Allows this and all later accesses, as long as the sandbox exists.
    AllowSession,
    /// Allows this and all later accesses, also in later sandboxes: saved in the user's policy.
    AllowPermanent,
    /// Denies the access.
    Deny,
}

impl AskAnswer {
    /// All answers, in the order in which they are offered.
    pub const ALL: &'static [AskAnswer] = &[
        AskAnswer::AllowOnce,
        AskAnswer::AllowSession,
        AskAnswer::AllowPermanent,
        AskAnswer::Deny,
    ];
}

impl fmt::Display for AskAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AskAnswer::AllowOnce => "allow_once",
            AskAnswer::AllowSession => "allow_session",
            AskAnswer::AllowPermanent => "allow_permanent",
            AskAnswer::Deny => "deny",
        })
    }
}

/// A question; the process that made the access waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The access that is about to be denied, its process and the rule.
    pub denial: Denial,
    /// The possible answers.
    pub options: Vec<AskAnswer>,
}

/// Asks the user.
///
/// The process that made the access waits until `ask` returns, so `ask` must return: without an
/// answer in time, it returns [`AskAnswer::Deny`]. Several threads may call it at once.
pub trait Asker: fmt::Debug + Send + Sync {
    /// Asks a question. An answer that is not among the options counts as [`AskAnswer::Deny`].
    fn ask(&self, ask: &Ask) -> AskAnswer;

    /// Reports the effect of an answer, if it did more than allow one access, or failed.
    fn note(&self, text: &str) {
        let _ = text;
    }
}
