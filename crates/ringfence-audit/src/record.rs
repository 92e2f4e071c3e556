//! What is written down.

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
/// The first eight keys are the same in every record, in this order; `reason` is there only
/// where there is one. What else is known depends on the [`Act`].
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// When it happened, in milliseconds since 1970; written as RFC 3339.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub timestamp: u64,
    /// Who acts, in their own words; `null` if nobody said.
    pub agent: Option<String>,
    /// Which run it belongs to.
    pub session: String,
    /// What was done or tried.
    #[schemars(with = "String")]
    pub operation: RecordAction,
    /// On what: a path, a host, a command line. What is not UTF-8 in it is replaced.
    pub target: String,
    /// What became of it.
    pub result: RecordResult,
    /// The rule that decided, or the mode.
    pub policy: String,
    /// Why, where it did not go through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What else is known.
    #[serde(flatten)]
    pub details: RecordDetails,
}

fn as_text<S: Serializer>(ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*ms))
}

/// Who acts, and in which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSubject {
    /// Who acts, if somebody said.
    pub agent: Option<String>,
    /// Which run it is.
    pub session: String,
}

/// What was done or tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordAction {
    /// A command was asked for: `execute`.
    Begin,
    /// It ended: `exit`.
    End,
    /// Something within it was refused, or observed: `read`, `write`, `connect` …
    Access(Operation),
    /// A person was asked about something that was about to be refused: `ask`.
    Ask,
    /// What they allowed for good was written into their policy: `permit`.
    Permit,
    /// Policy files of a session that runs were changed: `policy`.
    Revise,
    /// Something it planted was moved away: `quarantine`.
    Quarantine,
    /// The log itself was found broken and was mended: `repair`.
    Repair,
    /// Skills were brought to a service: `upload`.
    Upload,
    /// A file of one was changed: `edit`.
    Edit,
    /// One was removed: `remove`.
    Remove,
    /// Something that a tenant may do or use was changed: `manage`.
    Manage,
    /// Somebody asked a service for what their token does not allow: `request`.
    Request,
}

impl RecordAction {
    /// Its word in the log.
    pub fn word(self) -> &'static str {
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
        serializer.serialize_str(self.word())
    }
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RecordResult {
    /// It went through.
    Allowed,
    /// The policy refused it.
    Blocked,
    /// ringfence itself could not.
    Failed,
}

/// What else is known.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum RecordDetails {
    /// Of a command that is about to run.
    Begun(Box<RunStarted>),
    /// Of a command that ended.
    Ended(RunEnded),
    /// Of something that was refused.
    Refused(DenialDetails),
    /// Of something that went through.
    Passed(AllowanceDetails),
    /// Of somebody who was connected to.
    Connected(ConnectDetails),
    /// Of something that somebody was asked about.
    Asked(AskDetails),
    /// Of a policy that was changed.
    Revised(PolicyChangeDetails),
    /// Of something that was moved away.
    #[serde(rename_all = "camelCase")]
    Moved {
        /// Where it is now.
        moved_to: String,
    },
    /// Nothing.
    None {},
}

/// A command that is about to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The same in base64, if they are not all UTF-8: then exactly these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_base64: Option<Vec<String>>,
    /// Where it starts.
    pub cwd: String,
    /// The same in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd_base64: Option<String>,
    /// Whether anything is held back.
    pub confined: bool,
    /// The policy files that count, weakest first.
    pub policy_files: Vec<String>,
    /// The SHA-256 of all the rules that hold; the same rules have the same one.
    pub policy_digest: String,
    /// What was asked for and is not enforced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
    /// Whose process asked.
    pub user: String,
    /// The process that asked.
    pub pid: u32,
    /// Which ringfence.
    pub version: String,
}

impl RunStarted {
    /// The command's words, and exactly, where they are not text.
    pub fn words(command: &[OsString]) -> (Vec<String>, Option<Vec<String>>) {
        let text = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let is_text = command.iter().all(|word| word.to_str().is_some());
        (
            text,
            (!is_text)
                .then(|| command.iter().map(|word| base64(word.as_encoded_bytes())).collect()),
        )
    }

    /// A path, and exactly, where it is not text.
    pub fn path(path: &OsStr) -> (String, Option<String>) {
        (
            path.to_string_lossy().into_owned(),
            path.to_str().is_none().then(|| base64(path.as_encoded_bytes())),
        )
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// The exit status, as the caller sees it.
    pub exit_code: i32,
    /// How long it took.
    pub duration_ms: u64,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The limits that it went beyond.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub breaches: Vec<LimitBreach>,
    /// How many different things were refused, of those that are on record.
    pub denials: usize,
    /// How often something else was refused that is not on record.
    #[serde(skip_serializing_if = "is_zero")]
    pub denials_dropped: u64,
    /// How many different things went through, where each is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<usize>,
    /// How many accesses went through that are not among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_dropped: Option<u64>,
    /// How many connections there were that are not on record.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_dropped: u64,
    /// The error of ringfence's own that ended it, as a stable word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Something that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DenialDetails {
    /// Where the rule was written.
    pub origin: String,
    /// Whether a written rule refused, not the mere absence of one.
    pub explicit: bool,
    /// The process that tried.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// How ringfence knows.
    pub evidence: DenialEvidence,
    /// How often the same was tried.
    pub count: u64,
    /// True if the program tries this by itself and runs without it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The tool that was called, if it was one of ringfence's own and no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

/// Something that went through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowanceDetails {
    /// Where the rule was written that allows it.
    pub origin: String,
    /// The process that did it.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// How often.
    pub count: u64,
    /// The tool that was called, if it was one of ringfence's own and no command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
}

impl Record {
    /// Something that went through within a run.
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

    /// Something that was refused within a run.
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

    /// The same, done or tried by a tool of this name.
    pub fn by_tool(mut self, name: &str) -> Record {
        match &mut self.details {
            RecordDetails::Refused(DenialDetails { tool, .. })
            | RecordDetails::Passed(AllowanceDetails { tool, .. }) => *tool = Some(name.to_owned()),
            _ => {}
        }
        self
    }

    /// Something that was moved away when a run had ended.
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
    fn the_keys_are_the_documented_ones_in_their_order() {
        let text = serde_json::to_string(&testing::record("./.env")).unwrap();
        let expect = r#"{"timestamp":"2026-01-28T10:30:05.000Z","agent":"code-architect","session":"s","operation":"read","target":"./.env","result":"blocked","policy":"deny **/.env","reason":"deny **/.env (built in)","origin":"built in","explicit":true,"pid":42,"program":"cat","evidence":"kernel","count":1}"#;
        assert_eq!(text, expect);
    }

    #[test]
    fn a_tool_stands_behind_what_is_known_of_the_deed() {
        let text = serde_json::to_string(&testing::record("./.env").by_tool("read")).unwrap();
        assert!(text.ends_with(r#""evidence":"kernel","count":1,"tool":"read"}"#), "{text}");
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_beside_it() {
        let word = OsString::from_vec(b"a\xffb".to_vec());
        assert_eq!(
            RunStarted::words(std::slice::from_ref(&word)),
            (vec!["a\u{fffd}b".into()], Some(vec!["Yf9i".into()]))
        );
        assert_eq!(RunStarted::words(&["é\n".into()]), (vec!["é\n".into()], None));
        assert_eq!(RunStarted::path(&word), ("a\u{fffd}b".into(), Some("Yf9i".into())));
    }
}
