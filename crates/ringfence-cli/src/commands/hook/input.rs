//! The input of a hook.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::CliError;

/// The input of a hook call.
#[derive(Debug)]
pub(super) struct HookInput {
    pub(super) event: HookEvent,
    /// The current directory of the agent's shell.
    pub(super) cwd: PathBuf,
    /// The tool; empty for events without one.
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The conversation id, if it is a valid session name.
    pub(super) conversation: Option<String>,
    /// The call id, if it is a valid session name.
    pub(super) call: Option<String>,
    /// The agent's permission mode.
    pub(super) permission_mode: Option<String>,
    /// The type of the agent that makes the call, if it is a defined one.
    pub(super) agent_type: Option<String>,
    /// The transcript of the conversation.
    pub(super) transcript: Option<PathBuf>,
    /// The scratchpad directory.
    pub(super) scratchpad: Option<PathBuf>,
}

/// The event that called the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookEvent {
    /// Before a tool call: `PreToolUse`.
    Before,
    /// After a tool call: `PostToolUse`.
    After,
    /// After a failed tool call: `PostToolUseFailure`.
    Failed,
    /// A conversation begins: `SessionStart`.
    Start,
    /// A conversation ends: `SessionEnd`.
    End,
    /// An event that needs no reply.
    Other,
}

/// Events that need no reply. An unknown event is an error: it may let something through.
const UNANSWERED: &[&str] = &[
    "PermissionRequest",
    "PermissionDenied",
    "PostToolBatch",
    "UserPromptSubmit",
    "UserPromptExpansion",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "SubagentStop",
    "Setup",
    "Notification",
    "PreCompact",
    "PostCompact",
    "CwdChanged",
    "InstructionsLoaded",
];

impl HookEvent {
    fn parse(name: &str) -> Option<HookEvent> {
        Some(match name {
            "PreToolUse" => HookEvent::Before,
            "PostToolUse" => HookEvent::After,
            "PostToolUseFailure" => HookEvent::Failed,
            "SessionStart" => HookEvent::Start,
            "SessionEnd" => HookEvent::End,
            name if UNANSWERED.contains(&name) => HookEvent::Other,
            _ => return None,
        })
    }

    /// True if the event cannot be blocked.
    pub(super) fn is_unblockable(self) -> bool {
        self != HookEvent::Before
    }
}

impl HookInput {
    pub(super) fn parse(text: &str) -> Result<HookInput, CliError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("is not JSON: {error}")))?;
        let Value::Object(mut fields) = value else { return Err(wrong("is not a JSON object")) };
        let event = take(&mut fields, "hook_event_name")?;
        let event = HookEvent::parse(&event).ok_or_else(|| {
            wrong(format!("has the event `{event}`, which this version does not know"))
        })?;
        let cwd = PathBuf::from(take(&mut fields, "cwd")?);
        if !cwd.is_absolute() {
            return Err(wrong(format!(
                "has a `cwd` that is not an absolute path: `{}`",
                cwd.display()
            )));
        }
        let is_about_tool =
            matches!(event, HookEvent::Before | HookEvent::After | HookEvent::Failed);
        let tool = if is_about_tool { take(&mut fields, "tool_name")? } else { String::new() };
        let arguments = match fields.remove("tool_input") {
            Some(Value::Object(arguments)) => arguments,
            None | Some(Value::Null) if !is_about_tool => Map::new(),
            _ => return Err(wrong("has no object `tool_input`")),
        };
        let mut name = |key: &str| {
            fields
                .remove(key)
                .and_then(|name| Some(name.as_str().filter(|name| is_name(name))?.to_owned()))
        };
        let (conversation, call) = (name("session_id"), name("tool_use_id"));
        let mut text =
            |key: &str| fields.remove(key).and_then(|value| Some(value.as_str()?.to_owned()));
        let (permission_mode, agent_type) = (text("permission_mode"), text("agent_type"));
        let (transcript, scratchpad) =
            (text("transcript_path").map(PathBuf::from), text("scratchpad_dir").map(PathBuf::from));
        Ok(HookInput {
            event,
            cwd,
            tool,
            arguments,
            conversation,
            call,
            permission_mode,
            agent_type,
            transcript,
            scratchpad,
        })
    }

    /// Returns a string argument of the tool.
    pub(super) fn string_argument(&self, key: &str) -> Result<&str, CliError> {
        let text = self.arguments.get(key).and_then(Value::as_str);
        text.ok_or_else(|| wrong(format!("has no string `{key}` for the tool `{}`", self.tool)))
    }
}

/// True for a valid session name: it is used in a command line and in the log.
fn is_name(name: &str) -> bool {
    const LONGEST: usize = 128;
    !name.is_empty()
        && name.len() <= LONGEST
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !name.starts_with('-')
}

fn take(fields: &mut Map<String, Value>, key: &str) -> Result<String, CliError> {
    match fields.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(wrong(format!("has no string `{key}`"))),
    }
}

fn wrong(what: impl std::fmt::Display) -> CliError {
    CliError::Usage {
        what: format!("the hook's input {what}"),
        hint: "the agent calls hooks itself; docs/hooks.md describes the settings".into(),
    }
}
