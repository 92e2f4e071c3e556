//! The result of a command, for all frontends.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::{
    CommandRefusal, Denial, Gap, GrantedAccess, LimitBreach, Outcome, Permission, QuarantinedFile,
    ResourceUsage, ShellState, StreamOutput, base64,
};

/// The result of a command.
#[derive(Debug, Clone, Default)]
pub struct ExecuteResult {
    /// Standard output.
    pub stdout: CapturedOutput,
    /// Standard error.
    pub stderr: CapturedOutput,
    /// Output of earlier commands' background processes since the previous command. Left out of the
    /// JSON if empty.
    pub background: CapturedOutput,
    /// The exit status: 128 + the signal that ended it, 124 for the time limit.
    pub exit_code: i32,
    /// True if the sandbox blocked the command. Text printed by a program never sets it.
    pub blocked: bool,
    /// The rule that blocked it, and the rule's origin.
    pub blocked_reason: Option<String>,
    /// The blocked resource: a path, or host and port.
    pub blocked_resource: Option<String>,
    /// Denied accesses, up to a limit.
    pub denials: Vec<Denial>,
    /// The number of further denials.
    pub denials_dropped: u64,
    /// Accesses that the user allowed when asked.
    pub granted: Vec<GrantedAccess>,
    /// True if the time limit ended it.
    pub timed_out: bool,
    /// The limits it exceeded.
    pub breaches: Vec<LimitBreach>,
    /// True if output was dropped.
    pub truncated: bool,
    /// The duration.
    pub duration_ms: u64,
    /// Resource usage.
    pub usage: ResourceUsage,
    /// The shell's current directory; none if the shell has ended.
    pub cwd: Option<PathBuf>,
    /// `Ended` if the next command starts in a new shell.
    pub shell: ShellState,
    /// False if the command ran unconfined.
    pub confined: bool,
    /// The enforced restrictions, as text.
    pub enforced: Vec<String>,
    /// Parts of the policy that could not be enforced.
    pub gaps: Vec<Gap>,
    /// Planted files that ringfence moved away.
    pub quarantined: Vec<QuarantinedFile>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The reason it was not started, if a rule on its text denied it.
    pub refusal: Option<CommandRefusal>,
    /// The denial that blocked it.
    pub blocked_by: Option<Denial>,
    /// The permission the user could be asked for.
    pub permission: Option<Permission>,
}

impl From<Outcome> for ExecuteResult {
    fn from(outcome: Outcome) -> Self {
        let blocked_by = outcome.blocked_by().cloned();
        Self {
            exit_code: outcome.exit_code(),
            blocked: blocked_by.is_some(),
            blocked_reason: blocked_by
                .as_ref()
                .map(|denial| format!("{} ({})", denial.rule, denial.origin)),
            blocked_resource: blocked_by.as_ref().map(|denial| denial.target.clone()),
            blocked_by,
            permission: None,
            denials: outcome.denials,
            denials_dropped: outcome.denials_dropped,
            granted: outcome.granted,
            timed_out: outcome.timed_out,
            breaches: outcome.breaches,
            truncated: outcome.stdout.dropped > 0 || outcome.stderr.dropped > 0,
            duration_ms: outcome.duration_ms,
            usage: outcome.usage,
            cwd: None,
            shell: ShellState::Alive,
            confined: true,
            enforced: outcome.enforced,
            gaps: outcome.gaps,
            quarantined: outcome.quarantined,
            refusal: outcome.refusal,
            warnings: Vec::new(),
            stdout: outcome.stdout.into(),
            stderr: outcome.stderr.into(),
            background: CapturedOutput::default(),
        }
    }
}

/// The output of a stream: bytes, not necessarily text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The kept bytes, from the beginning and the end.
    pub bytes: Vec<u8>,
    /// Bytes missing between the two.
    pub dropped: u64,
}

impl CapturedOutput {
    /// As text; invalid UTF-8 is shown as `U+FFFD`.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Base64, if the bytes are not UTF-8.
    fn base64_if_binary(&self) -> Option<String> {
        std::str::from_utf8(&self.bytes).is_err().then(|| base64(&self.bytes))
    }

    fn dropped(&self) -> Option<u64> {
        (self.dropped > 0).then_some(self.dropped)
    }
}

impl From<StreamOutput> for CapturedOutput {
    fn from(output: StreamOutput) -> Self {
        Self {
            dropped: output.dropped,
            bytes: if output.tail.is_empty() { output.head } else { output.bytes() },
        }
    }
}

impl From<Vec<u8>> for CapturedOutput {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, dropped: 0 }
    }
}

impl fmt::Display for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// The result of a command.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecuteResultJson<'a> {
    /// Standard output; invalid UTF-8 is shown as `U+FFFD`.
    stdout: Cow<'a, str>,
    /// Standard output in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    /// Bytes missing in the middle of standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_dropped: Option<u64>,
    /// Standard error; invalid UTF-8 is shown as `U+FFFD`.
    stderr: Cow<'a, str>,
    /// Standard error in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
    /// Bytes missing in the middle of standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_dropped: Option<u64>,
    /// Output of earlier commands' background processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<Cow<'a, str>>,
    /// The background output in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_base64: Option<String>,
    /// Bytes missing in the middle of the background output.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_dropped: Option<u64>,
    /// 128 + the signal that ended it, 124 for the time limit, 126 if a rule denied its text.
    exit_code: i32,
    /// True if the sandbox blocked the command.
    blocked: bool,
    /// The rule that blocked it, and the rule's origin.
    blocked_reason: &'a Option<String>,
    /// The blocked resource: a path, or host and port.
    blocked_resource: &'a Option<String>,
    /// Denied accesses, up to a limit.
    denials: &'a [Denial],
    /// The number of further denials.
    denials_dropped: u64,
    /// Accesses that the user allowed when asked.
    granted: &'a [GrantedAccess],
    /// True if the time limit ended it.
    timed_out: bool,
    /// The limits it exceeded.
    breaches: &'a [LimitBreach],
    /// True if output was dropped.
    truncated: bool,
    /// The duration in milliseconds.
    duration_ms: u64,
    /// Resource usage.
    usage: ResourceUsage,
    /// The shell's current directory; null if the shell has ended.
    cwd: Option<Cow<'a, str>>,
    /// `lives-on`, or `ended`: the next command starts in a new shell.
    #[schemars(extend("enum" = ["lives-on", "ended"]))]
    shell: &'static str,
    /// False if the command ran unconfined.
    confined: bool,
    /// The enforced restrictions, as text.
    enforced: &'a [String],
    /// Parts of the policy that could not be enforced.
    gaps: &'a [Gap],
    /// Planted files that ringfence moved away.
    quarantined: &'a [QuarantinedFile],
    /// The permission the user could be asked for.
    permission: &'a Option<Permission>,
    /// The reason it was not started, if a rule on its text denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: &'a Option<CommandRefusal>,
    /// Warnings for the user.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

impl Serialize for ExecuteResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ExecuteResultJson {
            stdout: self.stdout.text(),
            stdout_base64: self.stdout.base64_if_binary(),
            stdout_dropped: self.stdout.dropped(),
            stderr: self.stderr.text(),
            stderr_base64: self.stderr.base64_if_binary(),
            stderr_dropped: self.stderr.dropped(),
            background: (self.background != CapturedOutput::default())
                .then(|| self.background.text()),
            background_base64: self.background.base64_if_binary(),
            background_dropped: self.background.dropped(),
            exit_code: self.exit_code,
            blocked: self.blocked,
            blocked_reason: &self.blocked_reason,
            blocked_resource: &self.blocked_resource,
            denials: &self.denials,
            denials_dropped: self.denials_dropped,
            granted: &self.granted,
            timed_out: self.timed_out,
            breaches: &self.breaches,
            truncated: self.truncated,
            duration_ms: self.duration_ms,
            usage: self.usage,
            cwd: self.cwd.as_ref().map(|cwd| cwd.to_string_lossy()),
            shell: match self.shell {
                ShellState::Alive => "lives-on",
                ShellState::Ended => "ended",
            },
            confined: self.confined,
            enforced: &self.enforced,
            gaps: &self.gaps,
            quarantined: &self.quarantined,
            permission: &self.permission,
            refusal: &self.refusal,
            warnings: &self.warnings,
        }
        .serialize(serializer)
    }
}

/// The schema of the JSON that is sent.
impl JsonSchema for ExecuteResult {
    fn schema_name() -> Cow<'static, str> {
        "ExecuteResult".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ExecuteResultJson::json_schema(generator)
    }
}
