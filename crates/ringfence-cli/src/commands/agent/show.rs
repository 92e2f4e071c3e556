//! `ringfence agent show`

use std::process::ExitCode;

use ringfence_engine::AgentDefinition;
use ringfence_policy::{AgentProgram, Grants, Mode, NetworkMode, Tool, ToolRules};
use serde_json::{Value, json};

use super::list::source_word;
use super::{AgentShow, find_agent};
use crate::commands::resolve_args::{RunOverrides, resolve_for_run};
use crate::error::CliError;
use crate::output::{self, printable};

/// Tools of agents that ringfence does not provide.
const OTHER_TOOLS: &[&str] = &["WebFetch", "WebSearch"];

pub(super) fn run(arguments: &AgentShow) -> Result<ExitCode, CliError> {
    let (definition, _) = find_agent(&arguments.name, &arguments.policy)?;
    let chosen = RunOverrides { agent: Some(&arguments.name), ..RunOverrides::default() };
    let grants = resolve_for_run(&arguments.policy, chosen)?.resolved.grants;
    if arguments.json {
        output::print_json(&as_json(&definition, &grants))?;
    } else {
        output::print_text(
            &as_text(&definition, &grants)
                .lines()
                .map(|line| printable(line) + "\n")
                .collect::<String>(),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the tool rules of the definitions alone.
pub(super) fn definition_rules(definition: &AgentDefinition) -> ToolRules {
    ToolRules::from_layers(
        &definition.all().map(ringfence_policy::AgentSpec::layer).collect::<Vec<_>>(),
    )
}

/// Returns each tool, and the rule that denies it, if any.
fn tools(grants: &Grants) -> Vec<(&'static str, Option<String>)> {
    let known = [Tool::Read, Tool::Write, Tool::Edit, Tool::List, Tool::Search, Tool::Shell];
    let names = known.into_iter().map(Tool::word).chain(OTHER_TOOLS.iter().copied());
    names
        .map(|name| {
            (
                name,
                grants
                    .tools
                    .rule_against(name)
                    .map(|rule| format!("{} ({})", rule.name, rule.origin)),
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

/// Describes the paths that can be written, and the rule that restricts them.
fn writing(grants: &Grants) -> String {
    match (grants.tools.rule_against_writing(), grants.mode) {
        _ if !grants.is_confined() => "all that you can write: nothing is confined".into(),
        (Some(rule), _) => format!("nothing in the project: {} ({})", rule.name, rule.origin),
        (None, Mode::ReadOnly) => "nothing in the project: the mode is read-only".into(),
        (None, _) => "the project".into(),
    }
}

fn network(grants: &Grants) -> &'static str {
    match grants.network.mode {
        _ if !grants.is_confined() => "unrestricted: nothing is confined",
        NetworkMode::None => "none",
        NetworkMode::AllowList => "the hosts that the policy lists",
        NetworkMode::Full => "unrestricted",
    }
}

fn as_text(definition: &AgentDefinition, grants: &Grants) -> String {
    let agent = &definition.agent;
    let mut text = format!("{} ({})\n", agent.name, source_word(&agent.source));
    if let Some(description) = &agent.description {
        text += &format!("  {}\n", description.lines().next().unwrap_or_default());
    }
    for agent in definition.all() {
        text += &format!("  defined in {}\n", agent.file);
    }
    text += &match &agent.command {
        Some(command) => format!("  runs       {}\n", line(command)),
        None => "  runs       the command after `--`\n".to_owned(),
    };
    text += &format!("  writes     {}\n  network    {}\n", writing(grants), network(grants));
    for (tool, denied_by) in tools(grants) {
        text += &match denied_by {
            Some(rule) => format!("  {tool:<10} no: {rule}\n"),
            None => format!("  {tool:<10} yes\n"),
        };
    }
    text
}

fn as_json(definition: &AgentDefinition, grants: &Grants) -> Value {
    let agent = &definition.agent;
    let tools: Vec<Value> = tools(grants)
        .into_iter()
        .map(|(tool, rule)| json!({ "tool": tool, "allowed": rule.is_none(), "rule": rule }))
        .collect();
    json!({
        "name": agent.name,
        "description": agent.description,
        "source": source_word(&agent.source),
        "files": definition.all().map(|agent| agent.file.to_string()).collect::<Vec<_>>(),
        "command": match &agent.command {
            Some(AgentProgram::Line(line)) => json!(line),
            Some(AgentProgram::Words(words)) => json!(words),
            None => Value::Null,
        },
        "confined": grants.is_confined(),
        "writes": grants.tools.rule_against_writing().is_none() && grants.mode != Mode::ReadOnly,
        "network": grants.network.mode.word(),
        "tools": tools,
    })
}
