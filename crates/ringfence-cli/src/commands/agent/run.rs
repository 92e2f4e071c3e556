//! `ringfence agent run`

use std::ffi::OsString;
use std::process::ExitCode;

use ringfence_engine::AgentDefinition;
use ringfence_local::LocalProvider;
use ringfence_policy::{AgentSpec, Source};

use super::{AgentRun, named};
use crate::args::{RunArgs, ShellArg};
use crate::commands::run::{CommandAuthor, SandboxFlag, run_for};
use crate::error::CliError;

pub(super) fn run(arguments: AgentRun, local: &LocalProvider) -> Result<ExitCode, CliError> {
    let (described, _) = named(&arguments.name, &arguments.policy)?;
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
    let wall = match (sandbox, no_sandbox) {
        (true, _) => SandboxFlag::Wanted,
        (_, true) => SandboxFlag::Unwanted,
        _ => SandboxFlag::AsWritten,
    };
    let is_theirs = command.is_empty() && described.agent.source == Source::Project;
    let whose = if is_theirs { CommandAuthor::Projects } else { CommandAuthor::Persons };
    let (line, command) = what_is_run(&described, command)?;
    // By this, whatever it starts is known as the same agent.
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
    run_for(run, wall, whose, local)
}

/// A line for the shell, or words.
fn what_is_run(
    described: &AgentDefinition,
    typed: Vec<OsString>,
) -> Result<(Option<String>, Vec<OsString>), CliError> {
    use ringfence_policy::AgentProgram::{Line, Words};
    if !typed.is_empty() {
        return Ok((None, typed));
    }
    let AgentSpec { name, file, .. } = &described.agent;
    match &described.agent.command {
        Some(Line(line)) => Ok((Some(line.clone()), Vec::new())),
        Some(Words(words)) => Ok((None, words.iter().map(Into::into).collect())),
        None => Err(CliError::Words {
            what: format!("{file} does not say what is run for `{name}`"),
            hint: format!(
                "ringfence agent run {name} -- COMMAND, or write `command: …` into the definition"
            ),
        }),
    }
}
