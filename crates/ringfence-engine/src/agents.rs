//! Definitions of agents: where they are, and which of them hold.

use std::fs;
use std::io;

use ringfence_policy::{AbsPath, Access, AgentSpec, Facts, Grants, PolicyLayer, Source, Verdict};

use crate::EngineError;
use crate::files::{layers_beside, plain_file};
use crate::host::config_directory;

/// How many files are looked at in one place, and how deep directories are looked through.
const MOST: usize = 512;
const DEEPEST: usize = 4;

/// A place where definitions are looked for.
#[derive(Debug, Clone, PartialEq)]
struct AgentDir {
    directory: AbsPath,
    source: Source,
}

/// Where they are looked for; what is found first is what an agent is described by.
fn shelves(facts: &Facts) -> [AgentDir; 4] {
    let project =
        |name| AgentDir { directory: facts.workspace.join(name), source: Source::Project };
    let own = |directory: AbsPath| AgentDir { directory, source: Source::User };
    [
        project(".ringfence/agents"),
        project(".claude/agents"),
        own(config_directory(facts).join("ringfence/agents")),
        own(facts.home.join(".claude/agents")),
    ]
}

/// An agent, by all who have described it.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// What was found first; it says what is run.
    pub agent: AgentSpec,
    /// Further definitions of the same name: what they take away is taken away as well, or a
    /// project could give an agent back what its user took.
    pub others: Vec<AgentSpec>,
}

impl AgentDefinition {
    /// All definitions, the weakest first: the user's before the project's.
    pub fn all(&self) -> impl Iterator<Item = &AgentSpec> {
        self.others.iter().rev().chain([&self.agent])
    }

    /// The layers that the definitions come to, the weakest first.
    pub(crate) fn layers(&self) -> Result<Vec<PolicyLayer>, EngineError> {
        let mut layers = Vec::new();
        for agent in self.all() {
            if let Some(policy) = &agent.policy {
                layers.extend(layers_beside(&agent.file, policy, &agent.source)?);
            }
            layers.push(agent.layer());
        }
        Ok(layers)
    }

    /// Refuses definitions that a command could write: it would give itself what it likes.
    pub(crate) fn refuse_writable(&self, grants: &Grants) -> Result<(), EngineError> {
        let is_writable = |path: &AbsPath| grants.verdict(path, Access::Write) == Verdict::Allowed;
        for AgentSpec { file, .. } in self.all().filter(|_| grants.is_confined()) {
            let real = fs::canonicalize(file.as_path())
                .ok()
                .and_then(AbsPath::new)
                .unwrap_or_else(|| file.clone());
            if is_writable(file) || is_writable(&real) {
                return Err(EngineError::AgentExposed { file: file.clone() });
            }
        }
        Ok(())
    }
}

/// A file that cannot be read as a definition.
#[derive(Debug)]
pub struct UnreadableDefinition {
    /// The file.
    pub file: AbsPath,
    /// What is wrong with it.
    pub error: EngineError,
    /// Lines of it that may say whose it is.
    named: Vec<String>,
}

impl UnreadableDefinition {
    fn of(file: AbsPath, error: EngineError) -> Self {
        let text = plain_file(&file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let named = text
            .lines()
            .filter(|line| line.to_lowercase().contains("name"))
            .map(str::to_owned)
            .collect();
        Self { file, error, named }
    }

    /// Whether it may be the definition of this agent.
    fn may_be(&self, name: &str) -> bool {
        self.file.as_path().file_stem().is_some_and(|stem| stem == name)
            || self.named.iter().any(|line| line.contains(name))
    }
}

/// All agents that are described, in the order of their names; files that cannot be read.
pub fn agents(
    facts: &Facts,
) -> Result<(Vec<AgentDefinition>, Vec<UnreadableDefinition>), EngineError> {
    let mut found: Vec<AgentDefinition> = Vec::new();
    let mut unread = Vec::new();
    for shelf in shelves(facts) {
        let mut here: Vec<AgentSpec> = Vec::new();
        for file in definitions(&shelf.directory)? {
            match read(&file, &shelf, facts) {
                Ok(agent) => here.push(agent),
                Err(error) => unread.push(UnreadableDefinition::of(file, error)),
            }
        }
        for agent in here {
            match found.iter_mut().find(|known| known.agent.name == agent.name) {
                Some(known)
                    if known.all().any(|one| {
                        one.file.parent() == agent.file.parent() && one.source == agent.source
                    }) =>
                {
                    let first = known.agent.file.to_string();
                    let error = EngineError::AgentTwice {
                        name: agent.name.clone(),
                        file: agent.file.clone(),
                        first,
                    };
                    unread.push(UnreadableDefinition::of(agent.file, error));
                }
                Some(known) => known.others.push(agent),
                None => found.push(AgentDefinition { agent, others: Vec::new() }),
            }
        }
    }
    found.sort_by(|one, other| one.agent.name.cmp(&other.agent.name));
    Ok((found, unread))
}

/// The agent of this name, if it is described. A file that might be its definition and cannot be
/// read is an error: what it would have taken away is not known.
pub fn agent(name: &str, facts: &Facts) -> Result<Option<AgentDefinition>, EngineError> {
    let (found, unread) = agents(facts)?;
    match unread.into_iter().find(|unread| unread.may_be(name)) {
        Some(unread) => Err(unread.error),
        None => Ok(found.into_iter().find(|described| described.agent.name == name)),
    }
}

fn read(file: &AbsPath, shelf: &AgentDir, facts: &Facts) -> Result<AgentSpec, EngineError> {
    let fail = |source| EngineError::Unreadable { file: file.clone(), source };
    if shelf.source == Source::Project {
        // What is wrong with a file is quoted, which the author of a repository must not have
        // done to other files.
        let real = fs::canonicalize(file.as_path()).map_err(fail)?;
        let project = fs::canonicalize(facts.workspace.as_path()).map_err(fail)?;
        if !real.starts_with(project) {
            return Err(fail(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a project's definition of an agent leads out of the project",
            )));
        }
    }
    Ok(AgentSpec::parse(&plain_file(file).map_err(fail)?, file, shelf.source.clone())?)
}

/// The Markdown files in a directory and below it, by name.
fn definitions(directory: &AbsPath) -> Result<Vec<AbsPath>, EngineError> {
    let mut files = Vec::new();
    look(directory, DEEPEST, &mut files)?;
    files.sort();
    Ok(files)
}

fn look(directory: &AbsPath, depth: usize, files: &mut Vec<AbsPath>) -> Result<(), EngineError> {
    let fail = |source| EngineError::Unreadable { file: directory.clone(), source };
    let entries = match fs::read_dir(directory.as_path()) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(());
        }
        Err(error) => return Err(fail(error)),
    };
    for entry in entries {
        let entry = entry.map_err(fail)?;
        let path = directory.join(entry.file_name());
        let is_directory = entry.file_type().map_err(fail)?.is_dir();
        if is_directory && depth > 0 {
            look(&path, depth - 1, files)?;
        } else if !is_directory
            && path.as_path().extension().is_some_and(|extension| extension == "md")
        {
            if files.len() >= MOST {
                return Err(fail(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "more than 512 definitions of agents stand there",
                )));
            }
            files.push(path);
        }
    }
    Ok(())
}
