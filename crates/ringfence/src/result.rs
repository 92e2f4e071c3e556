//! What became of a command, for every wire.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use ringfence_api::{
    CommandRefusal, Denial, Gap, GrantedAccess, LimitBreach, Outcome, Permission, QuarantinedFile,
    ResourceUsage, ShellState, StreamOutput, base64,
};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// What became of a command.
#[derive(Debug, Clone)]
pub struct ExecuteResult {
    /// What it wrote to standard output.
    pub stdout: CapturedOutput,
    /// What it wrote to standard error.
    pub stderr: CapturedOutput,
    /// What those wrote, to either, that earlier commands have left running, since the
    /// command before this one. In an answer it is there only where something was.
    pub background: CapturedOutput,
    /// Its exit status: 128 + the signal that ended it, 124 for the time limit.
    pub exit_code: i32,
    /// Whether the sandbox stood in the way. A program's own words never make it so.
    pub blocked: bool,
    /// The rule that did, and where it stands.
    pub blocked_reason: Option<String>,
    /// What was wanted: a path, or host and port.
    pub blocked_resource: Option<String>,
    /// Everything that was refused, as much of it as anybody will read.
    pub denials: Vec<Denial>,
    /// How often something else was refused.
    pub denials_dropped: u64,
    /// What went through because somebody was asked and said so.
    pub granted: Vec<GrantedAccess>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The limits that it went beyond.
    pub breaches: Vec<LimitBreach>,
    /// Whether more was written than is kept.
    pub truncated: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// What it used.
    pub usage: ResourceUsage,
    /// Where the shell is now; nowhere if it has ended.
    pub cwd: Option<PathBuf>,
    /// Whether the shell lives on, or the next command starts in a new one.
    pub shell: ShellState,
    /// Whether it was confined at all.
    pub confined: bool,
    /// What was enforced, in words.
    pub enforced: Vec<String>,
    /// What was asked for and could not be enforced.
    pub gaps: Vec<Gap>,
    /// What was moved away before anyone could stumble over it.
    pub quarantined: Vec<QuarantinedFile>,
    /// What a person should know beside.
    pub warnings: Vec<String>,
    /// Why it was not started, if a rule on its text refused it.
    pub refusal: Option<CommandRefusal>,
    /// What stood in the way.
    pub blocked_by: Option<Denial>,
    /// What a person could be asked about that.
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
            shell: ShellState::LivesOn,
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

/// What was written to a stream: bytes, which need not be text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// What was kept of it, the beginning and the end.
    pub bytes: Vec<u8>,
    /// How many bytes between the two are missing.
    pub dropped: u64,
}

impl CapturedOutput {
    /// As text; what is none is shown as `U+FFFD`.
    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Exactly, where text would not be.
    fn exact(&self) -> Option<String> {
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

impl fmt::Display for CapturedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

/// What became of a command.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ExecuteResultJson<'a> {
    /// What it wrote to standard output; what is no text is shown as `U+FFFD`.
    stdout: Cow<'a, str>,
    /// Exactly, where text would not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_base64: Option<String>,
    /// How many bytes are missing in the middle of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_dropped: Option<u64>,
    /// What it wrote to standard error.
    stderr: Cow<'a, str>,
    /// Exactly, where text would not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_base64: Option<String>,
    /// How many bytes are missing in the middle of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_dropped: Option<u64>,
    /// What those wrote that earlier commands have left running.
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<Cow<'a, str>>,
    /// Exactly, where text would not be.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_base64: Option<String>,
    /// How many bytes are missing in the middle of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    background_dropped: Option<u64>,
    /// 128 + the signal that ended it, 124 for the time limit, 126 where a rule refused its text.
    exit_code: i32,
    /// Whether the sandbox stood in the way.
    blocked: bool,
    /// The rule that did, and where it stands.
    blocked_reason: &'a Option<String>,
    /// What was wanted: a path, or host and port.
    blocked_resource: &'a Option<String>,
    /// Everything that was refused, as much of it as anybody will read.
    denials: &'a [Denial],
    /// How often something else was refused.
    denials_dropped: u64,
    /// What went through because somebody was asked and said so.
    granted: &'a [GrantedAccess],
    /// Whether the time limit ended it.
    timed_out: bool,
    /// The limits that it went beyond.
    breaches: &'a [LimitBreach],
    /// Whether more was written than is kept.
    truncated: bool,
    /// How long it took.
    duration_ms: u64,
    /// What it used.
    usage: ResourceUsage,
    /// Where the shell is now; nowhere if it has ended.
    cwd: Option<Cow<'a, str>>,
    /// Whether the shell lives on, or the next command starts in a new one.
    #[schemars(extend("enum" = ["lives-on", "ended"]))]
    shell: &'static str,
    /// Whether it was confined at all.
    confined: bool,
    /// What was enforced, in words.
    enforced: &'a [String],
    /// What was asked for and could not be enforced.
    gaps: &'a [Gap],
    /// What was moved away before anyone could stumble over it.
    quarantined: &'a [QuarantinedFile],
    /// What a person could be asked about what stood in the way.
    permission: &'a Option<Permission>,
    /// Why it was not started, if a rule on its text refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: &'a Option<CommandRefusal>,
    /// What a person should know beside.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

impl Serialize for ExecuteResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ExecuteResultJson {
            stdout: self.stdout.text(),
            stdout_base64: self.stdout.exact(),
            stdout_dropped: self.stdout.dropped(),
            stderr: self.stderr.text(),
            stderr_base64: self.stderr.exact(),
            stderr_dropped: self.stderr.dropped(),
            background: (self.background != CapturedOutput::default())
                .then(|| self.background.text()),
            background_base64: self.background.exact(),
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
                ShellState::LivesOn => "lives-on",
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

/// What is sent, which is what others have to expect.
impl JsonSchema for ExecuteResult {
    fn schema_name() -> Cow<'static, str> {
        "ExecuteResult".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        ExecuteResultJson::json_schema(generator)
    }
}
