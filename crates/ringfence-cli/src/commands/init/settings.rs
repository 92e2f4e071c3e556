//! The agents' own settings.

use std::collections::HashSet;
use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use ringfence_api::shell_word;
use ringfence_policy::{AbsPath, Facts};
use serde_json::Value;

use super::agents::InstalledAgent;
use super::draft::FileDraft;
use crate::error::CliError;
use crate::read_file::read_text;

/// The changes to an agent's settings.
#[derive(Default)]
pub(super) struct AgentSettings {
    pub(super) drafts: Vec<FileDraft>,
    pub(super) notes: Vec<String>,
}

/// Sets up an agent: with hooks if it has them, else with an MCP server.
pub(super) fn for_agent(agent: InstalledAgent, facts: &Facts) -> Result<AgentSettings, CliError> {
    let program = std::env::current_exe().map_err(|source| CliError::File {
        what: "find",
        path: "ringfence itself".into(),
        source,
    })?;
    match agent {
        InstalledAgent::ClaudeCode => claude_code(facts, &command(&program, "hook claude-code")),
        InstalledAgent::Codex => codex(facts, &command(&program, "hook codex")),
        InstalledAgent::Cursor => {
            server(facts, ".cursor/mcp.json", "mcpServers", program_entry(&program), "Cursor")
        }
        InstalledAgent::Gemini => server(
            facts,
            ".gemini/settings.json",
            "mcpServers",
            program_entry(&program),
            "Gemini CLI",
        ),
        InstalledAgent::Opencode => {
            let words = vec![text(&program.to_string_lossy()), text("mcp")];
            let fields = vec![
                field("type", text("local")),
                field("command", CstInputValue::Array(words)),
                field("enabled", true.into()),
            ];
            server(facts, "opencode.json", "mcp", CstInputValue::Object(fields), "opencode")
        }
    }
}

fn claude_code(facts: &Facts, command: &str) -> Result<AgentSettings, CliError> {
    // Not the shared file: the command holds a path of this machine.
    let file = facts.workspace.join(".claude/settings.local.json");
    let edit = |root: &CstObject| -> Option<()> {
        let hooks = object(root, "hooks")?;
        hook(&hooks, "PreToolUse", Some("*"), handler(command, HookFailureMode::Blocks), command)?;
        for event in ["PostToolUse", "PostToolUseFailure"] {
            hook(
                &hooks,
                event,
                Some("Bash|Monitor"),
                handler(command, HookFailureMode::Passes),
                command,
            )?;
        }
        for event in ["SessionStart", "SessionEnd"] {
            hook(&hooks, event, None, handler(command, HookFailureMode::Passes), command)?;
        }
        // Claude Code calls no hook for files that it attaches or searches by itself.
        let deny = array(&object(root, "permissions")?, "deny")?;
        for rule in [
            "Read(./**/.env)",
            "Read(~/.ssh/**)",
            "Read(~/.aws/**)",
            "Read(~/.gnupg/**)",
            "Read(~/.netrc)",
        ] {
            add(&deny, rule);
        }
        Some(())
    };
    let mut set_up =
        AgentSettings { drafts: vec![edited(file, &facts.workspace, edit)?], notes: Vec::new() };
    for name in ["settings.json", "settings.local.json"] {
        let shared = facts.workspace.join(".claude").join(name);
        if read_text(shared.as_path())?.is_some_and(|text| mentions_disable_hooks(&text)) {
            set_up
                .notes
                .push(format!("{shared} contains `disableAllHooks`: if it is true, Claude Code calls no hooks and nothing is confined"));
        }
    }
    Ok(set_up)
}

/// True if the settings contain `disableAllHooks`, also if its name is escaped.
fn mentions_disable_hooks(text: &str) -> bool {
    text.contains("disableAllHooks")
        || read(text).is_some_and(|whole| whole.get("disableAllHooks").is_some())
}

fn codex(facts: &Facts, command: &str) -> Result<AgentSettings, CliError> {
    let file = facts.workspace.join(".codex/hooks.json");
    let edit = |root: &CstObject| -> Option<()> {
        let hooks = object(root, "hooks")?;
        let plain = || {
            CstInputValue::Object(vec![
                field("type", text("command")),
                field("command", text(command)),
            ])
        };
        for event in ["PreToolUse", "PostToolUse"] {
            hook(&hooks, event, Some(".*"), plain(), command)?;
        }
        hook(&hooks, "SessionStart", None, plain(), command)
    };
    let note = "Codex calls no hook before you trust it: start `codex` in this project and use `/hooks`. Codex runs commands in its own sandbox; if ringfence cannot create a sandbox inside it, commands fail with status 125: `codex --sandbox danger-full-access` leaves the confinement to ringfence";
    Ok(AgentSettings {
        drafts: vec![edited(file, &facts.workspace, edit)?],
        notes: vec![note.into()],
    })
}

/// Adds an MCP server, for agents without hooks that could confine their own tools.
fn server(
    facts: &Facts,
    name: &str,
    key: &str,
    entry: CstInputValue,
    agent: &str,
) -> Result<AgentSettings, CliError> {
    let edit = |root: &CstObject| -> Option<()> {
        let servers = object(root, key)?;
        let Some(known) = servers.get("ringfence") else {
            servers.append("ringfence", entry.clone());
            return Some(());
        };
        // The arguments may differ. Another program under our name may be an impostor.
        let program = |entry: Value| {
            entry.get("command").map(|command| command.get(0).unwrap_or(command).clone())
        };
        (program(read(&known.value()?.to_string())?)? == program(value(&entry)?)?).then_some(())
    };
    let draft = edited(facts.workspace.join(name), &facts.workspace, edit)?;
    let note = format!(
        "{agent} gets ringfence's tools in addition to its own, which are not confined: turn off its own shell and file tools"
    );
    Ok(AgentSettings { drafts: vec![draft], notes: vec![note] })
}

/// Edits a JSON file, and keeps its other content.
fn edited(
    file: AbsPath,
    project: &AbsPath,
    edit: impl Fn(&CstObject) -> Option<()>,
) -> Result<FileDraft, CliError> {
    let before = read_text(file.as_path())?;
    let wrong = |what: String| CliError::Usage {
        what: format!("cannot edit {file}: {what}"),
        hint: "fix the file, or select other agents with `--agent`".into(),
    };
    let text = before.as_deref().filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
    let root = CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| wrong(error.to_string()))?;
    let whole = root.object_value().ok_or_else(|| wrong("it is not a JSON object".into()))?;
    if let Some(name) = root.value().as_ref().and_then(duplicate_key) {
        return Err(wrong(format!("the key `{name}` occurs twice")));
    }
    edit(&whole).ok_or_else(|| wrong("a setting has an unexpected type or value".into()))?;
    FileDraft::in_project(file.clone(), before, root.to_string(), project)
}

/// Adds `command` to an event, unless it is there already. Corrects an entry of another ringfence
/// or of an impostor.
fn hook(
    hooks: &CstObject,
    event: &str,
    matcher: Option<&str>,
    handler: CstInputValue,
    command: &str,
) -> Option<()> {
    let groups = array(hooks, event)?;
    let (_, words) = command.rsplit_once(" hook ")?;
    let expect = value(&handler)?;
    let mut is_called = false;
    for group in groups.elements().iter().filter_map(CstNode::as_object) {
        // A group with another matcher is called for other tools only, and one with more keys
        // perhaps never.
        let entry = read(&group.to_string()).unwrap_or_default();
        let is_whole = entry.get("matcher").and_then(Value::as_str) == matcher
            && entry.as_object()?.keys().all(|key| ["matcher", "hooks"].contains(&key.as_str()));
        for known in group
            .array_value("hooks")
            .into_iter()
            .flat_map(|list| list.elements())
            .filter_map(|known| known.as_object())
        {
            let entry = read(&known.to_string()).unwrap_or_default();
            let line = entry.get("command").and_then(Value::as_str).unwrap_or_default();
            if line != command
                && !(line.contains("ringfence") && line.ends_with(&format!(" hook {words}")))
            {
                continue;
            }
            if !is_equivalent(&entry, &expect) {
                known.replace_with(handler.clone());
            }
            is_called |= is_whole;
        }
    }
    if is_called {
        return Some(());
    }
    let mut group: Vec<(String, CstInputValue)> =
        matcher.map(|matcher| field("matcher", text(matcher))).into_iter().collect();
    group.push(field("hooks", CstInputValue::Array(vec![handler])));
    groups.append(CstInputValue::Object(group));
    groups.ensure_multiline();
    Some(())
}

/// True if a handler is the expected one; the user may have raised its timeout.
fn is_equivalent(found: &Value, expect: &Value) -> bool {
    let mut found = found.clone();
    let time = expect.get("timeout").and_then(Value::as_f64).unwrap_or_default();
    if found.get("timeout").and_then(Value::as_f64).is_some_and(|given| given >= time) && time > 0.0
    {
        found["timeout"] = expect["timeout"].clone();
    }
    found == *expect
}

/// Converts a value to write into the value that a reader parses.
fn value(input: &CstInputValue) -> Option<Value> {
    let root = CstRootNode::parse("{}", &ParseOptions::default()).ok()?;
    root.object_value()?.append("x", input.clone());
    read(&root.to_string())?.get("x").cloned()
}

fn read(text: &str) -> Option<Value> {
    jsonc_parser::parse_to_serde_value(text, &ParseOptions::default()).ok()
}

/// Returns a key that occurs twice in one object: two readers may pick different ones.
fn duplicate_key(node: &CstNode) -> Option<String> {
    if let Some(list) = node.as_array() {
        return list.elements().iter().find_map(duplicate_key);
    }
    let mut known = HashSet::new();
    for property in node.as_object()?.properties() {
        let name = property.name()?.decoded_value().ok()?;
        if !known.insert(name.clone()) {
            return Some(name);
        }
        if let Some(below) = property.value().as_ref().and_then(duplicate_key) {
            return Some(below);
        }
    }
    None
}

/// The effect of a failing hook on the tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookFailureMode {
    Blocks,
    Passes,
}

fn handler(command: &str, failing: HookFailureMode) -> CstInputValue {
    let mut fields = vec![
        field("type", text("command")),
        field("command", text(command)),
        field("timeout", 30.into()),
    ];
    if failing == HookFailureMode::Blocks {
        // Since Claude Code 2.1.295; older versions ignore it.
        fields.push(field("onFailure", text("block")));
    }
    CstInputValue::Object(fields)
}

/// Returns the object at `key`, created if missing; `None` if the value has another type.
fn object(within: &CstObject, key: &str) -> Option<CstObject> {
    within.object_value_or_create(key)
}

fn array(within: &CstObject, key: &str) -> Option<CstArray> {
    within.array_value_or_create(key)
}

fn add(list: &CstArray, word: &str) {
    let is_present = |value: jsonc_parser::cst::CstNode| {
        value.as_string_lit().and_then(|text| text.decoded_value().ok()).as_deref() == Some(word)
    };
    if !list.elements().into_iter().any(is_present) {
        list.append(text(word));
        list.ensure_multiline();
    }
}

fn text(text: &str) -> CstInputValue {
    CstInputValue::String(text.to_owned())
}

fn field(key: &str, value: CstInputValue) -> (String, CstInputValue) {
    (key.to_owned(), value)
}

/// Returns the shell command line of the hook.
fn command(program: &Path, words: &str) -> String {
    format!("{} {words}", shell_word(&program.to_string_lossy()))
}

fn program_entry(program: &Path) -> CstInputValue {
    let words = CstInputValue::Array(vec![text("mcp")]);
    CstInputValue::Object(vec![
        field("command", text(&program.to_string_lossy())),
        field("args", words),
    ])
}
