//! One file per subcommand.

pub(crate) mod agent;
pub(crate) mod cache;
pub(crate) mod configure;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod learn;
pub(crate) mod log;
pub(crate) mod mcp;
mod nested;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod question;
pub(crate) mod remote;
pub(crate) mod resolve_args;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod test;
pub(crate) mod tool;

use std::process::ExitCode;

use crate::args::{Arguments, CliCommand};
use crate::error::CliError;
use crate::providers::EarlyProviders;

pub(crate) fn run(arguments: Arguments, providers: &EarlyProviders) -> Result<ExitCode, CliError> {
    let makes_sandboxes = arguments.command.creates_sandbox();
    let result = dispatch(arguments, providers);
    if makes_sandboxes { result.map_err(nested::explain_nested) } else { result }
}

fn dispatch(arguments: Arguments, providers: &EarlyProviders) -> Result<ExitCode, CliError> {
    match arguments.command {
        CliCommand::Run(arguments) => run::run(arguments, providers),
        CliCommand::Shell(arguments) => run::run(arguments.into(), providers),
        CliCommand::Sandbox(arguments) => sandbox::run(arguments, providers),
        CliCommand::Debug(arguments) => sandbox::debug(arguments, providers),
        CliCommand::Session(arguments) => session::run(arguments),
        CliCommand::Ask(arguments) => session::ask(arguments),
        CliCommand::Agent(arguments) => agent::run(arguments, providers),
        CliCommand::Learn(arguments) => learn::run(arguments, &providers.registry),
        CliCommand::Plan(arguments) => plan::run(arguments),
        CliCommand::Explain(arguments) => explain::run(arguments),
        CliCommand::Doctor(arguments) => doctor::run(arguments),
        CliCommand::Test(arguments) => test::run(arguments),
        CliCommand::Tool(arguments) => tool::run(arguments),
        CliCommand::Init(arguments) => init::run(&arguments),
        CliCommand::Hook(arguments) => Ok(hook::run(&arguments)),
        CliCommand::Mcp(arguments) => mcp::run(*arguments, &providers.registry),
        CliCommand::Serve(arguments) => serve::run(*arguments),
        CliCommand::Remote(arguments) => remote::run(*arguments),
        CliCommand::Log(arguments) => log::run(arguments),
        CliCommand::Allow(arguments) => policy::allow::run(arguments),
        CliCommand::Policy(arguments) => policy::run(arguments),
        CliCommand::Configure(arguments) => configure::run(arguments),
        CliCommand::Cache(arguments) => cache::run(arguments),
        CliCommand::Completions(arguments) => docs::completions(arguments),
        CliCommand::Man(arguments) => docs::man(arguments),
        CliCommand::Reference(arguments) => docs::reference(arguments),
        CliCommand::Question(arguments) => question::run(arguments),
    }
}
