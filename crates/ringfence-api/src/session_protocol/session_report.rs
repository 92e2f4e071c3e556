//! The state of a session as JSON, and its errors.

use std::fmt;

use ringfence_policy::PolicyChange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Ask, Gap, Operation, Permission};

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionReport {
    /// The id of the session.
    pub session: String,
    /// The name of the session.
    pub name: Option<String>,
    /// The pid of its process.
    pub pid: u32,
    /// The initial working directory of its commands.
    pub cwd: String,
    /// The time of its start, in milliseconds since 1970.
    pub started_ms: u64,
    /// True if the shell runs a command.
    pub busy: bool,
    /// The number of commands run.
    pub commands: u64,
    /// The state of the sandbox; none for an MCP server.
    #[serde(flatten)]
    pub sandbox: Option<SessionSandboxState>,
}

/// The state of a session's sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSandboxState {
    /// The pid of the shell on the host, if it is idle.
    pub shell_pid: Option<i32>,
    /// The enforcement steps, as text.
    pub enforced: Vec<String>,
    /// The parts of the policy that could not be enforced.
    pub gaps: Vec<Gap>,
    /// The state of the policy.
    pub policy: PolicyState,
}

/// The state of a session's policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyState {
    /// The policy files that apply, weakest first.
    pub files: Vec<String>,
    /// Changes that take effect with a new session.
    pub pending: Vec<PolicyChange>,
    /// The reason the newest policy files are not followed.
    pub problem: Option<PolicyProblemReport>,
}

/// Changes of policy files since the previous command.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// The added and removed rules, and if they are in force.
    pub changes: Vec<PolicyChange>,
    /// The same as sentences.
    pub said: Vec<String>,
    /// The reasons why the policy stays unchanged.
    pub problems: Vec<PolicyProblemReport>,
}

impl PolicyReport {
    /// Adds changes.
    pub fn add_changes(&mut self, changes: Vec<PolicyChange>) {
        self.said.extend(changes.iter().map(ToString::to_string));
        self.changes.extend(changes);
    }

    /// True if there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.problems.is_empty()
    }

    /// The report as warnings, for frontends that do not show the report itself.
    pub fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let problems = self.problems.iter();
        let problems =
            problems.map(|problem| format!("the policy stays unchanged: {}", problem.message));
        self.said.iter().map(|change| format!("the policy has changed: {change}")).chain(problems)
    }
}

/// A policy change that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyProblemReport {
    /// The stable error code.
    pub code: String,
    /// The problem and its position.
    pub message: String,
    /// A command to type.
    pub hint: Option<String>,
}

/// An access that waits for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionReport {
    /// The number of the question.
    pub question: u64,
    /// The operation.
    pub operation: Operation,
    /// The exact path, or host and port.
    pub target: String,
    /// The program of the process.
    pub program: String,
    /// The pid of the process on the host.
    pub pid: u32,
    /// The permission and the possible answers.
    pub permission: Permission,
    /// The id of the session.
    pub session: String,
}

impl QuestionReport {
    /// Creates the report; `None` if the access can only be denied.
    pub fn from_ask(question: u64, ask: &Ask, session: &str) -> Option<Self> {
        let denial = &ask.denial;
        Some(Self {
            question,
            operation: denial.operation,
            target: denial.target.clone(),
            program: denial.program.clone(),
            pid: denial.pid,
            permission: ask.permission()?,
            session: session.to_owned(),
        })
    }
}

/// The error of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionError {
    /// The stable error code.
    pub code: String,
    /// The message.
    pub message: String,
    /// The causes, nearest first.
    #[serde(default)]
    pub causes: Vec<String>,
    /// A command to type, or another way to fix the error.
    #[serde(default)]
    pub hint: Option<String>,
    /// The exit status for a program that reports it.
    #[serde(default = "failed_status")]
    pub status: u8,
}

fn failed_status() -> u8 {
    SessionError::FAILED
}

impl SessionError {
    /// The exit status of a failure of ringfence.
    const FAILED: u8 = 125;

    /// The error of a client and a session that do not understand each other.
    pub fn not_understood(code: &str, what: String, session: &str) -> Self {
        Self::new(code, what).with_hint(format!(
            "restart the session: `ringfence session stop {session}`, then `ringfence session start`"
        ))
    }

    /// Creates an error without a hint.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            causes: Vec::new(),
            hint: None,
            status: Self::FAILED,
        }
    }

    /// Adds the hint.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SessionError {}
