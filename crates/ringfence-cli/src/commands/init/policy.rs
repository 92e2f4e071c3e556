//! The proposed policies.
//!
//! The repository's file can restrict but not allow, since its author is not its user. It has the
//! rules for all users of the project. The user's own file for this project holds what is
//! allowed.

use std::fs;

use ringfence_engine::{PolicyScope, new_own_policy, policy_file};
use ringfence_policy::{
    AbsPath, Facts, HostRule, PolicyEntryEdit, Source, edit_policy_entry, parse_bytes,
};

use super::draft::FileDraft;
use super::hosts::ProjectHost;
use super::languages::ProjectLanguage;
use crate::error::CliError;
use crate::read_file::read_text;

/// Drafts the project's policy: it marks the project root, and denies commands that publish.
pub(super) fn for_project(
    facts: &Facts,
    languages: &[&ProjectLanguage],
) -> Result<FileDraft, CliError> {
    let file = facts.workspace.join(".ringfence/policy.toml");
    let before = read_text(file.as_path())?;
    let publishes: Vec<(&str, &str)> = languages
        .iter()
        .flat_map(|language| language.publishes.iter().map(move |line| (*line, language.name)))
        .collect();
    let after = match &before {
        Some(text) => text.clone(),
        None => {
            let mut text = String::from(
                "# Rules for all users of this repository: commit this file. It restricts what each user's own policy\n# (below ~/.config/ringfence) allows, and cannot allow anything: docs/policy.md, docs/commands.md.\nversion = 1\n",
            );
            if reads_env_files(&facts.workspace) {
                text.push_str(
                    "\n[filesystem]\n# Tools of this project load .env files at every start: show them as empty, not denied.\nenv-files = \"empty\"\n",
                );
            }
            if !publishes.is_empty() {
                text.push_str("\n[commands]\ndeny = [\n");
                for (line, language) in publishes {
                    text.push_str(&format!(
                        "  {}, # {language}: publishing is public; a user does that\n",
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
    let draft = FileDraft::in_project(file, before, after, &facts.workspace)?;
    Ok(draft.with_heading("the repository's policy, for all its users: it can only restrict, so nothing is allowed here"))
}

/// True if the project uses a tool that loads `.env` files by itself: such a tool does not start
/// after EACCES.
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

/// Drafts the user's policy, for this project or for all: it allows hosts. `None` without hosts.
pub(super) fn for_user(
    scope: PolicyScope,
    facts: &Facts,
    hosts: &[ProjectHost],
) -> Result<Option<FileDraft>, CliError> {
    if hosts.is_empty() {
        return Ok(None);
    }
    let named = policy_file(scope, facts);
    // The user may keep settings elsewhere, with a link here.
    let real = fs::canonicalize(named.as_path()).ok().and_then(AbsPath::new);
    let file = real.unwrap_or(named);
    let before = read_text(file.as_path())?;
    let after = match &before {
        None => new_user_policy(scope, facts, hosts),
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
        PolicyScope::Global => "your own policy, for all your projects",
        PolicyScope::OwnProject | PolicyScope::Project => {
            "your own policy for this project: hosts are allowed here, and it is not part of the repository"
        }
    };
    Ok(Some(FileDraft::locked(file, before, after).with_heading(about)))
}

fn new_user_policy(scope: PolicyScope, facts: &Facts, hosts: &[ProjectHost]) -> String {
    let name = facts
        .workspace
        .name()
        .map(|name| name.to_string_lossy().chars().filter(|c| !c.is_control()).collect::<String>());
    let mut text = match scope {
        PolicyScope::Global => format!(
            "# Your own policy: it applies to agents' commands in all your projects.\nversion = 1\n\n[network]\n# For {}:\nallow = [\n",
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
                text.push_str(&format!("  # {}, # {reason}; not allowed: {doubt}\n", quoted(rule)))
            }
        }
    }
    text.push_str("]\n");
    text
}

fn quoted(text: &str) -> String {
    format!("{:?}", text)
}
