//! `ringfence agent show`

use std::process::ExitCode;

use ringfence_engine::AgentDefinition;
use ringfence_policy::{AgentProgram, Grants, Mode, NetworkMode, Tool, ToolRules};
use serde_json::{Value, json};

use super::list::whose;
use super::{AgentShow, named};
use crate::commands::resolve_args::{RunOverrides, meant_to_run};
use crate::error::CliError;
use crate::output::{self, printable};

/// Tools that agents have beside ours.
const BESIDE: &[&str] = &["WebFetch", "WebSearch"];

pub(super) fn run(arguments: &AgentShow) -> Result<ExitCode, CliError> {
    let (described, _) = named(&arguments.name, &arguments.policy)?;
    let chosen = RunOverrides { agent: Some(&arguments.name), ..RunOverrides::default() };
    let grants = meant_to_run(&arguments.policy, chosen)?.resolved.grants;
    if arguments.json {
        output::json(&as_json(&described, &grants))?;
    } else {
        output::text(
            &as_text(&described, &grants)
                .lines()
                .map(|line| printable(line) + "\n")
                .collect::<String>(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What its definitions alone say of tools.
pub(super) fn rules(described: &AgentDefinition) -> ToolRules {
    ToolRules::of(&described.all().map(ringfence_policy::AgentSpec::layer).collect::<Vec<_>>())
}

/// A tool, and the rule that takes it away.
fn tools(grants: &Grants) -> Vec<(&'static str, Option<String>)> {
    let known = [Tool::Read, Tool::Write, Tool::Edit, Tool::List, Tool::Search, Tool::Shell];
    let names = known.into_iter().map(Tool::word).chain(BESIDE.iter().copied());
    names
        .map(|name| {
            (
                name,
                grants.tools.against(name).map(|rule| format!("{} ({})", rule.name, rule.origin)),
            )
        })
        .collect()
}

fn line(command: &AgentProgram) -> String {
    match command {
        AgentProgram::Line(line) => line.clone(),
        AgentProgram::Words(words) => words.join(" "),
    }
}

/// What may be written of files, in words, and why not more.
fn writing(grants: &Grants) -> String {
    match (grants.tools.against_writing(), grants.mode) {
        _ if !grants.is_confined() => "everything you can: nothing is confined".into(),
        (Some(rule), _) => format!("nothing in the project: {} ({})", rule.name, rule.origin),
        (None, Mode::ReadOnly) => "nothing in the project: the mode is read-only".into(),
        (None, _) => "the project".into(),
    }
}

fn network(grants: &Grants) -> &'static str {
    match grants.network.mode {
        _ if !grants.is_confined() => "all of it: nothing is confined",
        NetworkMode::None => "none",
        NetworkMode::AllowList => "the hosts that the policy lists",
        NetworkMode::Full => "all of it",
    }
}

fn as_text(described: &AgentDefinition, grants: &Grants) -> String {
    let agent = &described.agent;
    let mut text = format!("{} ({})\n", agent.name, whose(&agent.source));
    if let Some(description) = &agent.description {
        text += &format!("  {}\n", description.lines().next().unwrap_or_default());
    }
    for agent in described.all() {
        text += &format!("  defined in {}\n", agent.file);
    }
    text += &match &agent.command {
        Some(command) => format!("  runs       {}\n", line(command)),
        None => "  runs       what is typed behind `--`\n".to_owned(),
    };
    text += &format!("  writes     {}\n  network    {}\n", writing(grants), network(grants));
    for (tool, taken) in tools(grants) {
        text += &match taken {
            Some(rule) => format!("  {tool:<10} no: {rule}\n"),
            None => format!("  {tool:<10} yes\n"),
        };
    }
    text
}

fn as_json(described: &AgentDefinition, grants: &Grants) -> Value {
    let agent = &described.agent;
    let tools: Vec<Value> = tools(grants)
        .into_iter()
        .map(|(tool, rule)| json!({ "tool": tool, "allowed": rule.is_none(), "rule": rule }))
        .collect();
    json!({
        "name": agent.name,
        "description": agent.description,
        "source": whose(&agent.source),
        "files": described.all().map(|agent| agent.file.to_string()).collect::<Vec<_>>(),
        "command": match &agent.command {
            Some(AgentProgram::Line(line)) => json!(line),
            Some(AgentProgram::Words(words)) => json!(words),
            None => Value::Null,
        },
        "confined": grants.is_confined(),
        "writes": grants.tools.against_writing().is_none() && grants.mode != Mode::ReadOnly,
        "network": grants.network.mode.word(),
        "tools": tools,
    })
}
