//! Asking a person about what was refused.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Denial;

/// What somebody may say to a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AskAnswer {
    /// This one access goes through; the next is asked about again.
    AllowOnce,
    /// This and all later ones, as long as the sandbox lives.
    AllowSession,
    /// This and all later ones, in later sandboxes too: the person's policy file says so.
    AllowPermanent,
    /// It stays refused.
    Deny,
}

impl AskAnswer {
    /// All of them, in the order in which they are offered.
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

/// A question: whoever wants it waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What is about to be refused, to whom, and by which rule.
    pub denial: Denial,
    /// What may be answered.
    pub options: Vec<AskAnswer>,
}

/// Who is asked.
///
/// What was wanted waits until this returns, so it must return: whoever gets no answer in
/// time says [`Answer::Deny`]. Several threads may ask at once.
pub trait Asker: fmt::Debug + Send + Sync {
    /// Asks. An answer that is not among the options counts as [`Answer::Deny`].
    fn ask(&self, ask: &Ask) -> AskAnswer;

    /// Hears what came of an answer that did more than let something through, or could not.
    fn note(&self, text: &str) {
        let _ = text;
    }
}
