//! `ringfence policy`

pub(crate) mod allow;
mod check;
pub(crate) mod files;
mod import;
mod list;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::CliError;
use crate::show as out;

/// Show, check, extend and import policies
///
/// A policy is laid together from what is built in, `/etc/ringfence/policy.toml`, your own
/// `~/.config/ringfence/policy.toml` for all projects and `~/.config/ringfence/projects/NAME.toml` for
/// this one, the repository's `.ringfence/policy.toml` and the flags of a run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy list
  ringfence policy show --origin
  ringfence policy check
  ringfence policy allow read ~/data
  ringfence policy import .claude/settings.json --output .ringfence/policy.toml")]
pub(crate) struct PolicyCommand {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    List(files::List),
    Show(Box<show::Show>),
    Check(check::Check),
    Allow(allow::Allow),
    Schema(Schema),
    Import(import::Import),
}

/// Print the JSON Schema of policy files
///
/// Made from the same types that read the files; editors complete and check with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ringfence policy schema > policy.schema.json")]
struct Schema {}

impl PolicyCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Action::List(arguments) => arguments.json,
            Action::Show(arguments) => arguments.json,
            Action::Check(arguments) => arguments.json,
            Action::Allow(arguments) => arguments.json,
            Action::Import(arguments) => arguments.json,
            Action::Schema(_) => false,
        }
    }
}

pub(crate) fn run(arguments: PolicyCommand) -> Result<ExitCode, CliError> {
    match arguments.command {
        Action::List(arguments) => files::run(arguments),
        Action::Show(arguments) => show::run(*arguments),
        Action::Check(arguments) => check::run(arguments),
        Action::Allow(arguments) => allow::run(arguments),
        Action::Schema(_) => {
            out::text(&format!("{:#}\n", ringfence_policy::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Import(arguments) => import::run(arguments),
    }
}
