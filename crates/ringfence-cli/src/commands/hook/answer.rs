//! What an agent is told of its call.

use serde_json::{Map, Value, json};

use super::Agent;
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
    /// A person has to say whether it may be made.
    Asked { reason: String },
    /// Something to know, after the event of this name.
    Context { event: &'static str, text: String },
    /// Something for the person to know.
    Message { text: String },
}

/// Whether somebody has to agree to what goes into the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    Given,
    Needed,
}

impl Answer {
    /// As the agent reads it; `None` where nothing is to be said.
    pub(super) fn json(&self, agent: Agent) -> Option<Value> {
        let mut said = match (self, agent) {
            (Answer::Nothing, _) => return None,
            (Answer::Message { text }, _) => return Some(json!({ "systemMessage": text })),
            (Answer::Context { event, text }, _) => {
                return Some(
                    json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": text } }),
                );
            }
            (Answer::Rewritten { arguments, consent, reason }, _) => {
                let decision = match (consent, agent) {
                    // Codex takes new arguments beside `allow` alone, and asks in its own way afterwards.
                    (Consent::Given, _) | (Consent::Needed, Agent::Codex) => "allow",
                    (Consent::Needed, Agent::ClaudeCode) => "ask",
                };
                json!({ "permissionDecision": decision, "permissionDecisionReason": reason, "updatedInput": arguments })
            }
            (Answer::Denied { reason }, _) => {
                json!({ "permissionDecision": "deny", "permissionDecisionReason": reason })
            }
            (Answer::Asked { reason }, Agent::ClaudeCode) => {
                json!({ "permissionDecision": "ask", "permissionDecisionReason": reason })
            }
            // Codex does not know `ask` here, and lets through what it does not know.
            (Answer::Asked { reason }, Agent::Codex) => {
                json!({ "permissionDecision": "deny", "permissionDecisionReason": format!("{reason}; Codex's hooks cannot ask") })
            }
        };
        said["hookEventName"] = "PreToolUse".into();
        Some(json!({ "hookSpecificOutput": said }))
    }
}

/// As much of a text as a sentence can hold.
pub(super) fn short(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
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
