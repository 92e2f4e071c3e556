//! What an agent is told of its call.

use serde_json::{Map, Value, json};

use super::HookAgent;
use crate::error::CliError;

/// What an agent is told of its call.
#[derive(Debug, PartialEq)]
pub(super) enum HookReply {
    /// Nothing: the agent goes on as it would without a hook.
    Nothing,
    /// It may be made, with these arguments instead of its own.
    Rewritten { arguments: Map<String, Value>, consent: HookConsent, reason: String },
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
pub(super) enum HookConsent {
    Given,
    Needed,
}

impl HookReply {
    /// As the agent reads it; `None` where nothing is to be said.
    pub(super) fn json(&self, agent: HookAgent) -> Option<Value> {
        let mut said = match (self, agent) {
            (HookReply::Nothing, _) => return None,
            (HookReply::Message { text }, _) => return Some(json!({ "systemMessage": text })),
            (HookReply::Context { event, text }, _) => {
                return Some(
                    json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": text } }),
                );
            }
            (HookReply::Rewritten { arguments, consent, reason }, _) => {
                let decision = match (consent, agent) {
                    // Codex takes new arguments beside `allow` alone, and asks in its own way
                    // afterwards.
                    (HookConsent::Given, _) | (HookConsent::Needed, HookAgent::Codex) => "allow",
                    (HookConsent::Needed, HookAgent::ClaudeCode) => "ask",
                };
                json!({ "permissionDecision": decision, "permissionDecisionReason": reason, "updatedInput": arguments })
            }
            (HookReply::Denied { reason }, _) => {
                json!({ "permissionDecision": "deny", "permissionDecisionReason": reason })
            }
            (HookReply::Asked { reason }, HookAgent::ClaudeCode) => {
                json!({ "permissionDecision": "ask", "permissionDecisionReason": reason })
            }
            // Codex does not know `ask` here, and lets through what it does not know.
            (HookReply::Asked { reason }, HookAgent::Codex) => {
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
