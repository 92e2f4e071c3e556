//! `ringfence remote`

mod body;
mod error;
mod exec;
mod manage;
mod pack;
mod skills;
mod sse;
mod tls;
mod url;
mod wire;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::CliError;

pub(crate) use error::RemoteError;
use wire::Service;

/// Use a service that somebody runs with `ringfence serve`
///
/// The token comes from `RINGFENCE_TOKEN` or from a file, and never stands on a command line, where
/// everybody on the machine would read it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  export RINGFENCE_URL=https://skills.example.org RINGFENCE_TOKEN=rf_…
  ringfence remote upload alice helper ./skills
  ringfence remote exec alice helper csv -- python3 convert.py data.csv
  ringfence remote log alice --blocked-only

Exit status: the command's own for `exec`; otherwise 0, or 125 if the service refused or could not
be reached.")]
pub(crate) struct RemoteCommand {
    #[command(flatten)]
    reach: Reach,
    #[command(subcommand)]
    command: Sub,
}

/// Where the service is, and how it is spoken to.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    /// Where it is [default: RINGFENCE_URL, or http://127.0.0.1:7420]
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// A file in which the token stands [default: the variable RINGFENCE_TOKEN]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// Certificates of those who vouch for it, PEM [default: this machine's]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// Print what the service answers, as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Upload(skills::Upload),
    List(skills::List),
    Files(skills::Files),
    Cat(skills::Cat),
    Edit(skills::Edit),
    Rm(skills::Rm),
    Exec(exec::Exec),
    Executions(exec::Executions),
    Cancel(exec::Cancel),
    Asks(manage::Asks),
    Answer(manage::Answer),
    Log(manage::Log),
    Tenants(manage::Tenants),
    Token(manage::TokenCommand),
    Policy(manage::PolicyCommand),
    Quotas(manage::Quotas),
}

impl RemoteCommand {
    pub(crate) fn wants_json(&self) -> bool {
        self.reach.json
    }
}

/// How an answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    ForPeople,
    AsJson,
}

pub(crate) fn run(arguments: RemoteCommand) -> Result<ExitCode, CliError> {
    let service = Service::new(&arguments.reach)?;
    let shown = if arguments.reach.json { Shown::AsJson } else { Shown::ForPeople };
    match arguments.command {
        Sub::Upload(arguments) => skills::upload(&service, &arguments, shown),
        Sub::List(arguments) => skills::list(&service, &arguments, shown),
        Sub::Files(arguments) => skills::files(&service, &arguments, shown),
        Sub::Cat(arguments) => skills::cat(&service, &arguments, shown),
        Sub::Edit(arguments) => skills::edit(&service, &arguments, shown),
        Sub::Rm(arguments) => skills::rm(&service, &arguments, shown),
        Sub::Exec(arguments) => return exec::exec(&service, &arguments, shown),
        Sub::Executions(arguments) => exec::executions(&service, &arguments, shown),
        Sub::Cancel(arguments) => exec::cancel(&service, &arguments, shown),
        Sub::Asks(_) => manage::asks(&service, shown),
        Sub::Answer(arguments) => manage::answer(&service, &arguments, shown),
        Sub::Log(arguments) => manage::log(&service, &arguments, shown),
        Sub::Tenants(_) => manage::tenants(&service, shown),
        Sub::Token(arguments) => manage::token(&service, arguments, shown),
        Sub::Policy(arguments) => manage::policy(&service, arguments, shown),
        Sub::Quotas(arguments) => manage::quotas(&service, &arguments, shown),
    }?;
    Ok(ExitCode::SUCCESS)
}
