//! One file per subcommand.

pub(crate) mod agent;
pub(crate) mod cache;
pub(crate) mod configure;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod hook;
pub(crate) mod init;
pub(crate) mod learn;
pub(crate) mod log;
pub(crate) mod mcp;
mod nested;
pub(crate) mod papers;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod question;
pub(crate) mod remote;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod session;
pub(crate) mod test;
pub(crate) mod tool;
pub(crate) mod words;

use std::process::ExitCode;

use ringfence_local::Local;

use crate::args::{Arguments, Command};
use crate::error::CliError;

pub(crate) fn run(arguments: Arguments, local: &Local) -> Result<ExitCode, CliError> {
    let makes_sandboxes = arguments.command.makes_sandboxes();
    let result = perform(arguments, local);
    if makes_sandboxes { result.map_err(nested::explain) } else { result }
}

fn perform(arguments: Arguments, local: &Local) -> Result<ExitCode, CliError> {
    match arguments.command {
        Command::Run(arguments) => run::run(arguments, local),
        Command::Shell(arguments) => run::run(arguments.into(), local),
        Command::Session(arguments) => session::run(arguments),
        Command::Ask(arguments) => session::ask(arguments),
        Command::Agent(arguments) => agent::run(arguments, local),
        Command::Learn(arguments) => learn::run(arguments, local),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Test(arguments) => test::run(arguments),
        Command::Tool(arguments) => tool::run(arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Hook(arguments) => Ok(hook::run(&arguments)),
        Command::Mcp(arguments) => mcp::run(*arguments, local),
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Remote(arguments) => remote::run(*arguments),
        Command::Log(arguments) => log::run(arguments),
        Command::Allow(arguments) => policy::allow::run(arguments),
        Command::Policy(arguments) => policy::run(arguments),
        Command::Configure(arguments) => configure::run(arguments),
        Command::Cache(arguments) => cache::run(arguments),
        Command::Completions(arguments) => papers::completions(arguments),
        Command::Man(arguments) => papers::man(arguments),
        Command::Reference(arguments) => papers::reference(arguments),
        Command::Question(arguments) => question::run(arguments),
    }
}
