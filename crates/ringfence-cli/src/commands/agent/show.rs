//! `ringfence agent show`

use std::process::ExitCode;

use ringfence_engine::Described;
use ringfence_policy::{AgentCommand, Grants, Mode, NetworkMode, Tool, ToolRules};
use serde_json::{Value, json};

use super::list::whose;
use super::{AgentShow, named};
use crate::commands::words::{Chosen, meant_to_run};
use crate::error::CliError;
use crate::show::{self, printable};

/// Tools that agents have beside ours.
const BESIDE: &[&str] = &["WebFetch", "WebSearch"];

pub(super) fn run(arguments: &AgentShow) -> Result<ExitCode, CliError> {
    let (described, _) = named(&arguments.name, &arguments.policy)?;
    let chosen = Chosen { agent: Some(&arguments.name), ..Chosen::default() };
    let grants = meant_to_run(&arguments.policy, chosen)?.resolved.grants;
    if arguments.json {
        show::json(&as_json(&described, &grants))?;
    } else {
        show::text(
            &as_text(&described, &grants)
                .lines()
                .map(|line| printable(line) + "\n")
                .collect::<String>(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What its definitions alone say of tools.
pub(super) fn rules(described: &Described) -> ToolRules {
    ToolRules::of(&described.all().map(ringfence_policy::Agent::layer).collect::<Vec<_>>())
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

fn line(command: &AgentCommand) -> String {
    match command {
        AgentCommand::Line(line) => line.clone(),
        AgentCommand::Words(words) => words.join(" "),
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

fn as_text(described: &Described, grants: &Grants) -> String {
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

fn as_json(described: &Described, grants: &Grants) -> Value {
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
            Some(AgentCommand::Line(line)) => json!(line),
            Some(AgentCommand::Words(words)) => json!(words),
            None => Value::Null,
        },
        "confined": grants.is_confined(),
        "writes": grants.tools.against_writing().is_none() && grants.mode != Mode::ReadOnly,
        "network": grants.network.mode.word(),
        "tools": tools,
    })
}
