//! Allowed connections.

use ringfence_api::{ConnectionRecord, Operation};
use serde::Serialize;

use super::{Record, RecordAction, RecordDetails, RecordResult, RecordSubject};

/// A connection, or a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectDetails {
    /// The remote address and port, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes sent, if counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// Bytes received, if counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// The environment variables whose values were put into requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The source of the rule that allows it.
    pub origin: String,
    /// The pid of the process.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// The number of connections; 0 if this only reports more traffic of an earlier one.
    pub count: u64,
}

impl Record {
    /// A connection that was allowed within a run.
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
    fn connection_record_has_common_keys_and_the_address() {
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
