//! `ringfence policy allow`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_engine::{Files, allow_permanent, gather};
use ringfence_policy::Access;
use serde_json::json;

use crate::commands::words::{below_home, directory};
use crate::error::CliError;
use crate::show;

/// Open a path for good
///
/// Adds it to `~/.config/ringfence/policy.toml`, which keeps its comments and its order. This is
/// what `p` says to a question of `ringfence run --ask`: it opens that very path, and what is
/// below it, also if something built in keeps it shut. What the managed policy has locked stays shut.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy allow read ~/data
  ringfence policy allow write ~/.config/my-tool

Exit status: 0 it is open from now on, 125 it is not.")]
pub(super) struct Allow {
    /// For what
    #[arg(value_enum, value_name = "ACCESS")]
    access: AccessArg,
    /// The path
    #[arg(value_name = "PATH")]
    path: OsString,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccessArg {
    /// To be read, listed or started
    Read,
    /// To be read and written
    Write,
}

pub(super) fn run(arguments: Allow) -> Result<ExitCode, CliError> {
    let cwd = directory(None)?;
    let facts = gather(&cwd)?.facts;
    let path = below_home(&arguments.path, &cwd, &facts.home);
    let access = match arguments.access {
        AccessArg::Read => Access::Read,
        AccessArg::Write => Access::Write,
    };
    let allowed = allow_permanent(&path, access, &Files::default(), &facts)?;
    if arguments.json {
        show::json(&json!({ "path": path, "place": allowed.place(), "isNew": allowed.is_new }))?;
    } else {
        let how = if allowed.is_new { "open from now on" } else { "open already" };
        show::text(&show::printable(&format!("{how}: {path}, by {}", allowed.place())))?;
        show::text("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}
