//! What can go wrong between a door and a place.

use std::io;

use ringfence_api::Gap;
use ringfence_audit::AuditError;
use ringfence_policy::{AbsPath, PolicyChange, PolicyError};
use ringfence_provider::ProviderError;
use ringfence_tools::ToolError;

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A policy is wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy file is there and cannot be read.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: AbsPath,
        /// Why.
        source: io::Error,
    },
    /// A file below `projects` is for another project, or for none.
    #[error("{file} is {}, and this project is {workspace}", other(named.as_deref()))]
    OtherProject {
        /// The file.
        file: AbsPath,
        /// The path that it gives.
        named: Option<String>,
        /// The project.
        workspace: AbsPath,
    },
    /// A file that holds for all projects names one.
    #[error("{file} has the key `project`, and holds for every project")]
    ProjectKey {
        /// The file.
        file: AbsPath,
    },
    /// Two files of one directory describe the same agent.
    #[error("{file} describes `{name}`, which {first} describes already")]
    AgentTwice {
        /// The agent.
        name: String,
        /// The second file.
        file: AbsPath,
        /// The first.
        first: String,
    },
    /// A definition of an agent lies where the agent could change it.
    #[error("{file} lies where commands can write, so it cannot say what an agent may do")]
    AgentExposed {
        /// The definition.
        file: AbsPath,
    },
    /// Something about the machine or the user could not be found out.
    #[error("cannot find {what}")]
    Surroundings {
        /// What was looked for.
        what: &'static str,
        /// Why it was not found.
        source: io::Error,
    },
    /// It was a command's turn, and nobody wanted it any more.
    #[error("the command was not begun: whoever asked for it is gone")]
    Unwanted,
    /// The policy asks for what cannot be enforced.
    #[error("the policy asks for what cannot be enforced here: {}", gaps.iter().map(|gap| gap.what.as_str()).collect::<Vec<_>>().join(", "))]
    Gaps {
        /// What and why.
        gaps: Vec<Gap>,
    },
    /// It could not be recorded.
    #[error("the run cannot be recorded, and the policy wants it recorded")]
    Audit {
        /// Why not.
        source: AuditError,
    },
    /// The policy was narrowed by what a session that runs cannot take over.
    #[error("the policy was narrowed, and this session still allows more: {}", rules(changes))]
    Narrowed {
        /// The session.
        session: String,
        /// What is to be refused and is not.
        changes: Vec<PolicyChange>,
    },
    /// Tools in process could not be opened.
    #[error("the tools cannot be opened")]
    Tool {
        /// Why.
        source: Box<ToolError>,
    },
    /// The place could not run it.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

fn other(named: Option<&str>) -> String {
    named.map_or_else(|| "for no project".to_owned(), |named| format!("for the project {named}"))
}

fn rules(changes: &[PolicyChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl EngineError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Policy(error) => error.code(),
            EngineError::Unreadable { .. } => "policy-unreadable",
            EngineError::OtherProject { .. } => "policy-other-project",
            EngineError::ProjectKey { .. } => "policy-project-key",
            EngineError::AgentTwice { .. } => "agent-twice",
            EngineError::AgentExposed { .. } => "agent-exposed",
            EngineError::Surroundings { .. } => "surroundings",
            EngineError::Unwanted => "unwanted",
            EngineError::Gaps { .. } => "gap",
            EngineError::Audit { source } => source.code(),
            EngineError::Narrowed { .. } => "policy-narrowed",
            EngineError::Tool { source } => source.code(),
            EngineError::Provider(error) => error.code(),
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            EngineError::Policy(error) => error.hint(),
            EngineError::Unreadable { .. } => Some("make the file readable, or remove it".into()),
            EngineError::OtherProject { workspace, .. } => {
                Some(format!("if it is meant for this project, let it say `project = \"{workspace}\"`; else move it away"))
            }
            EngineError::ProjectKey { .. } => {
                Some("`ringfence policy list` names the file for this project; put its rules there, and take out `project`".into())
            }
            EngineError::AgentTwice { .. } => Some("give one of them another `name`".into()),
            EngineError::AgentExposed { .. } => Some("let the file itself stand there, not a link".into()),
            EngineError::Surroundings { .. } => Some("set HOME to a directory that exists".into()),
            EngineError::Unwanted => None,
            EngineError::Gaps { .. } => Some("`--on-gap run` runs all the same, and says what was not enforced".into()),
            EngineError::Audit { source } => Some(format!(
                "{}; or let runs go unrecorded with `on-error = \"run\"` under `[audit]` in ~/.config/ringfence/policy.toml",
                source.hint()
            )),
            EngineError::Narrowed { session, .. } => Some(format!("`ringfence session stop {session}`, then `ringfence session start`")),
            EngineError::Tool { source } => source.hint(),
            EngineError::Provider(error) => error.hint(),
        }
    }

    /// The exit status of the command line.
    pub fn status(&self) -> i32 {
        match self {
            EngineError::Provider(error) => error.status(),
            _ => 125,
        }
    }
}
