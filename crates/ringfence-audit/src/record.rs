//! Audit records.

mod asked;
mod connected;
mod revised;

use std::ffi::{OsStr, OsString};

use ringfence_api::{
    Allowance, Denial, DenialEvidence, LimitBreach, Operation, QuarantinedFile, base64,
};
use serde::{Serialize, Serializer};

use crate::time::rfc3339;
pub use asked::AskDetails;
pub use connected::ConnectDetails;
pub use revised::PolicyChangeDetails;

/// One line of the log.
///
/// The first eight keys are the same in every record, in this order; `reason` is optional. The
/// other keys depend on the [`RecordAction`].
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The time, in milliseconds since 1970; written as RFC 3339.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub timestamp: u64,
    /// The agent's name as it gave it; `null` if it gave none.
    pub agent: Option<String>,
    /// The run.
    pub session: String,
    /// The operation.
    #[schemars(with = "String")]
    pub operation: RecordAction,
    /// The path, host or command line. Invalid UTF-8 is replaced.
    pub target: String,
    /// The result.
    pub result: RecordResult,
    /// The rule that decided, or the mode.
    pub policy: String,
    /// The reason, if the operation was not allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details that depend on the operation.
    #[serde(flatten)]
    pub details: RecordDetails,
}

fn as_text<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*ms))
}

/// The agent and its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSubject {
    /// The agent, if it gave a name.
    pub agent: Option<String>,
    /// The run.
    pub session: String,
}

/// The operation of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordAction {
    /// A command was requested: `execute`.
    Begin,
    /// A command ended: `exit`.
    End,
    /// An access within it was denied or observed: `read`, `write`, `connect` …
    Access(Operation),
    /// The user was asked about an access that was about to be denied: `ask`.
    Ask,
    /// A permanent grant was written to the user's policy: `permit`.
    Permit,
    /// Policy files of a running session changed: `policy`.
    Revise,
    /// A planted file was quarantined: `quarantine`.
    Quarantine,
    /// The log was damaged and was repaired: `repair`.
    Repair,
    /// Skills were uploaded to a service: `upload`.
    Upload,
    /// A file of a skill was changed: `edit`.
    Edit,
    /// A skill was removed: `remove`.
    Remove,
    /// A permission or resource of a tenant was changed: `manage`.
    Manage,
    /// A request was outside the scope of its token: `request`.
    Request,
}

impl RecordAction {
    /// The word in the log.
    pub fn as_str(self) -> &'static str {
        match self {
            RecordAction::Begin => "execute",
            RecordAction::End => "exit",
            RecordAction::Access(operation) => operation.word(),
            RecordAction::Ask => "ask",
            RecordAction::Permit => "permit",
            RecordAction::Revise => "policy",
            RecordAction::Quarantine => "quarantine",
            RecordAction::Repair => "repair",
            RecordAction::Upload => "upload",
            RecordAction::Edit => "edit",
            RecordAction::Remove => "remove",
            RecordAction::Manage => "manage",
            RecordAction::Request => "request",
        }
    }
}

impl Serialize for RecordAction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecordResult {
    /// It was allowed.
    Allowed,
    /// The policy denied it.
    Blocked,
    /// ringfence failed.
    Failed,
}

/// Details of a record.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum RecordDetails {
    /// A command that is about to run.
    Begun(Box<RunStarted>),
    /// A command that ended.
    Ended(RunEnded),
    /// A denied access.
    Refused(DenialDetails),
    /// An allowed access.
    Passed(AllowanceDetails),
    /// A connection.
    Connected(ConnectDetails),
    /// A question to the user.
    Asked(AskDetails),
    /// A policy change.
    Revised(PolicyChangeDetails),
    /// A quarantined file.
    #[serde(rename_all = "camelCase")]
    Moved {
        /// The new path.
        moved_to: String,
    },
    /// No details.
    None {},
}

/// A command that is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The command in base64, if an argument is not UTF-8: then exactly these bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_base64: Option<Vec<String>>,
    /// The working directory.
    pub cwd: String,
    /// The working directory in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd_base64: Option<String>,
    /// True if the command runs in a sandbox.
    pub confined: bool,
    /// The sandbox provider.
    pub provider: String,
    /// The policy files that apply, weakest first.
    pub policy_files: Vec<String>,
    /// The SHA-256 of the rules in force; equal rules have equal digests.
    pub policy_digest: String,
    /// The rules that are not enforced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// The user of the requesting process.
    pub user: String,
    /// The pid of the requesting process.
    pub pid: u32,
    /// The version of ringfence.
    pub version: String,
}

impl RunStarted {
    /// The command as text, and in base64 if it is not UTF-8.
    pub fn command_fields(command: &[OsString]) -> (Vec<String>, Option<Vec<String>>) {
        let text = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let is_text = command.iter().all(|word| word.to_str().is_some());
        (
            text,
            (!is_text)
                .then(|| command.iter().map(|word| base64(word.as_encoded_bytes())).collect()),
        )
    }

    /// A path as text, and in base64 if it is not UTF-8.
    pub fn path_fields(path: &OsStr) -> (String, Option<String>) {
        (
            path.to_string_lossy().into_owned(),
            path.to_str().is_none().then(|| base64(path.as_encoded_bytes())),
        )
    }
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// The exit status, as the caller sees it.
    pub exit_code: i32,
    /// The duration.
    pub duration_ms: u64,
    /// True if the time limit ended it.
    pub timed_out: bool,
    /// The limits that it exceeded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub breaches: Vec<LimitBreach>,
    /// The number of different denials on record.
    pub denials: usize,
    /// The number of denials that are not on record.
    #[serde(skip_serializing_if = "is_zero")]
    pub denials_dropped: u64,
    /// The number of different allowed accesses, if these are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<usize>,
    /// The number of allowed accesses that are not on record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_dropped: Option<u64>,
    /// The number of connections that are not on record.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_dropped: u64,
    /// The code of the ringfence error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A denied access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DenialDetails {
    /// The source of the rule.
    pub origin: String,
    /// True if an explicit rule denied it, not the lack of a rule.
    pub explicit: bool,
    /// The pid of the process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The source of this information.
    pub evidence: DenialEvidence,
    /// The number of attempts.
    pub count: u64,
    /// True if the program tries this by default and works without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The tool that was called, if it was one of ringfence's own and not a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// An allowed access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowanceDetails {
    /// The source of the rule that allows it.
    pub origin: String,
    /// The pid of the process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The number of accesses.
    pub count: u64,
    /// The tool that was called, if it was one of ringfence's own and not a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl Record {
    /// An access that was allowed within a run.
    pub fn allowed(subject: &RecordSubject, allowance: &Allowance) -> Record {
        Record {
            timestamp: allowance.time_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Access(allowance.operation),
            target: allowance.target.clone(),
            result: RecordResult::Allowed,
            policy: allowance.rule.clone(),
            reason: None,
            details: RecordDetails::Passed(AllowanceDetails {
                origin: allowance.origin.clone(),
                pid: allowance.pid,
                program: allowance.program.clone(),
                count: allowance.count,
                tool: None,
            }),
        }
    }

    /// An access that was denied within a run.
    pub fn denied(subject: &RecordSubject, denial: &Denial) -> Record {
        Record {
            timestamp: denial.time_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Access(denial.operation),
            target: denial.target.clone(),
            result: RecordResult::Blocked,
            policy: denial.rule.clone(),
            reason: Some(format!("{} ({})", denial.rule, denial.origin)),
            details: RecordDetails::Refused(DenialDetails {
                origin: denial.origin.clone(),
                explicit: denial.explicit,
                pid: denial.pid,
                program: denial.program.clone(),
                evidence: denial.evidence,
                count: denial.count,
                optional: denial.optional,
                tool: None,
            }),
        }
    }

    /// The same record, for a tool with this name.
    pub fn by_tool(mut self, name: &str) -> Record {
        match &mut self.details {
            RecordDetails::Refused(DenialDetails { tool, .. })
            | RecordDetails::Passed(AllowanceDetails { tool, .. }) => *tool = Some(name.to_owned()),
            _ => {}
        }
        self
    }

    /// A file that was quarantined after a run.
    pub fn quarantined(subject: &RecordSubject, now_ms: u64, moved: &QuarantinedFile) -> Record {
        Record {
            timestamp: now_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Quarantine,
            target: moved.path.clone(),
            result: RecordResult::Blocked,
            policy: "quarantine".into(),
            reason: Some(moved.reason.clone()),
            details: RecordDetails::Moved { moved_to: moved.moved_to.clone() },
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A record about `target`.
    pub(crate) fn record(target: &str) -> Record {
        let denial = Denial {
            operation: Operation::Read,
            target: target.into(),
            rule: "deny **/.env".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 42,
            program: "cat".into(),
            time_ms: 1_769_596_205_000,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        };
        Record::denied(
            &RecordSubject { agent: Some("code-architect".into()), session: "s".into() },
            &denial,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn keys_are_the_documented_ones_in_order() {
        let text = serde_json::to_string(&testing::record("./.env")).unwrap();
        let expect = r#"{"timestamp":"2026-01-28T10:30:05.000Z","agent":"code-architect","session":"s","operation":"read","target":"./.env","result":"blocked","policy":"deny **/.env","reason":"deny **/.env (built in)","origin":"built in","explicit":true,"pid":42,"program":"cat","evidence":"kernel","count":1}"#;
        assert_eq!(text, expect);
    }

    #[test]
    fn tool_is_the_last_key() {
        let text = serde_json::to_string(&testing::record("./.env").by_tool("read")).unwrap();
        assert!(text.ends_with(r#""evidence":"kernel","count":1,"tool":"read"}"#), "{text}");
    }

    #[test]
    fn non_utf8_bytes_are_kept_in_base64() {
        let word = OsString::from_vec(b"a\xffb".to_vec());
        assert_eq!(
            RunStarted::command_fields(std::slice::from_ref(&word)),
            (vec!["a\u{fffd}b".into()], Some(vec!["Yf9i".into()]))
        );
        assert_eq!(RunStarted::command_fields(&["é\n".into()]), (vec!["é\n".into()], None));
        assert_eq!(RunStarted::path_fields(&word), ("a\u{fffd}b".into(), Some("Yf9i".into())));
    }
}
