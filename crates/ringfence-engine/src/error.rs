//! Errors of the engine.

use std::io;

use ringfence_api::Gap;
use ringfence_audit::AuditError;
use ringfence_policy::{AbsPath, PolicyChange, PolicyError};
use ringfence_provider::ProviderError;

/// The reason a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy file exists and cannot be read.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: AbsPath,
        /// The cause.
        source: io::Error,
    },
    /// A file below `projects` belongs to another project, or names none.
    #[error("{file} is {}, but this project is {workspace}", project_text(named.as_deref()))]
    OtherProject {
        /// The file.
        file: AbsPath,
        /// The project path in the file.
        named: Option<String>,
        /// The project.
        workspace: AbsPath,
    },
    /// A file for all projects has the key `project`.
    #[error("{file} applies to every project, so it cannot have the key `project`")]
    ProjectKey {
        /// The file.
        file: AbsPath,
    },
    /// Two files of one directory define the same agent.
    #[error("{file} defines the agent `{name}`, which {first} already defines")]
    AgentTwice {
        /// The agent.
        name: String,
        /// The second file.
        file: AbsPath,
        /// The first.
        first: String,
    },
    /// An agent definition is writable by commands.
    #[error("commands can write to {file}, so it cannot define what an agent may do")]
    AgentExposed {
        /// The definition.
        file: AbsPath,
    },
    /// The log file is writable by commands.
    #[error("commands can write to the log file {file}")]
    LogExposed {
        /// The log file.
        file: AbsPath,
    },
    /// A fact about the host or the user is missing.
    #[error("cannot find {what}")]
    Surroundings {
        /// The missing fact.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The caller interrupted the command or disconnected while it waited in the queue.
    #[error("command not started: the caller interrupted it or has disconnected")]
    Unwanted,
    /// The policy has a rule that cannot be enforced on this host.
    #[error("the policy cannot be enforced on this host: {}", gaps.iter().map(|gap| gap.what.as_str()).collect::<Vec<_>>().join(", "))]
    Gaps {
        /// Each unenforced rule and the cause.
        gaps: Vec<Gap>,
    },
    /// The provider confines nothing, and a flag or the managed policy requires a sandbox.
    #[error("the provider `{provider}` ({origin}) confines nothing, and a sandbox is required")]
    Unconfined {
        /// The provider.
        provider: String,
        /// Origin of the choice.
        origin: String,
    },
    /// The policy turns the sandbox off, and a flag, the managed policy or the command's author
    /// requires one.
    #[error("the policy turns the sandbox off, and this command must run in a sandbox")]
    SandboxOff,
    /// A flag turns the sandbox off, and the policy does not allow that.
    #[error("the policy does not allow running without a sandbox")]
    SandboxRequired,
    /// The audit record could not be written.
    #[error("cannot write the audit record that the policy requires")]
    Audit {
        /// The cause.
        source: AuditError,
    },
    /// The policy was narrowed, and a running session cannot apply it live.
    #[error(
        "the policy was narrowed, but this running session still allows more: {}",
        rules(changes)
    )]
    Narrowed {
        /// The session.
        session: String,
        /// The narrowings not applied.
        changes: Vec<PolicyChange>,
    },
    /// The provider could not run the command.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

fn project_text(named: Option<&str>) -> String {
    named.map_or_else(|| "for no project".to_owned(), |named| format!("for the project {named}"))
}

fn rules(changes: &[PolicyChange]) -> String {
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl EngineError {
    /// The stable error code.
    pub fn code(&self) -> &'static str {
        match self {
            EngineError::Policy(error) => error.code(),
            EngineError::Unreadable { .. } => "policy-unreadable",
            EngineError::OtherProject { .. } => "policy-other-project",
            EngineError::ProjectKey { .. } => "policy-project-key",
            EngineError::AgentTwice { .. } => "agent-twice",
            EngineError::AgentExposed { .. } => "agent-exposed",
            EngineError::LogExposed { .. } => "log-exposed",
            EngineError::Surroundings { .. } => "surroundings",
            EngineError::Unwanted => "unwanted",
            EngineError::Gaps { .. } => "gap",
            EngineError::Unconfined { .. } => "provider-unconfined",
            EngineError::SandboxOff => "sandbox-off",
            EngineError::SandboxRequired => "sandbox-required",
            EngineError::Audit { source } => source.code(),
            EngineError::Narrowed { .. } => "policy-narrowed",
            EngineError::Provider(error) => error.code(),
        }
    }

    /// The hint: a command to type.
    pub fn hint(&self) -> Option<String> {
        match self {
            EngineError::Policy(error) => error.hint(),
            EngineError::Unreadable { .. } => Some("make the file readable (`chmod u+r FILE`), or remove it".into()),
            EngineError::OtherProject { workspace, .. } => {
                Some(format!("if the file is for this project, set `project = \"{workspace}\"` in it; else move it away"))
            }
            EngineError::ProjectKey { .. } => {
                Some("run `ringfence policy list` for the file of this project; move the rules there, and remove `project`".into())
            }
            EngineError::AgentTwice { .. } => Some("change the `name` in one of the two files".into()),
            EngineError::AgentExposed { .. } => Some("replace the link by the file itself".into()),
            EngineError::LogExposed { .. } => {
                Some("name a file outside of the project: `RINGFENCE_LOG_FILE=~/ringfence.log`".into())
            }
            EngineError::Surroundings { .. } => Some("set HOME to a directory that exists".into()),
            EngineError::Unwanted => None,
            EngineError::Gaps { .. } => Some("use `--on-gap run` to run anyway; the outcome lists the unenforced rules".into()),
            EngineError::Unconfined { .. } => {
                Some("use `--provider local`; `ringfence policy show --origin` shows which file or flag chose it".into())
            }
            EngineError::SandboxOff => {
                Some("`ringfence policy show --origin` shows which file or flag turned it off; type a project's command yourself after `--` to run it unconfined".into())
            }
            EngineError::SandboxRequired => {
                Some("omit `--no-sandbox`, or run `ringfence configure --global set sandbox.allow-unsandboxed-commands true`".into())
            }
            EngineError::Audit { source } => Some(format!(
                "{}; or set `on-error = \"run\"` under `[audit]` in ~/.config/ringfence/policy.toml to run unrecorded",
                source.hint()
            )),
            EngineError::Narrowed { session, .. } => Some(format!("run `ringfence session stop {session}`, then `ringfence session start`")),
            EngineError::Provider(error) => error.hint(),
        }
    }

    /// The exit status of the CLI.
    pub fn status(&self) -> i32 {
        match self {
            EngineError::Provider(error) => error.status(),
            _ => 125,
        }
    }
}
