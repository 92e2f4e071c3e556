//! `ringfence remote`

mod exec;
mod manage;
mod pack;
mod skills;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_client::{RemoteError, ServiceClient};

use crate::error::CliError;

/// Use a server started with `ringfence serve`
///
/// The token comes from `RINGFENCE_TOKEN` or from a file. It is never given on the command line,
/// where every user of the machine could read it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  export RINGFENCE_URL=https://skills.example.org RINGFENCE_TOKEN=rf_…
  ringfence remote upload alice helper ./skills
  ringfence remote exec alice helper csv -- python3 convert.py data.csv
  ringfence remote log alice --blocked-only

Exit status: the command's own for `exec`; otherwise 0, or 125 if the server refused the request or
could not be reached.")]
pub(crate) struct RemoteCommand {
    #[command(flatten)]
    service: ServiceArgs,
    #[command(subcommand)]
    command: RemoteSub,
}

/// The address of the server, and the credentials.
#[derive(Debug, Args)]
pub(crate) struct ServiceArgs {
    /// The server's URL [default: RINGFENCE_URL, or http://127.0.0.1:7420]
    #[arg(long, value_name = "URL", global = true)]
    url: Option<String>,
    /// A file with the token [default: the environment variable RINGFENCE_TOKEN]
    #[arg(long, value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The CA certificates for the server, PEM [default: the system's]
    #[arg(long, value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
    /// Print the server's response as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RemoteSub {
    Upload(skills::UploadArgs),
    List(skills::RemoteListArgs),
    Files(skills::RemoteFilesArgs),
    Cat(skills::CatArgs),
    Edit(skills::RemoteEditArgs),
    Rm(skills::RmArgs),
    Exec(exec::RemoteExecArgs),
    Executions(exec::RemoteExecutionsArgs),
    Cancel(exec::RemoteCancelArgs),
    Asks(manage::RemoteAsksArgs),
    Answer(manage::RemoteAnswerArgs),
    Log(manage::RemoteLogArgs),
    Tenants(manage::RemoteTenantsArgs),
    Token(manage::TokenCommand),
    Policy(manage::RemotePolicyCommand),
    Quotas(manage::RemoteQuotasArgs),
}

impl ServiceArgs {
    fn client(&self) -> Result<ServiceClient, RemoteError> {
        let given = std::env::var("RINGFENCE_URL").ok().filter(|url| !url.is_empty());
        let url = self.url.clone().or(given);
        let token = match &self.token_file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|source| RemoteError::TokenFile { path: path.clone(), source })?,
            None => std::env::var("RINGFENCE_TOKEN").map_err(|_| RemoteError::NoToken)?,
        };
        let url = url.as_deref().unwrap_or("http://127.0.0.1:7420");
        ServiceClient::new(url, &token, self.ca.as_deref())
    }
}

impl RemoteCommand {
    pub(crate) fn wants_json(&self) -> bool {
        self.service.json
    }
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemoteOutput {
    ForPeople,
    AsJson,
}

pub(crate) fn run(arguments: RemoteCommand) -> Result<ExitCode, CliError> {
    let service = arguments.service.client()?;
    let shown = if arguments.service.json { RemoteOutput::AsJson } else { RemoteOutput::ForPeople };
    match arguments.command {
        RemoteSub::Upload(arguments) => skills::upload(&service, &arguments, shown),
        RemoteSub::List(arguments) => skills::list(&service, &arguments, shown),
        RemoteSub::Files(arguments) => skills::files(&service, &arguments, shown),
        RemoteSub::Cat(arguments) => skills::cat(&service, &arguments, shown),
        RemoteSub::Edit(arguments) => skills::edit(&service, &arguments, shown),
        RemoteSub::Rm(arguments) => skills::rm(&service, &arguments, shown),
        RemoteSub::Exec(arguments) => return exec::exec(&service, &arguments, shown),
        RemoteSub::Executions(arguments) => exec::executions(&service, &arguments, shown),
        RemoteSub::Cancel(arguments) => exec::cancel(&service, &arguments, shown),
        RemoteSub::Asks(_) => manage::asks(&service, shown),
        RemoteSub::Answer(arguments) => manage::answer(&service, &arguments, shown),
        RemoteSub::Log(arguments) => manage::log(&service, &arguments, shown),
        RemoteSub::Tenants(_) => manage::tenants(&service, shown),
        RemoteSub::Token(arguments) => manage::token(&service, arguments, shown),
        RemoteSub::Policy(arguments) => manage::policy(&service, arguments, shown),
        RemoteSub::Quotas(arguments) => manage::quotas(&service, &arguments, shown),
    }?;
    Ok(ExitCode::SUCCESS)
}
