//! `ringfence configure`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ringfence_engine::{Configured, Edit, Scope, configure, configured, gather};
use ringfence_policy::Facts;
use ringfence_policy::configure::Key;
use serde_json::{Map, Value, json};

use super::words::directory;
use crate::error::CliError;
use crate::say;
use crate::show::{self, printable};

/// Change the settings of a policy file, and leave the rest of it as it is
///
/// It is your own policy for this project, below `~/.config/ringfence/projects`; with `--global`, your
/// policy for all projects; with `--shared`, the repository's `.ringfence/policy.toml`, which may narrow
/// what you have chosen and not widen it: a setting that would widen is not written. Comments, order and
/// layout stay; a file that would have a mistake in it is not written.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence configure --global set sandbox.enabled true
  ringfence configure --shared set mode read-only
  ringfence configure set network.allow '[\"registry.npmjs.org\"]'
  ringfence configure unset mode
  ringfence configure --global list

Exit status: 0 done, 1 `get` of what the file does not say, 125 it was not done.")]
pub(crate) struct Configure {
    /// Your own file, `~/.config/ringfence/policy.toml`, which holds in every project
    #[arg(long, visible_alias = "user", global = true)]
    global: bool,
    /// The repository's file, `.ringfence/policy.toml`, which holds for all who work on it
    #[arg(long, visible_alias = "project-file", global = true, conflicts_with = "global")]
    shared: bool,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Start in this directory
    #[arg(short = 'C', value_name = "DIR", global = true)]
    directory: Option<PathBuf>,
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Set a setting: `true`, `5m`, `'["a", "b"]'`
    #[command(after_help = "Examples:
  ringfence configure set limits.memory 2GiB
  ringfence configure --global set sandbox.enabled true")]
    Set {
        /// Which, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
        /// To what, as TOML or as a text
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Print what the file says of a setting
    #[command(after_help = "Examples:
  ringfence configure get mode")]
    Get {
        /// Which, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Have the file say nothing of a setting
    #[command(after_help = "Examples:
  ringfence configure unset mode")]
    Unset {
        /// Which, such as `sandbox.enabled`
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Print all that the file says
    #[command(after_help = "Examples:
  ringfence configure --global list")]
    List,
}

pub(crate) fn run(arguments: Configure) -> Result<ExitCode, CliError> {
    let facts = gather(&directory(arguments.directory.as_deref())?)?.facts;
    let scope = match (arguments.global, arguments.shared) {
        (true, _) => Scope::Global,
        (false, true) => Scope::Project,
        (false, false) => Scope::OwnProject,
    };
    let out = if arguments.json { Out::Json } else { Out::Text };
    match &arguments.command {
        Sub::Set { key, value } => change(scope, key, Edit::Set(value), &facts, out),
        Sub::Unset { key } => change(scope, key, Edit::Unset, &facts, out),
        Sub::Get { key } => get(&configured(scope, Some(&Key::parse(key)?), &facts)?, out),
        Sub::List => list(configured(scope, None, &facts)?, out),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Text,
    Json,
}

fn change(
    scope: Scope,
    key: &str,
    edit: Edit<'_>,
    facts: &Facts,
    out: Out,
) -> Result<ExitCode, CliError> {
    let key = Key::parse(key)?;
    let Configured { file, is_new, warnings } = configure(scope, &key, edit, facts)?;
    warnings.iter().for_each(|warning| say::warning(&printable(warning)));
    match out {
        Out::Json => show::json(
            &json!({ "file": file.to_string(), "key": key.to_string(), "changed": is_new, "warnings": warnings }),
        )?,
        Out::Text => {
            let how = if is_new { "changed" } else { "unchanged" };
            show::text(&(printable(&format!("{how}: {key} in {file}")) + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn get(found: &[(String, String)], out: Out) -> Result<ExitCode, CliError> {
    let value = found.first().map(|(_, value)| value);
    match (out, value) {
        (Out::Json, value) => show::json(&json!({ "value": value }))?,
        (Out::Text, Some(value)) => show::text(&(printable(value) + "\n"))?,
        (Out::Text, None) => {}
    }
    Ok(ExitCode::from(u8::from(value.is_none())))
}

fn list(found: Vec<(String, String)>, out: Out) -> Result<ExitCode, CliError> {
    match out {
        Out::Json => {
            let settings: Map<String, Value> =
                found.into_iter().map(|(key, value)| (key, Value::String(value))).collect();
            show::json(&Value::Object(settings))?;
        }
        Out::Text => {
            let line =
                |(key, value): &(String, String)| printable(&format!("{key} = {value}")) + "\n";
            show::text(&found.iter().map(line).collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
