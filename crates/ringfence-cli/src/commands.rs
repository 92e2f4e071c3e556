//! One file per subcommand.

mod plan;
mod run;
mod words;

use std::process::ExitCode;

use crate::args::{Arguments, Command};
use crate::error::CliError;

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, CliError> {
    match arguments.command {
        Command::Run(arguments) => run::run(arguments),
        Command::Plan(arguments) => plan::run(arguments),
    }
}
