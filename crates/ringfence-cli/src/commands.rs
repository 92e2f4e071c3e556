//! One file per subcommand.

pub(crate) mod doctor;
pub(crate) mod explain;
mod plan;
mod run;
pub(crate) mod test;
pub(crate) mod words;

use std::process::ExitCode;

use crate::args::{Arguments, Command};
use crate::error::CliError;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Test(arguments) => test::run(arguments),
    }
}
