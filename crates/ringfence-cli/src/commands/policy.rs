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
use crate::output as out;

/// Show, check, extend and import policies
///
/// ringfence merges the built-in policy, `/etc/ringfence/policy.toml`, your own
/// `~/.config/ringfence/policy.toml` for all projects and `~/.config/ringfence/projects/NAME.toml`
/// for this one and for the directories around it, the repository's `.ringfence/policy.toml` and the flags of a run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy list
  ringfence policy show --origin
  ringfence policy check
  ringfence policy allow read ~/data
  ringfence policy import .claude/settings.json --output .ringfence/policy.toml")]
pub(crate) struct PolicyCommand {
    #[command(subcommand)]
    command: PolicyAction,
}

#[derive(Debug, Subcommand)]
enum PolicyAction {
    List(files::List),
    Show(Box<show::PolicyShowArgs>),
    Check(check::PolicyCheckArgs),
    Allow(allow::PolicyAllowArgs),
    Schema(SchemaArgs),
    Import(import::PolicyImportArgs),
}

/// Print the JSON Schema of policy files
///
/// Generated from the types that parse the files; editors use it to complete and check.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ringfence policy schema > policy.schema.json")]
struct SchemaArgs {}

impl PolicyCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            PolicyAction::List(arguments) => arguments.json,
            PolicyAction::Show(arguments) => arguments.json,
            PolicyAction::Check(arguments) => arguments.json,
            PolicyAction::Allow(arguments) => arguments.json,
            PolicyAction::Import(arguments) => arguments.json,
            PolicyAction::Schema(_) => false,
        }
    }
}

pub(crate) fn run(arguments: PolicyCommand) -> Result<ExitCode, CliError> {
    match arguments.command {
        PolicyAction::List(arguments) => files::run(arguments),
        PolicyAction::Show(arguments) => show::run(*arguments),
        PolicyAction::Check(arguments) => check::run(arguments),
        PolicyAction::Allow(arguments) => allow::run(arguments),
        PolicyAction::Schema(_) => {
            out::print_text(&format!("{:#}\n", ringfence_policy::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        PolicyAction::Import(arguments) => import::run(arguments),
    }
}
