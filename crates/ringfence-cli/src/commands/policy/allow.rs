//! `ringfence allow`, also `ringfence policy allow`

use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_engine::{
    Amendment, GrantTarget, Permitted, PolicyFiles, PolicyScope, gather_host_environment,
};
use ringfence_policy::{AbsPath, Access, Facts, HostRule};
use serde_json::json;

use super::files::print_enclosing_policies;
use crate::commands::resolve_args::{canonical_directory, expand_path};
use crate::error::CliError;
use crate::{messages, output};

/// Allow a path, a host, a port of this machine or an environment variable permanently
///
/// Adds a line to your own policy for this project, below `~/.config/ringfence/projects`; with
/// `--global`, to `~/.config/ringfence/policy.toml`, which applies to all your projects. Keeps the
/// file's comments and order. The answer `p` to a question of `ringfence run --ask` does the same.
/// Allows exactly that path and what is below it, even if a built-in rule denies it. What the
/// managed policy locks stays denied. The repository's `.ringfence/policy.toml` cannot allow
/// anything, so nothing is written there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence allow read ~/data
  ringfence allow write ~/.config/my-tool
  ringfence allow host registry.npmjs.org
  ringfence allow host db.example.org:5432 --dry-run
  ringfence allow localhost 5432
  ringfence allow env DATABASE_URL
  ringfence allow read ~/notes --global

Exit status: 0 allowed from now on, 125 not allowed.")]
pub(crate) struct PolicyAllowArgs {
    /// The kind of access
    #[arg(value_enum, value_name = "ACCESS")]
    access: AccessArg,
    /// The path, the host, the port, or the name of the environment variable
    #[arg(value_name = "TARGET")]
    what: OsString,
    /// Apply to all your projects: write `~/.config/ringfence/policy.toml`
    #[arg(long, visible_alias = "user")]
    global: bool,
    /// Show the line that would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccessArg {
    /// Read, list or run a path
    Read,
    /// Read and write a path
    Write,
    /// Connect to a host: `HOST`, `HOST:PORT`, `*.HOST`
    #[value(alias = "connect")]
    Host,
    /// Connect to a port of this machine's loopback
    Localhost,
    /// Pass an environment variable into the sandbox
    Env,
}

/// The thing to allow.
enum Subject {
    Opening(GrantTarget),
    LocalPort(u16),
    Variable(String),
}

impl Subject {
    /// True for a path to read that does not exist.
    fn is_absent_to_read(&self) -> bool {
        match self {
            Subject::Opening(GrantTarget::Path(path, Access::Read)) => {
                fs::symlink_metadata(path.as_path())
                    .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            }
            _ => false,
        }
    }

    fn key(&self) -> &'static str {
        match self {
            Subject::Opening(GrantTarget::Path(..)) => "path",
            Subject::Opening(GrantTarget::Host(_)) => "host",
            Subject::LocalPort(_) => "port",
            Subject::Variable(_) => "variable",
        }
    }

    fn text(&self) -> String {
        match self {
            Subject::Opening(GrantTarget::Path(path, _)) => path.to_string(),
            Subject::Opening(GrantTarget::Host(rule)) => rule.to_string(),
            Subject::LocalPort(port) => format!("localhost:{port}"),
            Subject::Variable(name) => name.clone(),
        }
    }
}

pub(crate) fn run(arguments: PolicyAllowArgs) -> Result<ExitCode, CliError> {
    let cwd = canonical_directory(None)?;
    let facts = gather_host_environment(&cwd)?.facts;
    let subject = subject(&arguments, &cwd, &facts)?;
    let scope = if arguments.global { PolicyScope::Global } else { PolicyScope::OwnProject };
    let files = PolicyFiles::default();
    let permitted = match &subject {
        Subject::Opening(opening) => Permitted::Opening(opening),
        Subject::LocalPort(port) => Permitted::LocalPort(*port),
        Subject::Variable(name) => Permitted::Variable(name),
    };
    let amendment = Amendment { subject: permitted, scope, files: &files, facts: &facts };
    let allowed = if arguments.dry_run { amendment.preview()? } else { amendment.write()? };
    if scope == PolicyScope::OwnProject {
        print_enclosing_policies(&facts);
    }
    let what = subject.text();
    if subject.is_absent_to_read() {
        messages::print_warning(&output::printable(&format!(
            "allow read {what} has no effect yet: there is no such file or directory"
        )));
    }
    if arguments.json {
        let written = allowed.is_new && !arguments.dry_run;
        output::print_json(
            &json!({ subject.key(): what, "place": allowed.position(), "isNew": allowed.is_new, "written": written }),
        )?;
    } else {
        let change = match (allowed.is_new, arguments.dry_run) {
            (true, false) => "allowed from now on",
            (true, true) => "would be allowed",
            (false, _) => "already allowed",
        };
        output::print_text(&output::printable(&format!(
            "{change}: {what}, by {}",
            allowed.position()
        )))?;
        output::print_text("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn subject(arguments: &PolicyAllowArgs, cwd: &AbsPath, facts: &Facts) -> Result<Subject, CliError> {
    let path = |access| {
        Subject::Opening(GrantTarget::Path(expand_path(&arguments.what, cwd, &facts.home), access))
    };
    let text = arguments.what.to_string_lossy();
    Ok(match arguments.access {
        AccessArg::Read => path(Access::Read),
        AccessArg::Write => path(Access::Write),
        AccessArg::Host => {
            Subject::Opening(GrantTarget::Host(HostRule::parse(&text).map_err(|error| {
                CliError::Usage {
                    what: format!("`{text}` is not a host: {error}"),
                    hint: "use `HOST` or `HOST:PORT`".into(),
                }
            })?))
        }
        AccessArg::Localhost => Subject::LocalPort(local_port(&text)?),
        AccessArg::Env if is_variable(&text) => Subject::Variable(text.into_owned()),
        AccessArg::Env => {
            return Err(CliError::Usage {
                what: format!("`{text}` is not the name of an environment variable"),
                hint: "give the name without a value, such as `DATABASE_URL`".into(),
            });
        }
    })
}

/// Parses `5432`, or `localhost:5432` as a denial names it.
fn local_port(text: &str) -> Result<u16, CliError> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    port.parse().ok().filter(|&port| port != 0).ok_or_else(|| CliError::Usage {
        what: format!("`{text}` is not a port"),
        hint: "use a port from 1 to 65535, such as `ringfence allow localhost 5432`".into(),
    })
}

fn is_variable(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_part)
}
