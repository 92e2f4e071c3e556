//! Agent definition files: lookup and precedence.

use std::fs;
use std::io;

use ringfence_policy::{AbsPath, Access, AgentSpec, Facts, Grants, PolicyLayer, Source, Verdict};

use crate::EngineError;
use crate::files::{read_policy_file, read_referenced_layers};
use crate::host::config_directory;

/// Limits on the number of files read per directory, and on the recursion depth.
const MAX_FILES: usize = 512;
const MAX_DEPTH: usize = 4;

/// A directory that is searched for agent definitions.
#[derive(Debug, Clone, PartialEq)]
struct AgentDir {
    directory: AbsPath,
    source: Source,
}

/// The searched directories. The first definition found describes the agent.
fn agent_directories(facts: &Facts) -> [AgentDir; 4] {
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

/// An agent, with every definition of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentDefinition {
    /// The first definition found. It names the program to run.
    pub agent: AgentSpec,
    /// Further definitions of the same name. Their restrictions apply too, else a project could
    /// give back a permission that the user took away.
    pub others: Vec<AgentSpec>,
}

impl AgentDefinition {
    /// All definitions, the weakest first: the user's before the project's.
    pub fn all(&self) -> impl Iterator<Item = &AgentSpec> {
        self.others.iter().rev().chain([&self.agent])
    }

    /// The policy layers of all definitions, the weakest first.
    pub(crate) fn layers(&self) -> Result<Vec<PolicyLayer>, EngineError> {
        let mut layers = Vec::new();
        for agent in self.all() {
            if let Some(policy) = &agent.policy {
                layers.extend(read_referenced_layers(&agent.file, policy, &agent.source)?);
            }
            layers.push(agent.layer());
        }
        Ok(layers)
    }

    /// Refuses definitions that a command can write: it could give itself permissions.
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
    /// The reason.
    pub error: EngineError,
    /// Lines that may contain the agent's name.
    name_lines: Vec<String>,
}

impl UnreadableDefinition {
    fn new(file: AbsPath, error: EngineError) -> Self {
        let text = read_policy_file(&file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let name_lines = text
            .lines()
            .filter(|line| line.to_lowercase().contains("name"))
            .map(str::to_owned)
            .collect();
        Self { file, error, name_lines }
    }

    /// True if the file may define this agent.
    fn may_define(&self, name: &str) -> bool {
        self.file.as_path().file_stem().is_some_and(|stem| stem == name)
            || self.name_lines.iter().any(|line| line.contains(name))
    }
}

/// All defined agents, sorted by name, and the files that cannot be parsed.
pub fn list_agents(
    facts: &Facts,
) -> Result<(Vec<AgentDefinition>, Vec<UnreadableDefinition>), EngineError> {
    let mut found: Vec<AgentDefinition> = Vec::new();
    let mut unread = Vec::new();
    for directory_entry in agent_directories(facts) {
        let mut here: Vec<AgentSpec> = Vec::new();
        for file in definitions(&directory_entry.directory)? {
            match read(&file, &directory_entry, facts) {
                Ok(agent) => here.push(agent),
                Err(error) => unread.push(UnreadableDefinition::new(file, error)),
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
                    unread.push(UnreadableDefinition::new(agent.file, error));
                }
                Some(known) => known.others.push(agent),
                None => found.push(AgentDefinition { agent, others: Vec::new() }),
            }
        }
    }
    found.sort_by(|one, other| one.agent.name.cmp(&other.agent.name));
    Ok((found, unread))
}

/// The agent with this name, if it is defined. A file that may be its definition and cannot be read
/// is an error: its restrictions are unknown.
pub fn find_agent(name: &str, facts: &Facts) -> Result<Option<AgentDefinition>, EngineError> {
    let (found, unread) = list_agents(facts)?;
    match unread.into_iter().find(|unread| unread.may_define(name)) {
        Some(unread) => Err(unread.error),
        None => Ok(found.into_iter().find(|described| described.agent.name == name)),
    }
}

fn read(
    file: &AbsPath,
    directory_entry: &AgentDir,
    facts: &Facts,
) -> Result<AgentSpec, EngineError> {
    let fail = |source| EngineError::Unreadable { file: file.clone(), source };
    if directory_entry.source == Source::Project {
        // The error quotes the file. A repository must not make ringfence quote files outside it.
        let real = fs::canonicalize(file.as_path()).map_err(fail)?;
        let project = fs::canonicalize(facts.workspace.as_path()).map_err(fail)?;
        if !real.starts_with(project) {
            return Err(fail(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the agent definition is a link to a file outside the project",
            )));
        }
    }
    Ok(AgentSpec::parse(
        &read_policy_file(file).map_err(fail)?,
        file,
        directory_entry.source.clone(),
    )?)
}

/// The Markdown files in a directory and below it, by name.
fn definitions(directory: &AbsPath) -> Result<Vec<AbsPath>, EngineError> {
    let mut files = Vec::new();
    collect_markdown(directory, MAX_DEPTH, &mut files)?;
    files.sort();
    Ok(files)
}

fn collect_markdown(
    directory: &AbsPath,
    depth: usize,
    files: &mut Vec<AbsPath>,
) -> Result<(), EngineError> {
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
            collect_markdown(&path, depth - 1, files)?;
        } else if !is_directory
            && path.as_path().extension().is_some_and(|extension| extension == "md")
        {
            if files.len() >= MAX_FILES {
                return Err(fail(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "the directory holds more than 512 agent definitions",
                )));
            }
            files.push(path);
        }
    }
    Ok(())
}
