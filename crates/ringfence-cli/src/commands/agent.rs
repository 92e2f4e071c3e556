//! `ringfence agent`

mod list;
mod run;
mod show;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_engine::{AgentDefinition, gather_host_environment, list_agents};
use ringfence_policy::{AbsPath, Facts};

use super::resolve_args::canonical_directory;
use crate::args::{AskArg, ObserveArg, PolicyArgs};
use crate::error::CliError;
use crate::providers::EarlyProviders;

/// Run agents with a restricted set of tools
///
/// A Markdown file with a front matter defines an agent: in `.ringfence/agents` or `.claude/agents`
/// of the project, or in `~/.config/ringfence/agents` or `~/.claude/agents`. docs/agents.md
/// describes the keys.
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

/// Run an agent in the sandbox, without the tools that its definition denies
///
/// ringfence refuses the denied tools in every interface (CLI, hooks, HTTP, MCP). If the tools that
/// write are denied, no process of the agent can write in the project.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent run reviewer
  ringfence agent run reviewer -- claude -p 'review the last commit'
  ringfence agent run code-architect --no-sandbox -- make

Exit status: as for `ringfence run`.")]
pub(crate) struct AgentRun {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Confine the agent, even if a policy turns the sandbox off
    #[arg(long, overrides_with = "no_sandbox")]
    sandbox: bool,
    /// Do not confine the agent; needs `allow-unsandboxed-commands = true` in the policy
    #[arg(long, overrides_with = "sandbox")]
    no_sandbox: bool,
    /// End the agent after this long (`90s`, `5m`, `2h`)
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Print one JSON object with the outcome instead of its output
    #[arg(long)]
    json: bool,
    /// The events to report, as for `ringfence run`
    #[arg(long, value_enum, value_name = "EVENTS")]
    observe: Option<ObserveArg>,
    /// Ask on the terminal before an access is denied; `--ask=never` overrides a policy that asks
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "terminal")]
    ask: Option<AskArg>,
    /// Deny the access if there is no answer within this time [default: 60s]
    #[arg(long, value_name = "DURATION")]
    ask_timeout: Option<String>,
    /// The command to run [default: `command` in the definition]
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<OsString>,
    #[command(flatten)]
    policy: PolicyArgs,
}

/// List the defined agents
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

/// Show an agent's permissions
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence agent show reviewer")]
pub(crate) struct AgentShow {
    /// The agent
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

pub(crate) fn run(
    arguments: AgentCommand,
    providers: &EarlyProviders,
) -> Result<ExitCode, CliError> {
    match arguments.command {
        AgentSub::Run(arguments) => run::run(arguments, providers),
        AgentSub::List(arguments) => list::run(&arguments),
        AgentSub::Show(arguments) => show::run(&arguments),
    }
}

/// Returns the definition of an agent, and its working directory.
fn find_agent(name: &str, policy: &PolicyArgs) -> Result<(AgentDefinition, AbsPath), CliError> {
    let cwd = canonical_directory(policy.directory.as_deref())?;
    let facts = gather_host_environment(&cwd)?.facts;
    match ringfence_engine::find_agent(name, &facts)? {
        Some(definition) => Ok((definition, cwd)),
        None => Err(unknown(name, &facts)),
    }
}

fn unknown(name: &str, facts: &Facts) -> CliError {
    let known: Vec<String> = list_agents(facts)
        .map(|(found, _)| found.into_iter().map(|one| one.agent.name).collect())
        .unwrap_or_default();
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = match ringfence_policy::nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => {
            format!("define it in .ringfence/agents/{name}.md; see docs/agents.md")
        }
        None => format!("known agents: {}", known.join(", ")),
    };
    CliError::Usage { what: format!("no agent `{name}` is defined"), hint }
}
