//! `ringfence agent list`

use std::process::ExitCode;

use ringfence_engine::{
    AgentDefinition, UnreadableDefinition, gather_host_environment, list_agents,
};
use ringfence_policy::Source;
use serde_json::{Value, json};

use super::AgentList;
use crate::commands::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, printable};

pub(super) fn run(arguments: &AgentList) -> Result<ExitCode, CliError> {
    let facts =
        gather_host_environment(&canonical_directory(arguments.directory.as_deref())?)?.facts;
    let (found, unread) = list_agents(&facts)?;
    if arguments.json {
        let found: Vec<Value> = found.iter().map(as_json).collect();
        let unread: Vec<Value> = unread.iter().map(unread_json).collect();
        output::print_json(&json!({ "agents": found, "unread": unread }))?;
    } else {
        output::print_text(&found.iter().map(as_text).collect::<String>())?;
        for UnreadableDefinition { error, .. } in &unread {
            messages::print_warning(&printable(&format!(
                "ignored an invalid agent definition: {error}"
            )));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the word for the source of a definition.
pub(super) fn source_word(source: &Source) -> &'static str {
    if *source == Source::Project { "project" } else { "user" }
}

fn as_text(definition: &AgentDefinition) -> String {
    let agent = &definition.agent;
    let about = agent.description.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
    let short: String = about.chars().take(72).collect();
    printable(&format!(
        "{:<24} {:<8} {:<20} {short}",
        agent.name,
        source_word(&agent.source),
        access_word(definition)
    ))
    .trim_end()
    .to_owned()
        + "\n"
}

/// Returns the agent's access to files, in a few words.
fn access_word(definition: &AgentDefinition) -> &'static str {
    let rules = super::show::definition_rules(definition);
    if rules.rule_against_writing().is_some() { "reads" } else { "reads and writes" }
}

fn as_json(definition: &AgentDefinition) -> Value {
    let agent = &definition.agent;
    json!({
        "name": agent.name,
        "description": agent.description,
        "source": source_word(&agent.source),
        "files": definition.all().map(|agent| agent.file.to_string()).collect::<Vec<_>>(),
        "writes": super::show::definition_rules(definition).rule_against_writing().is_none(),
    })
}

fn unread_json(unread: &UnreadableDefinition) -> Value {
    json!({ "file": unread.file.to_string(), "code": unread.error.code(), "message": unread.error.to_string(), "hint": unread.error.hint() })
}
