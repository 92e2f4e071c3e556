//! What an agent is told of its call.

use serde_json::{Map, Value, json};

use crate::error::CliError;

/// What an agent is told of its call.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// Nothing: the agent goes on as it would without a hook.
    Nothing,
    /// It may be made, with these arguments instead of its own.
    Rewritten { arguments: Map<String, Value>, consent: Consent, reason: String },
    /// It may not be made.
    Denied { reason: String },
}

/// Whether somebody has to agree, in the words of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    Given,
    Asked,
}

impl Answer {
    /// As the agent reads it; `None` where nothing is to be said.
    pub(super) fn json(&self) -> Option<Value> {
        let mut said = match self {
            Answer::Nothing => return None,
            Answer::Rewritten { arguments, consent, reason } => {
                let decision = match consent {
                    Consent::Given => "allow",
                    Consent::Asked => "ask",
                };
                json!({ "permissionDecision": decision, "permissionDecisionReason": reason, "updatedInput": arguments })
            }
            Answer::Denied { reason } => json!({ "permissionDecision": "deny", "permissionDecisionReason": reason }),
        };
        said["hookEventName"] = "PreToolUse".into();
        Some(json!({ "hookSpecificOutput": said }))
    }
}

/// An error in one text, with its causes and what to do about it.
pub(super) fn told(error: &CliError) -> String {
    let mut text = error.to_string();
    for cause in error.causes() {
        text.push_str(&format!(": {cause}"));
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}
