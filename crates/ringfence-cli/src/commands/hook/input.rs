//! What an agent says of the call it is about to make, or has made.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::error::CliError;

/// One call of a hook.
#[derive(Debug)]
pub(super) struct HookInput {
    pub(super) event: HookEvent,
    /// Where the agent's shell stands.
    pub(super) cwd: PathBuf,
    /// Which tool; empty where the event is about none.
    pub(super) tool: String,
    pub(super) arguments: Map<String, Value>,
    /// The conversation, if it has a name that can be a name of ours.
    pub(super) conversation: Option<String>,
    /// The name of the call, if it has one that can be a name of ours.
    pub(super) call: Option<String>,
    /// How much the agent asks before it does something.
    pub(super) permission_mode: Option<String>,
    /// Which of the agents it has described is at work, if it is one of those.
    pub(super) described: Option<String>,
    /// Where the conversation is written down.
    pub(super) transcript: Option<PathBuf>,
    /// A directory for scraps.
    pub(super) scraps: Option<PathBuf>,
}

/// When the hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookEvent {
    /// A tool is about to be used: `PreToolUse`.
    Before,
    /// It was used: `PostToolUse`.
    After,
    /// It was used, and failed: `PostToolUseFailure`.
    Failed,
    /// A conversation begins: `SessionStart`.
    Start,
    /// A conversation ends: `SessionEnd`.
    End,
    /// Something else that there is no need to answer.
    Other,
}

/// Events that need no answer. One that is not known may be about to let something through.
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
    fn of(name: &str) -> Option<HookEvent> {
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

    /// Whether it is about what has happened, and blocks nothing.
    pub(super) fn is_over(self) -> bool {
        self != HookEvent::Before
    }
}

impl HookInput {
    pub(super) fn parse(text: &str) -> Result<HookInput, CliError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
        let Value::Object(mut fields) = value else { return Err(wrong("is no JSON object")) };
        let event = take(&mut fields, "hook_event_name")?;
        let event = HookEvent::of(&event).ok_or_else(|| {
            wrong(format!("is about `{event}`, which this version does not know"))
        })?;
        let cwd = PathBuf::from(take(&mut fields, "cwd")?);
        if !cwd.is_absolute() {
            return Err(wrong(format!(
                "has a `cwd` that is no absolute path: `{}`",
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
        let (permission_mode, described) = (text("permission_mode"), text("agent_type"));
        let (transcript, scraps) =
            (text("transcript_path").map(PathBuf::from), text("scratchpad_dir").map(PathBuf::from));
        Ok(HookInput {
            event,
            cwd,
            tool,
            arguments,
            conversation,
            call,
            permission_mode,
            described,
            transcript,
            scraps,
        })
    }

    /// An argument of the tool that has to be a text.
    pub(super) fn text(&self, key: &str) -> Result<&str, CliError> {
        let text = self.arguments.get(key).and_then(Value::as_str);
        text.ok_or_else(|| wrong(format!("has no text `{key}` for the tool `{}`", self.tool)))
    }
}

/// Whether a run can have this name: it stands in a command line and in the log.
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
        _ => Err(wrong(format!("has no text `{key}`"))),
    }
}

fn wrong(what: impl std::fmt::Display) -> CliError {
    CliError::Words {
        what: format!("the hook's input {what}"),
        hint: "hooks are called by the agent itself; docs/hooks.md has the settings".into(),
    }
}
