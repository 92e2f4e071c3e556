//! `ringfence agent run`

use std::ffi::OsString;
use std::process::ExitCode;

use ringfence_engine::AgentDefinition;
use ringfence_policy::{AgentSpec, Source};

use super::{AgentRun, find_agent};
use crate::args::{RunArgs, ShellArg};
use crate::commands::run::{CommandAuthor, run_for};
use crate::error::CliError;
use crate::providers::EarlyProviders;

pub(super) fn run(arguments: AgentRun, providers: &EarlyProviders) -> Result<ExitCode, CliError> {
    let (definition, _) = find_agent(&arguments.name, &arguments.policy)?;
    let AgentRun {
        name,
        sandbox,
        no_sandbox,
        timeout,
        json,
        observe,
        ask,
        ask_timeout,
        command,
        mut policy,
    } = arguments;
    let sandbox = (sandbox || no_sandbox).then_some(sandbox);
    let is_from_project = command.is_empty() && definition.agent.source == Source::Project;
    let author = if is_from_project { CommandAuthor::Project } else { CommandAuthor::User };
    let (line, command) = line_or_words(&definition, command)?;
    // Processes that the agent starts inherit its name.
    policy.env.push(format!("RINGFENCE_AGENT={name}"));
    let (session, shell, keep_directory, quiet) = (None, ShellArg::Sh, false, false);
    let agent = Some(name);
    let run = RunArgs {
        timeout,
        json,
        quiet,
        agent,
        observe,
        ask,
        ask_timeout,
        session,
        line,
        shell,
        keep_directory,
        conversation: None,
        beside: false,
        command,
        policy,
    };
    run_for(run, sandbox, author, providers)
}

/// Returns a shell line or a command's words.
fn line_or_words(
    definition: &AgentDefinition,
    typed: Vec<OsString>,
) -> Result<(Option<String>, Vec<OsString>), CliError> {
    use ringfence_policy::AgentProgram::{Line, Words};
    if !typed.is_empty() {
        return Ok((None, typed));
    }
    let AgentSpec { name, file, .. } = &definition.agent;
    match &definition.agent.command {
        Some(Line(line)) => Ok((Some(line.clone()), Vec::new())),
        Some(Words(words)) => Ok((None, words.iter().map(Into::into).collect())),
        None => Err(CliError::Usage {
            what: format!("{file} defines no `command` for `{name}`"),
            hint: format!(
                "ringfence agent run {name} -- COMMAND, or add `command: …` to the definition"
            ),
        }),
    }
}
