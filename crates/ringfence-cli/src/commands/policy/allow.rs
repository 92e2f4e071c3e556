//! `ringfence allow`, also `ringfence policy allow`

use std::ffi::OsString;
use std::fs;
use std::io;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ringfence_engine::{Amendment, GrantTarget, Permitted, PolicyFiles, PolicyScope, gather};
use ringfence_policy::{AbsPath, Access, Facts, HostRule};
use serde_json::json;

use crate::commands::resolve_args::{below_home, directory};
use crate::error::CliError;
use crate::{messages, output};

/// Open a path or a host for good, or let a variable pass
///
/// Adds a line to your own policy for this project, below `~/.config/ringfence/projects`; with
/// `--global`, to `~/.config/ringfence/policy.toml`, which holds in all of your projects. The file
/// keeps its comments and its order. This is what `p` says to a question of `ringfence run --ask`:
/// it opens that very path, and what is below it, also if something built in keeps it shut. What
/// the managed policy has locked stays shut. The repository's `.ringfence/policy.toml` can open
/// nothing, so nothing is written there.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence allow read ~/data
  ringfence allow write ~/.config/my-tool
  ringfence allow host registry.npmjs.org
  ringfence allow host db.example.org:5432 --dry-run
  ringfence allow env DATABASE_URL
  ringfence allow read ~/notes --global

Exit status: 0 it is open from now on, 125 it is not.")]
pub(crate) struct PolicyAllowArgs {
    /// For what
    #[arg(value_enum, value_name = "ACCESS")]
    access: AccessArg,
    /// The path, the host, or the name of the variable
    #[arg(value_name = "WHAT")]
    what: OsString,
    /// In all of your projects: write `~/.config/ringfence/policy.toml`
    #[arg(long, visible_alias = "user")]
    global: bool,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccessArg {
    /// A path, to be read, listed or started
    Read,
    /// A path, to be read and written
    Write,
    /// A host, to be reached: `HOST`, `HOST:PORT`, `*.HOST`
    #[value(alias = "connect")]
    Host,
    /// A variable, to pass into the sandbox
    Env,
}

/// The thing to allow.
enum Subject {
    Opening(GrantTarget),
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
            Subject::Variable(_) => "variable",
        }
    }

    fn text(&self) -> String {
        match self {
            Subject::Opening(GrantTarget::Path(path, _)) => path.to_string(),
            Subject::Opening(GrantTarget::Host(rule)) => rule.to_string(),
            Subject::Variable(name) => name.clone(),
        }
    }
}

pub(crate) fn run(arguments: PolicyAllowArgs) -> Result<ExitCode, CliError> {
    let cwd = directory(None)?;
    let facts = gather(&cwd)?.facts;
    let subject = subject(&arguments, &cwd, &facts)?;
    let scope = if arguments.global { PolicyScope::Global } else { PolicyScope::OwnProject };
    let files = PolicyFiles::default();
    let permitted = match &subject {
        Subject::Opening(opening) => Permitted::Opening(opening),
        Subject::Variable(name) => Permitted::Variable(name),
    };
    let amendment = Amendment { subject: permitted, scope, files: &files, facts: &facts };
    let allowed = if arguments.dry_run { amendment.preview()? } else { amendment.write()? };
    let what = subject.text();
    if subject.is_absent_to_read() {
        messages::warning(&output::printable(&format!(
            "allow read {what} opens nothing now: there is no such file or directory"
        )));
    }
    if arguments.json {
        let written = allowed.is_new && !arguments.dry_run;
        output::json(
            &json!({ subject.key(): what, "place": allowed.place(), "isNew": allowed.is_new, "written": written }),
        )?;
    } else {
        let how = match (allowed.is_new, arguments.dry_run) {
            (true, false) => "open from now on",
            (true, true) => "would be opened",
            (false, _) => "open already",
        };
        output::text(&output::printable(&format!("{how}: {what}, by {}", allowed.place())))?;
        output::text("\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn subject(arguments: &PolicyAllowArgs, cwd: &AbsPath, facts: &Facts) -> Result<Subject, CliError> {
    let path = |access| {
        Subject::Opening(GrantTarget::Path(below_home(&arguments.what, cwd, &facts.home), access))
    };
    let text = arguments.what.to_string_lossy();
    Ok(match arguments.access {
        AccessArg::Read => path(Access::Read),
        AccessArg::Write => path(Access::Write),
        AccessArg::Host => {
            Subject::Opening(GrantTarget::Host(HostRule::parse(&text).map_err(|error| {
                CliError::Words {
                    what: format!("`{text}` is not a host: {error}"),
                    hint: "write `HOST` or `HOST:PORT`".into(),
                }
            })?))
        }
        AccessArg::Env if is_variable(&text) => Subject::Variable(text.into_owned()),
        AccessArg::Env => {
            return Err(CliError::Words {
                what: format!("`{text}` is not the name of a variable"),
                hint: "write the name alone, such as `DATABASE_URL`; the value stays where it is"
                    .into(),
            });
        }
    })
}

fn is_variable(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_part)
}
