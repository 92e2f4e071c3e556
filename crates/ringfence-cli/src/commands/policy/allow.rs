//! `ringfence policy allow`

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_engine::{Files, Opening, gather, open_for_good};
use ringfence_policy::{AbsPath, Access, Facts, HostRule};
use serde_json::json;

use crate::commands::words::{below_home, directory};
use crate::error::CliError;
use crate::show;

/// Open a path or a host for good
///
/// Adds it to `~/.config/ringfence/policy.toml`, which keeps its comments and its order. This is
/// what `p` says to a question of `ringfence run --ask`: it opens that very path, and what is
/// below it, also if something built in keeps it shut. What the managed policy has locked stays shut.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence policy allow read ~/data
  ringfence policy allow write ~/.config/my-tool
  ringfence policy allow connect registry.npmjs.org:443

Exit status: 0 it is open from now on, 125 it is not.")]
pub(crate) struct Allow {
    /// For what
    #[arg(value_enum, value_name = "ACCESS")]
    access: AccessArg,
    /// The path, or host and port
    #[arg(value_name = "WHAT")]
    what: OsString,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccessArg {
    /// To be read, listed or started
    Read,
    /// To be read and written
    Write,
    /// To be reached, at one port
    Connect,
}

pub(crate) fn run(arguments: Allow) -> Result<ExitCode, CliError> {
    let cwd = directory(None)?;
    let facts = gather(&cwd)?.facts;
    let opening = opening(&arguments, &cwd, &facts)?;
    let what = match &opening {
        Opening::Path(path, _) => path.to_string(),
        Opening::Host(rule) => rule.to_string(),
    };
    let allowed = open_for_good(&opening, &Files::default(), &facts)?;
    if arguments.json {
        let key = if matches!(opening, Opening::Path(..)) { "path" } else { "host" };
        show::json(&json!({ key: what, "place": allowed.place(), "isNew": allowed.is_new }))?;
    } else {
        let how = if allowed.is_new { "open from now on" } else { "open already" };
        show::text(&show::printable(&format!("{how}: {what}, by {}", allowed.place())))?;
        show::text("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn opening(arguments: &Allow, cwd: &AbsPath, facts: &Facts) -> Result<Opening, CliError> {
    let access = match arguments.access {
        AccessArg::Read => Access::Read,
        AccessArg::Write => Access::Write,
        AccessArg::Connect => {
            let text = arguments.what.to_string_lossy();
            let wrong = |why: String| CliError::Words {
                what: format!("`{text}` is not a host and its port: {why}"),
                hint: "write `HOST:PORT`".into(),
            };
            let rule = HostRule::parse(&text).map_err(|error| wrong(error.to_string()))?;
            return if rule.port.is_some() { Ok(Opening::Host(rule)) } else { Err(wrong("the port is missing".into())) };
        }
    };
    Ok(Opening::Path(below_home(&arguments.what, cwd, &facts.home), access))
}
