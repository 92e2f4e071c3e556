//! Connections that were let through.

use ringfence_api::{ConnectionRecord, Operation};
use serde::Serialize;

use super::{Record, RecordAction, RecordDetails, RecordResult, RecordSubject};

/// Somebody who was connected to, or did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectDetails {
    /// The address and port that the host led to, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes that went out, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Bytes that came in, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// The variables whose values were put into what was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Where the rule was written that allows it.
    pub origin: String,
    /// The process that connected.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// How often; 0 where this is only what an earlier one has carried since.
    pub count: u64,
}

impl Record {
    /// A connection that was let through within a run.
    pub fn connected(subject: &RecordSubject, connection: &ConnectionRecord) -> Record {
        Record {
            timestamp: connection.time_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Access(Operation::Connect),
            target: connection.target.clone(),
            result: if connection.failed.is_none() {
                RecordResult::Allowed
            } else {
                RecordResult::Failed
            },
            policy: connection.rule.clone(),
            reason: connection.failed.clone(),
            details: RecordDetails::Connected(ConnectDetails {
                address: connection.address.clone(),
                sent: connection.sent,
                received: connection.received,
                secrets: connection.secrets.clone(),
                origin: connection.origin.clone(),
                pid: connection.pid,
                program: connection.program.clone(),
                count: connection.count,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_the_same_keys_and_whom_it_led_to() {
        let connection = ConnectionRecord {
            target: "a.org:443".into(),
            address: Some("192.0.2.1:443".into()),
            rule: "allow a.org".into(),
            origin: "a flag".into(),
            pid: 42,
            program: "/usr/bin/curl".into(),
            time_ms: 0,
            sent: Some(3),
            received: Some(5),
            failed: None,
            secrets: Vec::new(),
            count: 2,
        };
        let subject = RecordSubject { agent: None, session: "s".into() };
        let text = |connection: &ConnectionRecord| {
            serde_json::to_string(&Record::connected(&subject, connection)).unwrap()
        };
        let expect = r#"{"timestamp":"1970-01-01T00:00:00.000Z","agent":null,"session":"s","operation":"connect","target":"a.org:443","result":"allowed","policy":"allow a.org","address":"192.0.2.1:443","sent":3,"received":5,"origin":"a flag","pid":42,"program":"/usr/bin/curl","count":2}"#;
        assert_eq!(text(&connection), expect);
        let with = ConnectionRecord { secrets: vec!["TOKEN".into()], ..connection.clone() };
        assert!(
            text(&with).contains(r#""received":5,"secrets":["TOKEN"],"origin""#),
            "{}",
            text(&with)
        );
        let failed = ConnectionRecord {
            address: None,
            sent: None,
            received: None,
            failed: Some("no answer".into()),
            ..connection
        };
        assert!(
            text(&failed).contains(
                r#""result":"failed","policy":"allow a.org","reason":"no answer","origin""#
            ),
            "{}",
            text(&failed)
        );
    }
}
