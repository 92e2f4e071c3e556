//! `ringfence agent list`

use std::process::ExitCode;

use ringfence_engine::{AgentDefinition, UnreadableDefinition, agents, gather};
use ringfence_policy::Source;
use serde_json::{Value, json};

use super::AgentList;
use crate::commands::resolve_args::directory;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, printable};

pub(super) fn run(arguments: &AgentList) -> Result<ExitCode, CliError> {
    let facts = gather(&directory(arguments.directory.as_deref())?)?.facts;
    let (found, unread) = agents(&facts)?;
    if arguments.json {
        let found: Vec<Value> = found.iter().map(as_json).collect();
        let unread: Vec<Value> = unread.iter().map(unread_json).collect();
        output::json(&json!({ "agents": found, "unread": unread }))?;
    } else {
        output::text(&found.iter().map(as_text).collect::<String>())?;
        for UnreadableDefinition { error, .. } in &unread {
            messages::warning(&printable(&format!("this is not taken for an agent: {error}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whose a definition is.
pub(super) fn whose(source: &Source) -> &'static str {
    if *source == Source::Project { "project" } else { "user" }
}

fn as_text(described: &AgentDefinition) -> String {
    let agent = &described.agent;
    let about = agent.description.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
    let short: String = about.chars().take(72).collect();
    printable(&format!(
        "{:<24} {:<8} {:<20} {short}",
        agent.name,
        whose(&agent.source),
        what(described)
    ))
    .trim_end()
    .to_owned()
        + "\n"
}

/// What it may do with files, in a word or two.
fn what(described: &AgentDefinition) -> &'static str {
    let rules = super::show::rules(described);
    if rules.against_writing().is_some() { "reads" } else { "reads and writes" }
}

fn as_json(described: &AgentDefinition) -> Value {
    let agent = &described.agent;
    json!({
        "name": agent.name,
        "description": agent.description,
        "source": whose(&agent.source),
        "files": described.all().map(|agent| agent.file.to_string()).collect::<Vec<_>>(),
        "writes": super::show::rules(described).against_writing().is_none(),
    })
}

fn unread_json(unread: &UnreadableDefinition) -> Value {
    json!({ "file": unread.file.to_string(), "code": unread.error.code(), "message": unread.error.to_string(), "hint": unread.error.hint() })
}
