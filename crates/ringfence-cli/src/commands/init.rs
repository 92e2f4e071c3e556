//! `ringfence init`

mod agents;
mod diff;
mod draft;
mod hosts;
mod languages;
mod policy;
mod settings;

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use ringfence_engine::{HostEnvironment, PolicyScope, gather_host_environment};
use ringfence_policy::{AbsPath, Facts};
use serde_json::{Value, json};

use super::policy::files::{UnusedSettings, enclosing_policy_lines};
use super::resolve_args::canonical_directory;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable};
use agents::InstalledAgent;
use draft::FileDraft;
use hosts::ProjectHost;
use languages::ProjectLanguage;

/// Set up ringfence for the agents and languages of this project
///
/// Detects the agents in use, the project's languages and its git remotes, shows the change to each
/// file, and writes the files after you confirm. Existing content is kept, and a second run changes
/// nothing. Hosts that the project needs are allowed in your own policy for this project, below
/// `~/.config/ringfence/projects`. The repository's `.ringfence/policy.toml` gets rules for
/// all its users; it can only restrict.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence init --dry-run
  ringfence init --yes
  ringfence init --here --yes

Exit status: 0 written or nothing to write, 1 you declined, 125 ringfence failed.")]
pub(crate) struct InitCommandArgs {
    /// Write without asking
    #[arg(long)]
    yes: bool,
    /// Show the changes, and write nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print one JSON object with the findings and the written files
    #[arg(long)]
    pub(crate) json: bool,
    /// Allow hosts for all your projects: in `~/.config/ringfence/policy.toml`
    #[arg(long, visible_alias = "user")]
    global: bool,
    /// Make this directory a project, even inside a project with a policy or a repository
    #[arg(long)]
    here: bool,
    /// Set up only this agent, detected or not; may be given several times
    #[arg(long, value_enum, value_name = "AGENT")]
    agent: Vec<InstalledAgent>,
}

/// The findings, and the resulting changes.
struct InitFindings {
    agents: Vec<InstalledAgent>,
    languages: Vec<&'static ProjectLanguage>,
    hosts: Vec<ProjectHost>,
    drafts: Vec<FileDraft>,
    /// Notes for the user.
    notes: Vec<String>,
}

pub(crate) fn run(arguments: &InitCommandArgs) -> Result<ExitCode, CliError> {
    let cwd = canonical_directory(None)?;
    let mut surroundings = gather_host_environment(&cwd)?;
    if arguments.here {
        surroundings.facts.workspace = cwd.clone();
    }
    let facts = &surroundings.facts;
    if facts.home.is_within(&facts.workspace) {
        return Err(CliError::Usage {
            what: format!(
                "{} cannot be a project: it contains the whole home directory",
                facts.workspace
            ),
            hint: "cd into a project, and run `ringfence init` there".to_owned(),
        });
    }
    let mut found = detect_all(arguments, &surroundings)?;
    found.notes.extend(project_root_note(&cwd, facts));
    found.notes.extend(enclosing_policy_lines(facts));
    found.notes.extend(UnusedSettings::find(facts).map(|unused| {
        let (files, command) = (unused.list(), unused.command);
        format!("rules that are not part of the policy: {files}; to apply them to all commands: {command}")
    }));
    let changes: Vec<&FileDraft> = found.drafts.iter().filter(|draft| draft.is_change()).collect();
    if !arguments.json {
        output::print_text(&summary(&found, &changes))?;
    }
    let is_confirmed = !changes.is_empty()
        && !arguments.dry_run
        && (arguments.yes || ask(arguments, changes.len())?);
    if is_confirmed {
        changes.iter().try_for_each(|draft| draft.write())?;
    }
    match (arguments.json, is_confirmed) {
        (true, _) => output::print_json(&as_json(&found, is_confirmed))?,
        (false, true) => output::print_text(&format!("{} written.\n", file_count(changes.len())))?,
        (false, false) => {}
    }
    Ok(ExitCode::from(u8::from(!is_confirmed && !changes.is_empty() && !arguments.dry_run)))
}

/// Returns a note if the current directory is below the project root.
fn project_root_note(cwd: &AbsPath, facts: &Facts) -> Option<String> {
    let root = &facts.workspace;
    if root == cwd {
        return None;
    }
    let reason = if root.join(".ringfence").as_path().is_dir() {
        "has a policy file"
    } else {
        "is the root of the repository"
    };
    Some(format!(
        "the project is {root}, which {reason}: this sets up the whole project; `ringfence init --here` makes {cwd} a project of its own"
    ))
}

fn detect_all(
    arguments: &InitCommandArgs,
    surroundings: &HostEnvironment,
) -> Result<InitFindings, CliError> {
    let facts = &surroundings.facts;
    let agents = if arguments.agent.is_empty() {
        agents::detect_agents(facts)
    } else {
        arguments.agent.clone()
    };
    let languages = languages::detect_languages(&facts.workspace);
    let hosts = hosts::needed_hosts(&languages, &facts.remotes);
    let mut drafts = vec![policy::for_project(facts, &languages)?];
    let scope = if arguments.global { PolicyScope::Global } else { PolicyScope::OwnProject };
    drafts.extend(policy::for_user(scope, facts, &hosts)?);
    let doubtful = hosts.iter().filter_map(|host| Some((host, host.doubt?)));
    let mut notes: Vec<String> = doubtful
        .map(|(host, doubt)| format!("{} ({}) is not allowed: {doubt}", host.rule, host.reason))
        .collect();
    for agent in &agents {
        let set_up = settings::for_agent(*agent, facts)?;
        drafts.extend(set_up.drafts);
        notes.extend(set_up.notes);
    }
    if agents.is_empty() {
        notes.push("no agent was detected; `--agent claude-code` sets one up anyway".into());
    }
    Ok(InitFindings { agents, languages, hosts, drafts, notes })
}

fn summary(found: &InitFindings, changes: &[&FileDraft]) -> String {
    let list =
        |words: Vec<&str>| if words.is_empty() { "none".to_owned() } else { words.join(", ") };
    let mut text = format!(
        "agents:    {}\nlanguages: {}\n",
        list(found.agents.iter().map(|agent| agent.name()).collect()),
        list(found.languages.iter().map(|language| language.name).collect())
    );
    let paint = ColorMode::for_stdout();
    for draft in changes {
        text.push_str(&format!("\n{}{}\n", draft.heading(paint), draft.diff(paint)));
    }
    if changes.is_empty() {
        text.push_str("\nEverything is already set up; nothing to write.\n");
    }
    for note in &found.notes {
        text.push_str(&format!("\nnote: {}\n", printable(note)));
    }
    text
}

fn file_count(count: usize) -> String {
    if count == 1 { "One file".into() } else { format!("{count} files") }
}

/// True if the user confirms.
fn ask(arguments: &InitCommandArgs, count: usize) -> Result<bool, CliError> {
    if arguments.json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::Usage {
            what: "nothing was written: no terminal to ask for confirmation".into(),
            hint:
                "`ringfence init --yes` writes without asking, `--dry-run` only shows the changes"
                    .into(),
        });
    }
    output::print_text(&format!("\nWrite {} as shown? [y/N] ", file_count(count).to_lowercase()))?;
    io::stdout().flush().ok();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|source| CliError::File {
        what: "read",
        path: "the terminal".into(),
        source,
    })?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn as_json(found: &InitFindings, is_written: bool) -> Value {
    json!({
        "agents": found.agents.iter().map(|agent| agent.name()).collect::<Vec<_>>(),
        "languages": found.languages.iter().map(|language| language.name).collect::<Vec<_>>(),
        "hosts": found.hosts.iter().map(ProjectHost::json).collect::<Vec<_>>(),
        "files": found.drafts.iter().map(FileDraft::json).collect::<Vec<_>>(),
        "notes": found.notes,
        "written": is_written,
    })
}
