//! `ringfence configure`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_engine::{
    PolicyScope, SettingChange, SettingEdit, configure, configured_settings,
    gather_host_environment,
};
use ringfence_policy::Facts;
use ringfence_policy::configure::SettingKey;
use serde_json::{Map, Value, json};

use super::policy::files::print_enclosing_policies;
use super::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, printable};

/// Change settings in a policy file
///
/// Edits your own policy for this project, below `~/.config/ringfence/projects`; with `--global`,
/// your policy for all projects; with `--shared`, the repository's `.ringfence/policy.toml`. The
/// repository's file can only restrict: a setting that would allow more is not written. Comments,
/// order and layout are kept. A change that makes the file invalid is not written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence configure --global set sandbox.enabled true
  ringfence configure --shared set mode read-only
  ringfence configure set network.allow '[\"registry.npmjs.org\"]'
  ringfence configure unset mode
  ringfence configure --global list

Exit status: 0 done, 1 `get` of a key that the file does not set, 125 failed.")]
pub(crate) struct ConfigureArgs {
    /// Use your own `~/.config/ringfence/policy.toml`, which applies to every project
    #[arg(long, visible_alias = "user", global = true)]
    global: bool,
    /// Use the repository's `.ringfence/policy.toml`, which applies to all its users
    #[arg(long, visible_alias = "project-file", global = true, conflicts_with = "global")]
    shared: bool,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Start in this directory
    #[arg(short = 'C', value_name = "DIR", global = true)]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    command: ConfigureSub,
}

#[derive(Debug, Subcommand)]
enum ConfigureSub {
    /// Set a setting: `true`, `5m`, `'["a", "b"]'`
    #[command(after_help = "Examples:
  ringfence configure set limits.memory 2GiB
  ringfence configure --global set sandbox.enabled true")]
    Set {
        /// The key, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
        /// The value, as TOML or as plain text
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Print a setting of the file
    #[command(after_help = "Examples:
  ringfence configure get mode")]
    Get {
        /// The key, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Remove a setting from the file
    #[command(after_help = "Examples:
  ringfence configure unset mode")]
    Unset {
        /// The key, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Print all settings of the file
    #[command(after_help = "Examples:
  ringfence configure --global list")]
    List,
}

pub(crate) fn run(arguments: ConfigureArgs) -> Result<ExitCode, CliError> {
    let facts =
        gather_host_environment(&canonical_directory(arguments.directory.as_deref())?)?.facts;
    let scope = match (arguments.global, arguments.shared) {
        (true, _) => PolicyScope::Global,
        (false, true) => PolicyScope::Project,
        (false, false) => PolicyScope::OwnProject,
    };
    let out = if arguments.json { ConfigureOutput::Json } else { ConfigureOutput::Text };
    match &arguments.command {
        ConfigureSub::Set { key, value } => {
            change(scope, key, SettingEdit::Set(value), &facts, out)
        }
        ConfigureSub::Unset { key } => change(scope, key, SettingEdit::Unset, &facts, out),
        ConfigureSub::Get { key } => {
            get(&configured_settings(scope, Some(&SettingKey::parse(key)?), &facts)?, out)
        }
        ConfigureSub::List => list(configured_settings(scope, None, &facts)?, out),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConfigureOutput {
    Text,
    Json,
}

fn change(
    scope: PolicyScope,
    key: &str,
    edit: SettingEdit<'_>,
    facts: &Facts,
    out: ConfigureOutput,
) -> Result<ExitCode, CliError> {
    let key = SettingKey::parse(key)?;
    let SettingChange { file, is_new, warnings } = configure(scope, &key, edit, facts)?;
    if scope == PolicyScope::OwnProject {
        print_enclosing_policies(facts);
    }
    warnings.iter().for_each(|warning| messages::print_warning(&printable(warning)));
    match out {
        ConfigureOutput::Json => output::print_json(
            &json!({ "file": file.to_string(), "key": key.to_string(), "changed": is_new, "warnings": warnings }),
        )?,
        ConfigureOutput::Text => {
            let change = if is_new { "changed" } else { "unchanged" };
            output::print_text(&(printable(&format!("{change}: {key} in {file}")) + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn get(found: &[(String, String)], out: ConfigureOutput) -> Result<ExitCode, CliError> {
    let value = found.first().map(|(_, value)| value);
    match (out, value) {
        (ConfigureOutput::Json, value) => output::print_json(&json!({ "value": value }))?,
        (ConfigureOutput::Text, Some(value)) => output::print_text(&(printable(value) + "\n"))?,
        (ConfigureOutput::Text, None) => {}
    }
    Ok(ExitCode::from(u8::from(value.is_none())))
}

fn list(found: Vec<(String, String)>, out: ConfigureOutput) -> Result<ExitCode, CliError> {
    match out {
        ConfigureOutput::Json => {
            let settings: Map<String, Value> =
                found.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            output::print_json(&Value::Object(settings))?;
        }
        ConfigureOutput::Text => {
            let line =
                |(key, value): &(String, String)| printable(&format!("{key} = {value}")) + "\n";
            output::print_text(&found.iter().map(line).collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
