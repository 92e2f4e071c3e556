//! Changes of the policy while a session runs.

use ringfence_policy::PolicyChange;
use serde::Serialize;

use super::{Record, RecordAction, RecordDetails, RecordResult, RecordSubject};

/// A policy change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyChangeDetails {
    /// The changed files.
    pub policy_files: Vec<String>,
    /// The SHA-256 of the rules before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest_before: Option<String>,
    /// The SHA-256 of the rules in the files now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
    /// Each rule added or removed, and if it is not in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<std::collections::BTreeMap<String, String>>")]
    pub changes: Vec<PolicyChange>,
}

impl Record {
    /// A change of `files`: the digests before and after and each rule added or removed, or the
    /// reason the policy stays unchanged.
    pub fn revised(
        subject: &RecordSubject,
        now_ms: u64,
        files: &[String],
        taken: Result<((String, String), &[PolicyChange]), &str>,
    ) -> Record {
        let (result, reason, digests, changes) = match taken {
            Ok((digests, changes)) => {
                let is_owed = changes.iter().any(PolicyChange::is_pending_narrowing);
                let texts: Vec<String> = changes.iter().map(ToString::to_string).collect();
                (
                    if is_owed { RecordResult::Failed } else { RecordResult::Allowed },
                    texts.join("; "),
                    Some(digests),
                    changes.to_vec(),
                )
            }
            Err(why) => (RecordResult::Failed, why.to_owned(), None, Vec::new()),
        };
        let (digest_before, policy_digest) = digests.unzip();
        Record {
            timestamp: now_ms,
            agent: subject.agent.clone(),
            session: subject.session.clone(),
            operation: RecordAction::Revise,
            target: files.join(", "),
            result,
            policy: "policy files".into(),
            reason: Some(reason),
            details: RecordDetails::Revised(PolicyChangeDetails {
                policy_files: files.to_vec(),
                digest_before,
                policy_digest,
                changes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{ChangeDirection, ChangeKind};

    use super::*;

    #[test]
    fn policy_change_record_has_result_and_changes() {
        let subject = RecordSubject { agent: None, session: "s".into() };
        let text = |taken: Result<&[PolicyChange], &str>| {
            let taken = taken.map(|changes| (("a".into(), "b".into()), changes));
            serde_json::to_string(&Record::revised(&subject, 0, &["/h/policy.toml".into()], taken))
                .unwrap()
        };
        let change = PolicyChange {
            rule: "mode = read-only".into(),
            origin: None,
            turn: ChangeKind::Added,
            direction: ChangeDirection::Narrower,
            pending: None,
        };
        let expect = r#"{"timestamp":"1970-01-01T00:00:00.000Z","agent":null,"session":"s","operation":"policy","target":"/h/policy.toml","result":"allowed","policy":"policy files","reason":"`mode = read-only` applies from now on","policyFiles":["/h/policy.toml"],"digestBefore":"a","policyDigest":"b","changes":[{"rule":"mode = read-only","turn":"added","direction":"narrower"}]}"#;
        assert_eq!(text(Ok(std::slice::from_ref(&change))), expect);
        assert!(text(Ok(&[change.pending("why")])).contains(r#""result":"failed""#));
        assert!(
            text(Err("no such key"))
                .contains(r#""result":"failed","policy":"policy files","reason":"no such key""#)
        );
    }
}
