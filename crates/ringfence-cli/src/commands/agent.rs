//! `ringfence agent`

mod list;
mod run;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_engine::{AgentDefinition, agents, gather};
use ringfence_local::LocalProvider;
use ringfence_policy::{AbsPath, Facts};

use super::resolve_args::directory;
use crate::args::{AskArg, ObserveArg, PolicyArgs};
use crate::error::CliError;

/// Run agents with the tools that they are to have, and no others
///
/// An agent is described by a Markdown file with a head: in `.ringfence/agents` or `.claude/agents`
/// of the project, or in `~/.config/ringfence/agents` or `~/.claude/agents`. docs/agents.md has the
/// keys.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent list
  ringfence agent run reviewer")]
pub(crate) struct AgentCommand {
    #[command(subcommand)]
    command: AgentSub,
}

#[derive(Debug, Subcommand)]
enum AgentSub {
    Run(AgentRun),
    List(AgentList),
    Show(AgentShow),
}

impl AgentCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            AgentSub::Run(arguments) => arguments.json,
            AgentSub::List(arguments) => arguments.json,
            AgentSub::Show(arguments) => arguments.json,
        }
    }
}

/// Run an agent in the sandbox, without what its definition takes from it
///
/// Tools that are taken from it are refused by every door of ringfence. Without those that write,
/// nothing in the project can be written by anything that it starts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent run reviewer
  ringfence agent run reviewer -- claude -p 'review the last commit'
  ringfence agent run code-architect --no-sandbox -- make

Exit status: as of `ringfence run`.")]
pub(crate) struct AgentRun {
    /// Which agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Confine it, also where a policy has switched the sandbox off
    #[arg(long, overrides_with = "no_sandbox")]
    sandbox: bool,
    /// Do not confine it; only where the policy says `allow-unsandboxed-commands = true`
    #[arg(long, overrides_with = "sandbox")]
    no_sandbox: bool,
    /// End it after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Print one JSON object with the outcome instead of its output
    #[arg(long)]
    json: bool,
    /// What to tell of the run, as for `ringfence run`
    #[arg(long, value_enum, value_name = "WHAT")]
    observe: Option<ObserveArg>,
    /// Ask on the terminal about what is about to be refused; `--ask=never` if a policy says
    /// otherwise
    #[arg(long, value_enum, value_name = "WHOM", num_args = 0..=1, require_equals = true, default_missing_value = "terminal")]
    ask: Option<AskArg>,
    /// How long an answer may take; then it is denied [default: 60s]
    #[arg(long, value_name = "DURATION")]
    ask_timeout: Option<String>,
    /// What is run for it [default: `command` of its definition]
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// List the agents that are described, and where
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent list --json")]
pub(crate) struct AgentList {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Start in this directory
    #[arg(short = 'C', value_name = "DIR")]
    directory: Option<std::path::PathBuf>,
}

/// Show what an agent may do
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent show reviewer")]
pub(crate) struct AgentShow {
    /// Which agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(arguments: AgentCommand, local: &LocalProvider) -> Result<ExitCode, CliError> {
    match arguments.command {
        AgentSub::Run(arguments) => run::run(arguments, local),
        AgentSub::List(arguments) => list::run(&arguments),
        AgentSub::Show(arguments) => show::run(&arguments),
    }
}

/// The agent of this name, and the directory it is run in.
fn named(name: &str, policy: &PolicyArgs) -> Result<(AgentDefinition, AbsPath), CliError> {
    let cwd = directory(policy.directory.as_deref())?;
    let facts = gather(&cwd)?.facts;
    match ringfence_engine::agent(name, &facts)? {
        Some(described) => Ok((described, cwd)),
        None => Err(unknown(name, &facts)),
    }
}

fn unknown(name: &str, facts: &Facts) -> CliError {
    let known: Vec<String> = agents(facts)
        .map(|(found, _)| found.into_iter().map(|one| one.agent.name).collect())
        .unwrap_or_default();
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = match ringfence_policy::nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => {
            format!("describe it in .ringfence/agents/{name}.md; docs/agents.md says how")
        }
        None => format!("there are: {}", known.join(", ")),
    };
    CliError::Words { what: format!("no agent is called `{name}`"), hint }
}
