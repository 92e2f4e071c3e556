//! The agents' own settings.

use std::collections::HashSet;
use std::path::Path;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use ringfence_api::typed;
use ringfence_policy::{AbsPath, Facts};
use serde_json::Value;

use super::agents::InstalledAgent;
use super::draft::FileDraft;
use crate::error::CliError;
use crate::read_file::text_of;

/// What an agent's settings have to say.
#[derive(Default)]
pub(super) struct AgentSettings {
    pub(super) drafts: Vec<FileDraft>,
    pub(super) notes: Vec<String>,
}

/// Sets an agent up by what it offers: hooks if it has them, else a server of tools.
pub(super) fn of(agent: InstalledAgent, facts: &Facts) -> Result<AgentSettings, CliError> {
    let program = std::env::current_exe().map_err(|source| CliError::File {
        what: "find",
        path: "ringfence itself".into(),
        source,
    })?;
    match agent {
        InstalledAgent::ClaudeCode => claude_code(facts, &command(&program, "hook claude-code")),
        InstalledAgent::Codex => codex(facts, &command(&program, "hook codex")),
        InstalledAgent::Cursor => {
            server(facts, ".cursor/mcp.json", "mcpServers", plain(&program), "Cursor")
        }
        InstalledAgent::Gemini => {
            server(facts, ".gemini/settings.json", "mcpServers", plain(&program), "Gemini CLI")
        }
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
    // Not the file that is shared: it has paths of this machine.
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
        // What the agent attaches by itself, and what it searches, asks no hook.
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
        if text_of(shared.as_path())?.is_some_and(|text| switches_off(&text)) {
            set_up
                .notes
                .push(format!("{shared} speaks of `disableAllHooks`: if it is true there, no hook is called and nothing is confined"));
        }
    }
    Ok(set_up)
}

/// Whether a file speaks of it, however it is spelled.
fn switches_off(text: &str) -> bool {
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
    let note = "Codex calls no hook before you trust it: start `codex` in this project and use `/hooks`. Its own sandbox stands around ours; where ours cannot be made in it, commands fail with status 125: `codex --sandbox danger-full-access` leaves confining to ringfence";
    Ok(AgentSettings {
        drafts: vec![edited(file, &facts.workspace, edit)?],
        notes: vec![note.into()],
    })
}

/// A server of tools, for agents that have no hooks that could confine their own.
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
        // Words may be others; a program that is not ours is somebody's who wants to be taken for
        // us.
        let program = |entry: Value| {
            entry.get("command").map(|command| command.get(0).unwrap_or(command).clone())
        };
        (program(read(&known.value()?.to_string())?)? == program(value(&entry)?)?).then_some(())
    };
    let draft = edited(facts.workspace.join(name), &facts.workspace, edit)?;
    let note = format!(
        "{agent} gets ringfence's tools beside its own, which are not confined: switch its own shell and file tools off"
    );
    Ok(AgentSettings { drafts: vec![draft], notes: vec![note] })
}

/// A JSON file with something more in it, and all else as it was.
fn edited(
    file: AbsPath,
    project: &AbsPath,
    edit: impl Fn(&CstObject) -> Option<()>,
) -> Result<FileDraft, CliError> {
    let before = text_of(file.as_path())?;
    let wrong = |what: String| CliError::Words {
        what: format!("{file} is left as it is: {what}"),
        hint: "mend it, or leave this agent out with `--agent`".into(),
    };
    let text = before.as_deref().filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
    let root = CstRootNode::parse(text, &ParseOptions::default())
        .map_err(|error| wrong(error.to_string()))?;
    let whole = root.object_value().ok_or_else(|| wrong("it is no JSON object".into()))?;
    if let Some(name) = root.value().as_ref().and_then(twice) {
        return Err(wrong(format!("`{name}` stands there twice")));
    }
    edit(&whole).ok_or_else(|| wrong("something else stands where the settings would".into()))?;
    FileDraft::within(file.clone(), before, root.to_string(), project)
}

/// Calls `command` on an event, unless it is called already. One that another ringfence put there,
/// or somebody who wants to be taken for one, is put right.
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
        // A group for other tools is called for those alone, and one with more to say perhaps
        // never.
        let said = read(&group.to_string()).unwrap_or_default();
        let is_whole = said.get("matcher").and_then(Value::as_str) == matcher
            && said.as_object()?.keys().all(|key| ["matcher", "hooks"].contains(&key.as_str()));
        for known in group
            .array_value("hooks")
            .into_iter()
            .flat_map(|list| list.elements())
            .filter_map(|known| known.as_object())
        {
            let said = read(&known.to_string()).unwrap_or_default();
            let line = said.get("command").and_then(Value::as_str).unwrap_or_default();
            if line != command
                && !(line.contains("ringfence") && line.ends_with(&format!(" hook {words}")))
            {
                continue;
            }
            if !is_as_good(&said, &expect) {
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

/// Whether a handler is the one that is expected; a person may have given it more time.
fn is_as_good(said: &Value, expect: &Value) -> bool {
    let mut said = said.clone();
    let time = expect.get("timeout").and_then(Value::as_f64).unwrap_or_default();
    if said.get("timeout").and_then(Value::as_f64).is_some_and(|given| given >= time) && time > 0.0
    {
        said["timeout"] = expect["timeout"].clone();
    }
    said == *expect
}

/// What is to be written, as whoever reads it would.
fn value(input: &CstInputValue) -> Option<Value> {
    let root = CstRootNode::parse("{}", &ParseOptions::default()).ok()?;
    root.object_value()?.append("x", input.clone());
    read(&root.to_string())?.get("x").cloned()
}

fn read(text: &str) -> Option<Value> {
    jsonc_parser::parse_to_serde_value(text, &ParseOptions::default()).ok()
}

/// A name that stands twice in one object: of two readers, each may take another one.
fn twice(node: &CstNode) -> Option<String> {
    if let Some(list) = node.as_array() {
        return list.elements().iter().find_map(twice);
    }
    let mut known = HashSet::new();
    for property in node.as_object()?.properties() {
        let name = property.name()?.decoded_value().ok()?;
        if !known.insert(name.clone()) {
            return Some(name);
        }
        if let Some(below) = property.value().as_ref().and_then(twice) {
            return Some(below);
        }
    }
    None
}

/// What becomes of a call whose hook fails.
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
        // From version 2.1.295 on; older ones do not mind it.
        fields.push(field("onFailure", text("block")));
    }
    CstInputValue::Object(fields)
}

/// An object in another, made if it is missing; `None` if something else stands there.
fn object(within: &CstObject, key: &str) -> Option<CstObject> {
    within.object_value_or_create(key)
}

fn array(within: &CstObject, key: &str) -> Option<CstArray> {
    within.array_value_or_create(key)
}

fn add(list: &CstArray, word: &str) {
    let is_there = |value: jsonc_parser::cst::CstNode| {
        value.as_string_lit().and_then(|text| text.decoded_value().ok()).as_deref() == Some(word)
    };
    if !list.elements().into_iter().any(is_there) {
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

/// A line for the shell that runs the hook.
fn command(program: &Path, words: &str) -> String {
    format!("{} {words}", typed(&program.to_string_lossy()))
}

fn plain(program: &Path) -> CstInputValue {
    let words = CstInputValue::Array(vec![text("mcp")]);
    CstInputValue::Object(vec![
        field("command", text(&program.to_string_lossy())),
        field("args", words),
    ])
}
