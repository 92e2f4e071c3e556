//! `ringfence cache`

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Args, Subcommand};
use ringfence_engine::{
    Cleared, ProjectCaches, clear_caches, gather_host_environment, list_caches,
};
use ringfence_policy::AbsPath;
use serde_json::{Value, json};

use super::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::messages;
use crate::output::{self, printable};

/// List and remove the private caches of projects
///
/// Commands in a sandbox use separate caches for each project, such as `~/.npm` and `~/.cache`.
/// They are stored below `~/.cache/ringfence/projects` and grow over time. You can remove them
/// whenever no run uses them. Quarantined files are not caches and are kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence cache list
  ringfence cache clear
  ringfence cache clear --project ~/code/app
  ringfence cache clear --all --json

Exit status: 0 done, 1 a cache is in use and was kept, 125 failed.")]
pub(crate) struct CacheCommand {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Print the caches of every project: size, last use, path
    #[command(after_help = "Examples:
  ringfence cache list --json")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove the caches of this project
    #[command(after_help = "Examples:
  ringfence cache clear --project ~/code/app
  ringfence cache clear --all")]
    Clear {
        /// Remove the caches of this project instead
        #[arg(long, value_name = "PATH", conflicts_with = "all")]
        project: Option<PathBuf>,
        /// Remove the caches of every project
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl CacheCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match &self.command {
            Sub::List { json } | Sub::Clear { json, .. } => *json,
        }
    }
}

pub(crate) fn run(arguments: CacheCommand) -> Result<ExitCode, CliError> {
    let out = if arguments.wants_json() { Out::Json } else { Out::Text };
    match arguments.command {
        Sub::List { .. } => list(&find_caches()?.0, out),
        Sub::Clear { project, all, .. } => {
            let (mut chosen, here) = find_caches()?;
            if !all {
                let store = match &project {
                    Some(path) => project_store(path)?,
                    None => here,
                };
                chosen.retain(|caches| caches.store == store);
            }
            clear(&chosen, out)
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Text,
    Json,
}

/// Returns all caches, and the cache directory of this project.
fn find_caches() -> Result<(Vec<ProjectCaches>, AbsPath), CliError> {
    let facts = gather_host_environment(&canonical_directory(None)?)?.facts;
    let found = list_caches(&facts).map_err(|source| CliError::File {
        what: "list",
        path: facts.store.parent().unwrap_or_else(|| facts.store.clone()).to_string(),
        source,
    })?;
    Ok((found, facts.store))
}

/// Returns the cache directory of a project, which may no longer exist.
fn project_store(path: &std::path::Path) -> Result<AbsPath, CliError> {
    match canonical_directory(Some(path)) {
        Ok(project) => Ok(gather_host_environment(&project)?.facts.store),
        Err(error) => {
            let known = find_caches()?.0.into_iter().find(|caches| {
                caches.project.as_ref().is_some_and(|known| known.as_path() == path)
            });
            known.map(|caches| caches.store).ok_or(error)
        }
    }
}

fn list(found: &[ProjectCaches], out: Out) -> Result<ExitCode, CliError> {
    if out == Out::Json {
        output::print_json(&Value::from(found.iter().map(as_json).collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for caches in found {
        let state = if caches.in_use { ", in use" } else { "" };
        let _ = writeln!(
            text,
            "{:>10}  {:<20}  {}{state}",
            size(caches.bytes),
            age(caches.last_use),
            printable(&name(caches))
        );
    }
    if found.is_empty() {
        text.push_str("no caches\n");
    } else {
        let _ =
            writeln!(text, "{:>10}  total", size(found.iter().map(|caches| caches.bytes).sum()));
    }
    output::print_text(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn clear(chosen: &[ProjectCaches], out: Out) -> Result<ExitCode, CliError> {
    let mut kept = 0;
    let mut results = Vec::new();
    for caches in chosen {
        let cleared = clear_caches(caches).map_err(|source| CliError::File {
            what: "remove",
            path: caches.store.to_string(),
            source,
        })?;
        let is_kept = cleared == Cleared::InUse;
        kept += usize::from(is_kept);
        if out == Out::Text && is_kept {
            messages::print_warning(&printable(&format!(
                "kept, a run is using it: {}",
                name(caches)
            )));
        } else if out == Out::Text {
            output::print_text(
                &(printable(&format!("removed {}: {}", size(caches.bytes), name(caches))) + "\n"),
            )?;
        }
        let mut value = as_json(caches);
        value["removed"] = (!is_kept).into();
        results.push(value);
    }
    match out {
        Out::Json => output::print_json(&Value::from(results))?,
        Out::Text if chosen.is_empty() => output::print_text("nothing to remove\n")?,
        Out::Text => {}
    }
    Ok(ExitCode::from(u8::from(kept > 0)))
}

/// Returns the project, or the cache directory if the project is unknown.
fn name(caches: &ProjectCaches) -> String {
    caches.project.as_ref().unwrap_or(&caches.store).to_string()
}

fn as_json(caches: &ProjectCaches) -> Value {
    let seconds = caches
        .last_use
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map(|since| since.as_secs());
    json!({
        "project": caches.project.as_ref().map(ToString::to_string),
        "store": caches.store.to_string(),
        "caches": caches.names,
        "bytes": caches.bytes,
        "lastUse": seconds,
        "inUse": caches.in_use,
    })
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

fn age(last_use: Option<SystemTime>) -> String {
    let Some(age) = last_use.and_then(|time| SystemTime::now().duration_since(time).ok()) else {
        return "just now".to_owned();
    };
    match age.as_secs() {
        0..=59 => "just now".to_owned(),
        seconds @ 60..=3_599 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..=86_399 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}
