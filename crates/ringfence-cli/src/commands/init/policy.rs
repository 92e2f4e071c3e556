//! The policies that are proposed.
//!
//! The repository's file can narrow and not widen, since its author is not its user. It has the
//! rules that are for all who work on it. What is opened stands in the user's own file for this
//! project.

use std::fs;

use ringfence_engine::{PolicyScope, new_own_policy, policy_file};
use ringfence_policy::{
    AbsPath, Facts, HostRule, PolicyEntryEdit, Source, edit_policy_entry, parse_bytes,
};

use super::draft::FileDraft;
use super::hosts::ProjectHost;
use super::languages::ProjectLanguage;
use crate::error::CliError;
use crate::read_file::text_of;

/// The project's: it says where the project begins, and what is not even tried.
pub(super) fn of_the_project(
    facts: &Facts,
    languages: &[&ProjectLanguage],
) -> Result<FileDraft, CliError> {
    let file = facts.workspace.join(".ringfence/policy.toml");
    let before = text_of(file.as_path())?;
    let publishes: Vec<(&str, &str)> = languages
        .iter()
        .flat_map(|language| language.publishes.iter().map(move |line| (*line, language.name)))
        .collect();
    let after = match &before {
        Some(text) => text.clone(),
        None => {
            let mut text = String::from(
                "# Rules for all who let agents work on this project: commit this file. It narrows what each user's own\n# policy (below ~/.config/ringfence) allows, and opens nothing: docs/policy.md, docs/commands.md.\nversion = 1\n",
            );
            if reads_env_files(&facts.workspace) {
                text.push_str(
                    "\n[filesystem]\n# Tools of this project load .env files at every start: they find them empty, not denied.\nenv-files = \"empty\"\n",
                );
            }
            if !publishes.is_empty() {
                text.push_str("\n[commands]\ndeny = [\n");
                for (line, language) in publishes {
                    text.push_str(&format!(
                        "  {}, # {language}: what is published is seen by everybody; a person does that\n",
                        quoted(line)
                    ));
                }
                text.push_str("]\n");
            }
            text
        }
    };
    let parsed = parse_bytes(after.as_bytes(), &file, Source::Project);
    parsed.map_err(ringfence_engine::EngineError::from)?;
    let draft = FileDraft::within(file, before, after, &facts.workspace)?;
    Ok(draft.about("the repository's policy, for all who work on it: it can only forbid, so what is opened is not here"))
}

/// Tells whether the project names a tool that loads `.env` files by itself: with EACCES it would
/// not start.
fn reads_env_files(project: &AbsPath) -> bool {
    const LISTS: &[&str] = &[
        "package.json",
        "pyproject.toml",
        "requirements.txt",
        "Pipfile",
        "Gemfile",
        "composer.json",
    ];
    const LOADERS: &[&str] = &[
        "dotenv",
        "\"vite\"",
        "\"next\"",
        "\"nuxt\"",
        "\"astro\"",
        "react-scripts",
        "django-environ",
        "python-decouple",
        "environs",
    ];
    let names_loader = |text: String| LOADERS.iter().any(|loader| text.contains(loader));
    LISTS
        .iter()
        .filter_map(|name| fs::read_to_string(project.join(name).as_path()).ok())
        .any(names_loader)
}

/// The user's own, for this project or for all: it opens hosts. `None` if no host is to be opened.
pub(super) fn of_the_user(
    scope: PolicyScope,
    facts: &Facts,
    hosts: &[ProjectHost],
) -> Result<Option<FileDraft>, CliError> {
    if hosts.is_empty() {
        return Ok(None);
    }
    let named = policy_file(scope, facts);
    // Users may keep their settings elsewhere, and a link to them here.
    let real = fs::canonicalize(named.as_path()).ok().and_then(AbsPath::new);
    let file = real.unwrap_or(named);
    let before = text_of(file.as_path())?;
    let after = match &before {
        None => fresh(scope, facts, hosts),
        Some(text) => {
            let mut text = text.clone();
            for host in hosts.iter().filter(|host| host.doubt.is_none()) {
                let Ok(rule) = HostRule::parse(&host.rule) else { continue };
                if let Some(more) =
                    edit_policy_entry(Some(&text), &file, &PolicyEntryEdit::host(&rule))
                        .map_err(ringfence_engine::EngineError::from)?
                {
                    text = more;
                }
            }
            text
        }
    };
    parse_bytes(after.as_bytes(), &file, Source::User)
        .map_err(ringfence_engine::EngineError::from)?;
    let about = match scope {
        PolicyScope::Global => "your own policy, for all of your projects",
        PolicyScope::OwnProject | PolicyScope::Project => {
            "your own policy for this project: hosts are opened here, and the repository does not carry it"
        }
    };
    Ok(Some(FileDraft::locked(file, before, after).about(about)))
}

fn fresh(scope: PolicyScope, facts: &Facts, hosts: &[ProjectHost]) -> String {
    let name = facts
        .workspace
        .name()
        .map(|name| name.to_string_lossy().chars().filter(|c| !c.is_control()).collect::<String>());
    let mut text = match scope {
        PolicyScope::Global => format!(
            "# Your own policy: it holds for agents' commands in all of your projects.\nversion = 1\n\n[network]\n# For {}:\nallow = [\n",
            name.unwrap_or_default()
        ),
        PolicyScope::OwnProject | PolicyScope::Project => {
            format!("{}\n[network]\nallow = [\n", new_own_policy(facts))
        }
    };
    for ProjectHost { rule, reason, doubt } in hosts {
        match doubt {
            None => text.push_str(&format!("  {}, # {reason}\n", quoted(rule))),
            Some(doubt) => {
                text.push_str(&format!("  # {}, # {reason}; not opened: {doubt}\n", quoted(rule)))
            }
        }
    }
    text.push_str("]\n");
    text
}

fn quoted(text: &str) -> String {
    format!("{:?}", text)
}
