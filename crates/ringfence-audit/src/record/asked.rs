//! Questions to the user and permanent grants.

use ringfence_api::{AskAnswer, Denial};
use serde::Serialize;

use super::{Record, RecordAction, RecordDetails, RecordResult, RecordSubject};

/// A question to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskDetails {
    /// The operation that was asked for.
    pub wanted: &'static str,
    /// The answer.
    pub answer: AskAnswer,
    /// The source of the rule that would have denied it.
    pub origin: String,
    /// True if an explicit rule would have denied it, not the lack of a rule.
    pub explicit: bool,
    /// The pid of the waiting process.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

impl Record {
    /// A question and its answer.
    pub fn asked(
        subject: &RecordSubject,
        now_ms: u64,
        denial: &Denial,
        answer: AskAnswer,
    ) -> Record {
        Record {
            timestamp: now_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Ask,
            target: denial.target.clone(),
            result: if answer == AskAnswer::Deny {
                RecordResult::Blocked
            } else {
                RecordResult::Allowed
            },
            policy: denial.rule.clone(),
            reason: Some(format!("answered {answer}")),
            details: RecordDetails::Asked(AskDetails {
                wanted: denial.operation.word(),
                answer,
                origin: denial.origin.clone(),
                explicit: denial.explicit,
                pid: denial.pid,
                program: denial.program.clone(),
            }),
        }
    }

    /// A permanent grant: the rule and its position, or the reason it was not written.
    pub fn permitted(
        subject: &RecordSubject,
        now_ms: u64,
        target: &str,
        rule: &str,
        written: Result<String, String>,
    ) -> Record {
        let result = if written.is_ok() { RecordResult::Allowed } else { RecordResult::Failed };
        Record {
            timestamp: now_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Permit,
            target: target.to_owned(),
            result,
            policy: rule.to_owned(),
            reason: Some(written.unwrap_or_else(|why| why)),
            details: RecordDetails::None {},
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_api::{DenialEvidence, Operation};

    use super::*;

    #[test]
    fn question_record_has_common_keys_and_the_answer() {
        let denial = Denial {
            operation: Operation::Read,
            target: "/h/.ssh/id".into(),
            rule: "~/.ssh".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 42,
            program: "cat".into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        };
        let subject = RecordSubject { agent: None, session: "s".into() };
        let text = |record: Record| serde_json::to_string(&record).unwrap();
        let asked =
            |answer: AskAnswer| text(Record::asked(&subject, 1_769_596_205_000, &denial, answer));
        let expect = r#"{"timestamp":"2026-01-28T10:30:05.000Z","agent":null,"session":"s","operation":"ask","target":"/h/.ssh/id","result":"allowed","policy":"~/.ssh","reason":"answered allow_once","wanted":"read","answer":"allow_once","origin":"built in","explicit":true,"pid":42,"program":"cat"}"#;
        assert_eq!(asked(AskAnswer::AllowOnce), expect);
        assert!(
            asked(AskAnswer::Deny)
                .contains(r#""result":"blocked","policy":"~/.ssh","reason":"answered deny""#)
        );
        let written = text(Record::permitted(
            &subject,
            0,
            "/h/.ssh/id",
            "read ~/.ssh/id",
            Err("no room".into()),
        ));
        let expect = r#"{"timestamp":"1970-01-01T00:00:00.000Z","agent":null,"session":"s","operation":"permit","target":"/h/.ssh/id","result":"failed","policy":"read ~/.ssh/id","reason":"no room"}"#;
        assert_eq!(written, expect);
    }
}
