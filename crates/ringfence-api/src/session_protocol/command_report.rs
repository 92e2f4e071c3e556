//! The result of a command as JSON.

use ringfence_policy::PolicyChange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PolicyProblemReport;
use crate::{
    Allowance, CommandRefusal, ConnectionRecord, Denial, Gap, GrantedAccess, LimitBreach, Outcome,
    Permission, QuarantinedFile, ResourceUsage, ShellState, StreamOutput, base64,
};

/// The result of a command, printed by `run --json` and `session exec --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandReport {
    /// The standard output as text.
    pub stdout: String,
    /// The standard output, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The number of bytes dropped from the middle of standard output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stdout_dropped: u64,
    /// The standard error as text.
    pub stderr: String,
    /// The standard error, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// The number of bytes dropped from the middle of standard error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub stderr_dropped: u64,
    /// The id of the session.
    pub session: String,
    /// The exit status as a shell reports it: 128 + the signal, 124 for the time limit.
    pub exit_code: i32,
    /// True if the sandbox blocked the command.
    pub blocked: bool,
    /// The rule that blocked it.
    pub blocked_reason: Option<String>,
    /// The path or host that was denied.
    pub blocked_resource: Option<String>,
    /// The permission that the user could grant.
    pub permission: Option<Permission>,
    /// The denials, up to a maximum number.
    pub denials: Vec<Denial>,
    /// The number of denials that are not listed.
    pub denials_dropped: u64,
    /// Accesses that an answer allowed.
    pub granted: Vec<GrantedAccess>,
    /// The connections, including those that failed.
    pub connections: Vec<ConnectionRecord>,
    /// The number of connections that are not listed.
    pub connections_dropped: u64,
    /// True if the time limit ended the command.
    pub timed_out: bool,
    /// The limits that the command exceeded.
    pub breaches: Vec<LimitBreach>,
    /// True if bytes were dropped from a stream.
    pub truncated: bool,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The resource usage.
    pub usage: ResourceUsage,
    /// The enforcement steps, as text.
    pub enforced: Vec<String>,
    /// The parts of the policy that could not be enforced.
    pub gaps: Vec<Gap>,
    /// Files that were moved away because they could have run on the host.
    pub quarantined: Vec<QuarantinedFile>,
    /// The reason why the command was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<CommandRefusal>,
    /// The allowed accesses, if the policy asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<Allowance>>,
    /// The number of allowed accesses that are not listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_dropped: Option<u64>,
    /// Output of background processes of earlier commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<String>,
    /// The same, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background_base64: Option<String>,
    /// The number of bytes dropped from it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub background_dropped: u64,
    /// The working directory of the shell after the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The state of the shell after the command; none outside of a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellFate>,
    /// The reasons why the command is not recorded in the audit log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Changes of policy files since the previous command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyReport>,
    /// True if the sandbox was recreated for a stricter policy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
}

/// The state of a session's shell after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShellFate {
    /// The shell waits for the next command.
    LivesOn,
    /// The command ended the shell; the next command gets a new one.
    Ended,
}

impl From<ShellState> for ShellFate {
    fn from(state: ShellState) -> Self {
        match state {
            ShellState::Alive => ShellFate::LivesOn,
            ShellState::Ended => ShellFate::Ended,
        }
    }
}

/// Changes of policy files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyReport {
    /// The added and removed rules.
    pub changes: Vec<PolicyChange>,
    /// The same as sentences.
    pub said: Vec<String>,
    /// The reasons why the policy stays unchanged.
    pub problems: Vec<PolicyProblemReport>,
}

impl CommandReport {
    /// Creates the report of an outcome, with the permission that could be asked for.
    pub fn from_outcome(outcome: &Outcome, session: &str, permission: Option<Permission>) -> Self {
        let blocked_by = outcome.blocked_by();
        let (stdout, stdout_base64) = text_of(&outcome.stdout);
        let (stderr, stderr_base64) = text_of(&outcome.stderr);
        let observed = outcome.observed.as_ref();
        Self {
            stdout,
            stdout_base64,
            stdout_dropped: outcome.stdout.dropped,
            stderr,
            stderr_base64,
            stderr_dropped: outcome.stderr.dropped,
            session: session.to_owned(),
            exit_code: outcome.exit_code(),
            blocked: blocked_by.is_some(),
            blocked_reason: blocked_by.map(|denial| format!("{} ({})", denial.rule, denial.origin)),
            blocked_resource: blocked_by.map(|denial| denial.target.clone()),
            permission,
            denials: outcome.denials.clone(),
            denials_dropped: outcome.denials_dropped,
            granted: outcome.granted.clone(),
            connections: outcome.connections.clone(),
            connections_dropped: outcome.connections_dropped,
            timed_out: outcome.timed_out,
            breaches: outcome.breaches.clone(),
            truncated: outcome.stdout.dropped > 0 || outcome.stderr.dropped > 0,
            duration_ms: outcome.duration_ms,
            usage: outcome.usage,
            enforced: outcome.enforced.clone(),
            gaps: outcome.gaps.clone(),
            quarantined: outcome.quarantined.clone(),
            refusal: outcome.refusal.clone(),
            allowed: observed.map(|observed| observed.allowed.clone()),
            allowed_dropped: observed.map(|observed| observed.dropped),
            ..Self::default()
        }
    }

    /// Adds the output of background processes, if there is any.
    pub fn with_background(mut self, output: &StreamOutput) -> Self {
        if *output != StreamOutput::default() {
            let (text, exact) = text_of(output);
            self.background = Some(text);
            self.background_base64 = exact;
            self.background_dropped = output.dropped;
        }
        self
    }
}

/// Returns the bytes of a stream as text; if they are not UTF-8, also as base64.
fn text_of(output: &StreamOutput) -> (String, Option<String>) {
    String::from_utf8(output.bytes()).map(|text| (text, None)).unwrap_or_else(|error| {
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        (text, Some(base64(error.as_bytes())))
    })
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}
