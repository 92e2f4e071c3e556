//! The reply to a hook call.

use serde_json::{Map, Value, json};

use super::HookAgent;
use crate::error::CliError;

/// The reply to a hook call.
#[derive(Debug, PartialEq)]
pub(super) enum HookReply {
    /// No decision: the agent goes on as without a hook.
    Nothing,
    /// The call may run, with these arguments instead.
    Rewritten { arguments: Map<String, Value>, consent: HookConsent, reason: String },
    /// The call must not run.
    Denied { reason: String },
    /// The user must decide.
    Asked { reason: String },
    /// Information for the agent, after this event.
    Context { event: &'static str, text: String },
    /// Information for the user.
    Message { text: String },
}

/// The user's consent to a command in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookConsent {
    Given,
    Needed,
}

impl HookReply {
    /// Returns the reply in the agent's format; `None` for no output.
    pub(super) fn json(&self, agent: HookAgent) -> Option<Value> {
        let mut output = match (self, agent) {
            (HookReply::Nothing, _) => return None,
            (HookReply::Message { text }, _) => return Some(json!({ "systemMessage": text })),
            (HookReply::Context { event, text }, _) => {
                return Some(
                    json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": text } }),
                );
            }
            (HookReply::Rewritten { arguments, consent, reason }, _) => {
                let decision = match (consent, agent) {
                    // Codex accepts new arguments only with `allow`, and asks in its own way
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
            // Codex does not know `ask` here, and lets unknown decisions through.
            (HookReply::Asked { reason }, HookAgent::Codex) => {
                json!({ "permissionDecision": "deny", "permissionDecisionReason": format!("{reason}; Codex's hooks cannot ask") })
            }
        };
        output["hookEventName"] = "PreToolUse".into();
        Some(json!({ "hookSpecificOutput": output }))
    }
}

/// Truncates a text to 200 characters.
pub(super) fn truncate(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Formats an error with its causes and its hint.
pub(super) fn error_text(error: &CliError) -> String {
    let mut text = error.to_string();
    for cause in error.causes() {
        text.push_str(&format!(": {cause}"));
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}"));
    }
    text
}
