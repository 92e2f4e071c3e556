//! The result of a command, for all frontends.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::session_protocol::PolicyReport;
use crate::{
    Allowance, CommandRefusal, ConnectionRecord, Denial, Gap, GrantedAccess, LimitBreach, Outcome,
    Permission, QuarantinedFile, ResourceUsage, ShellState, StreamOutput, base64, decode_base64,
};

/// The result of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteResult {
    /// Standard output.
    #[serde(flatten, with = "StdoutJson")]
    pub stdout: CapturedOutput,
    /// Standard error.
    #[serde(flatten, with = "StderrJson")]
    pub stderr: CapturedOutput,
    /// Output of earlier commands' background processes since the previous command. Left out of the
    /// JSON if empty.
    #[serde(flatten, with = "BackgroundJson")]
    pub background: CapturedOutput,
    /// The session in the audit log.
    pub session: String,
    /// The exit status: 128 + the signal that ended it, 124 for the time limit, 126 if a rule
    /// denied its text.
    pub exit_code: i32,
    /// True if the sandbox blocked the command. Text printed by a program never sets it.
    pub blocked: bool,
    /// The rule that blocked it, and the rule's origin.
    pub blocked_reason: Option<String>,
    /// The blocked resource: a path, or host and port.
    pub blocked_resource: Option<String>,
    /// The permission the user could be asked for.
    pub permission: Option<Permission>,
    /// Denied accesses, up to a limit.
    pub denials: Vec<Denial>,
    /// The number of further denials.
    pub denials_dropped: u64,
    /// Accesses that the user allowed when asked.
    pub granted: Vec<GrantedAccess>,
    /// The connections, including those that failed.
    pub connections: Vec<ConnectionRecord>,
    /// The number of further connections.
    pub connections_dropped: u64,
    /// True if the time limit ended it.
    pub timed_out: bool,
    /// The limits it exceeded.
    pub breaches: Vec<LimitBreach>,
    /// True if output was dropped.
    pub truncated: bool,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// Resource usage.
    pub usage: ResourceUsage,
    /// The shell's current directory; none if the shell has ended, and without a shell.
    #[serde(serialize_with = "serialize_path")]
    #[schemars(with = "Option<String>")]
    pub cwd: Option<PathBuf>,
    /// `ended` if the next command starts in a new shell, and without a shell.
    pub shell: ShellState,
    /// False if the command ran unconfined.
    pub confined: bool,
    /// The enforced restrictions, as text.
    pub enforced: Vec<String>,
    /// Parts of the policy that could not be enforced.
    pub gaps: Vec<Gap>,
    /// Planted files that ringfence moved away.
    pub quarantined: Vec<QuarantinedFile>,
    /// The reason it was not started, if a rule on its text denied it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<CommandRefusal>,
    /// The allowed accesses, if the policy asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<Allowance>>,
    /// The number of further allowed accesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_dropped: Option<u64>,
    /// Warnings for the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Changes of policy files since the previous command.
    #[serde(default, skip_serializing_if = "PolicyReport::is_empty")]
    pub policy: PolicyReport,
    /// True if the sandbox was recreated for a stricter policy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// The denial that blocked it.
    #[serde(skip)]
    pub blocked_by: Option<Denial>,
}

impl From<Outcome> for ExecuteResult {
    fn from(outcome: Outcome) -> Self {
        let (blocked_by, exit_code) = (outcome.blocked_by().cloned(), outcome.exit_code());
        let reason = |denial: &Denial| format!("{} ({})", denial.rule, denial.origin);
        let (allowed, allowed_dropped) =
            outcome.observed.map(|observed| (observed.allowed, observed.dropped)).unzip();
        Self {
            exit_code,
            blocked: blocked_by.is_some(),
            blocked_reason: blocked_by.as_ref().map(reason),
            blocked_resource: blocked_by.as_ref().map(|denial| denial.target.clone()),
            blocked_by,
            permission: None,
            session: outcome.session,
            denials: outcome.denials,
            denials_dropped: outcome.denials_dropped,
            granted: outcome.granted,
            connections: outcome.connections,
            connections_dropped: outcome.connections_dropped,
            timed_out: outcome.timed_out,
            breaches: outcome.breaches,
            truncated: outcome.stdout.dropped > 0 || outcome.stderr.dropped > 0,
            duration_ms: outcome.duration_ms,
            usage: outcome.usage,
            cwd: outcome.cwd.map(|cwd| cwd.as_path().to_owned()),
            shell: outcome.shell,
            confined: outcome.confined,
            enforced: outcome.enforced,
            gaps: outcome.gaps,
            quarantined: outcome.quarantined,
            refusal: outcome.refusal,
            allowed,
            allowed_dropped,
            warnings: Vec::new(),
            policy: outcome.policy,
            restarted: false,
            stdout: outcome.stdout.into(),
            stderr: outcome.stderr.into(),
            background: outcome.background.into(),
        }
    }
}

fn serialize_path<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(to)
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

/// Declares the JSON fields of a stream. The type is the module that serde's `with` names.
macro_rules! stream_json {
    ($name:ident, $what:literal, $text:literal $(skipped if $is_empty:literal)?, $base64:literal, $dropped:literal) => {
        #[derive(Serialize, Deserialize, JsonSchema)]
        struct $name<'a> {
            #[doc = concat!($what, "; invalid UTF-8 is shown as `U+FFFD`.")]
            #[serde(rename = $text $(, default, skip_serializing_if = $is_empty)?)]
            text: Cow<'a, str>,
            #[doc = concat!($what, " in base64, if it is not UTF-8.")]
            #[serde(rename = $base64, default, skip_serializing_if = "Option::is_none")]
            base64: Option<String>,
            #[doc = concat!("Bytes missing in the middle of `", $text, "`.")]
            #[serde(rename = $dropped, default, skip_serializing_if = "is_zero")]
            dropped: u64,
        }

        impl $name<'_> {
            fn serialize<S: Serializer>(output: &CapturedOutput, to: S) -> Result<S::Ok, S::Error> {
                let is_binary = std::str::from_utf8(&output.bytes).is_err();
                let base64 = is_binary.then(|| base64(&output.bytes));
                let json = $name { text: output.text(), base64, dropped: output.dropped };
                Serialize::serialize(&json, to)
            }

            fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<CapturedOutput, D::Error> {
                let json: $name<'_> = Deserialize::deserialize(from)?;
                let bytes = match json.base64 {
                    Some(base64) => decode_base64(&base64)
                        .ok_or_else(|| de::Error::custom("invalid base64"))?,
                    None => json.text.into_owned().into_bytes(),
                };
                Ok(CapturedOutput { bytes, dropped: json.dropped })
            }
        }
    };
}

stream_json!(StdoutJson, "Standard output", "stdout", "stdoutBase64", "stdoutDropped");
stream_json!(StderrJson, "Standard error", "stderr", "stderrBase64", "stderrDropped");
stream_json!(
    BackgroundJson,
    "Output of earlier commands' background processes",
    "background" skipped if "str::is_empty",
    "backgroundBase64",
    "backgroundDropped"
);

fn is_zero(count: &u64) -> bool {
    *count == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_survive_the_wire() {
        let output = |bytes: &[u8], dropped| CapturedOutput { bytes: bytes.to_vec(), dropped };
        let result = ExecuteResult {
            stdout: output(b"\xff\x00", 7),
            stderr: output("é".as_bytes(), 0),
            background: output(b"\xfe", 0),
            ..ExecuteResult::default()
        };
        let text = serde_json::to_string(&result).unwrap();
        assert!(text.contains(r#""stdoutBase64":"/wA=","stdoutDropped":7,"stderr":"é""#), "{text}");
        assert_eq!(serde_json::from_str::<ExecuteResult>(&text).unwrap(), result);
        let wrong = text.replace("/wA=", "/w?=");
        assert!(serde_json::from_str::<ExecuteResult>(&wrong).is_err(), "{wrong}");
        let plain = serde_json::to_value(ExecuteResult::default()).unwrap();
        assert!(plain.get("background").is_none() && plain["cwd"].is_null(), "{plain}");
    }
}
