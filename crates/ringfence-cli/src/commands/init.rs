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
use ringfence_engine::{HostEnvironment, PolicyScope, gather};
use ringfence_policy::{AbsPath, Facts};
use serde_json::{Value, json};

use super::resolve_args::directory;
use crate::error::CliError;
use crate::output::{self, ColorMode, printable};
use agents::InstalledAgent;
use draft::FileDraft;
use hosts::ProjectHost;
use languages::ProjectLanguage;

/// Set ringfence up for the agents and languages of this project
///
/// Looks which agents are in use, which languages the project has and where its remotes are, shows
/// what it would write into which file, and writes it if you say so. What stands in a file stays
/// there, and to do it twice changes nothing. The hosts that the project needs are opened in your
/// own policy for this project, below `~/.config/ringfence/projects`; the repository's
/// `.ringfence/policy.toml` gets rules for all who work on it, which open nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ringfence init --dry-run
  ringfence init --yes
  ringfence init --here --yes

Exit status: 0 written or nothing to write, 1 you said no, 125 ringfence failed.")]
pub(crate) struct InitCommandArgs {
    /// Write without asking
    #[arg(long)]
    yes: bool,
    /// Show what would be written, and write nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print one JSON object with what was found and what is written
    #[arg(long)]
    pub(crate) json: bool,
    /// Open hosts for all of your projects: in `~/.config/ringfence/policy.toml`
    #[arg(long, visible_alias = "user")]
    global: bool,
    /// Make a project of this directory, also where one around it has a policy or a repository
    #[arg(long)]
    here: bool,
    /// Set up only this agent, found or not; may be given several times
    #[arg(long, value_enum, value_name = "AGENT")]
    agent: Vec<InstalledAgent>,
}

/// What was found, and what follows.
struct InitFindings {
    agents: Vec<InstalledAgent>,
    languages: Vec<&'static ProjectLanguage>,
    hosts: Vec<ProjectHost>,
    drafts: Vec<FileDraft>,
    /// What the person has to do, or know.
    notes: Vec<String>,
}

pub(crate) fn run(arguments: &InitCommandArgs) -> Result<ExitCode, CliError> {
    let cwd = directory(None)?;
    let mut surroundings = gather(&cwd)?;
    if arguments.here {
        surroundings.facts.workspace = cwd.clone();
    }
    let facts = &surroundings.facts;
    if facts.home.is_within(&facts.workspace) {
        return Err(CliError::Words {
            what: format!(
                "{} cannot be a project: it holds the whole home directory",
                facts.workspace
            ),
            hint: "cd into a project, and type `ringfence init` there".to_owned(),
        });
    }
    let mut found = look(arguments, &surroundings)?;
    found.notes.extend(of_the_root(&cwd, facts));
    let changes: Vec<&FileDraft> = found.drafts.iter().filter(|draft| draft.is_change()).collect();
    if !arguments.json {
        output::text(&told(&found, &changes))?;
    }
    let is_agreed = !changes.is_empty()
        && !arguments.dry_run
        && (arguments.yes || ask(arguments, changes.len())?);
    if is_agreed {
        changes.iter().try_for_each(|draft| draft.write())?;
    }
    match (arguments.json, is_agreed) {
        (true, _) => output::json(&as_json(&found, is_agreed))?,
        (false, true) => output::text(&format!("{} written.\n", files(changes.len())))?,
        (false, false) => {}
    }
    Ok(ExitCode::from(u8::from(!is_agreed && !changes.is_empty() && !arguments.dry_run)))
}

/// A note for a user who stands below the root of the project.
fn of_the_root(cwd: &AbsPath, facts: &Facts) -> Option<String> {
    let root = &facts.workspace;
    if root == cwd {
        return None;
    }
    let why = if root.join(".ringfence").as_path().is_dir() {
        "has a policy"
    } else {
        "has the repository"
    };
    Some(format!(
        "the project is {root}, which {why}: this sets up all of it; `ringfence init --here` makes a project of {cwd} alone"
    ))
}

fn look(
    arguments: &InitCommandArgs,
    surroundings: &HostEnvironment,
) -> Result<InitFindings, CliError> {
    let facts = &surroundings.facts;
    let agents =
        if arguments.agent.is_empty() { agents::found(facts) } else { arguments.agent.clone() };
    let languages = languages::found(&facts.workspace);
    let hosts = hosts::wanted(&languages, &facts.remotes);
    let mut drafts = vec![policy::of_the_project(facts, &languages)?];
    let scope = if arguments.global { PolicyScope::Global } else { PolicyScope::OwnProject };
    drafts.extend(policy::of_the_user(scope, facts, &hosts)?);
    let doubtful = hosts.iter().filter_map(|host| Some((host, host.doubt?)));
    let mut notes: Vec<String> = doubtful
        .map(|(host, doubt)| format!("{} ({}) is not opened: {doubt}", host.rule, host.reason))
        .collect();
    for agent in &agents {
        let set_up = settings::of(*agent, facts)?;
        drafts.extend(set_up.drafts);
        notes.extend(set_up.notes);
    }
    if agents.is_empty() {
        notes.push("no agent was found; `--agent claude-code` sets one up all the same".into());
    }
    Ok(InitFindings { agents, languages, hosts, drafts, notes })
}

fn told(found: &InitFindings, changes: &[&FileDraft]) -> String {
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
        text.push_str("\nEverything is set up already; nothing is to be written.\n");
    }
    for note in &found.notes {
        text.push_str(&format!("\nnote: {}\n", printable(note)));
    }
    text
}

fn files(count: usize) -> String {
    if count == 1 { "One file".into() } else { format!("{count} files") }
}

/// Whether the person says yes.
fn ask(arguments: &InitCommandArgs, count: usize) -> Result<bool, CliError> {
    if arguments.json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CliError::Words {
            what: "nothing was written: there is no terminal to ask at".into(),
            hint: "`ringfence init --yes` writes without asking, `--dry-run` shows what it would write".into(),
        });
    }
    output::text(&format!("\nWrite {} as shown? [y/N] ", files(count).to_lowercase()))?;
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
