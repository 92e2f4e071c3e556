//! A denial as a question to the caller, who may ask the user and try again.

use serde::{Deserialize, Serialize};

use crate::ask::{Ask, AskAnswer};
use crate::outcome::{Denial, Operation};
use crate::text::escape_hidden;

/// `{"status": "requires_permission", "permission": …}`: a command needs the user's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiresPermission {
    /// The constant status.
    pub status: PermissionStatus,
    /// The permission.
    pub permission: Permission,
}

/// The status word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionStatus {
    /// The command needs an answer to continue.
    RequiresPermission,
}

/// A permission that the user can grant or deny.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Permission {
    /// The kind.
    #[serde(rename = "type")]
    pub kind: PermissionKind,
    /// The exact path, or host and port.
    pub resource: String,
    /// A sentence for the user; control characters are escaped.
    pub reason: String,
    /// The possible answers.
    pub options: Vec<AskAnswer>,
}

/// The kind of a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    /// Access to something that the sandbox denies.
    SandboxAccess,
}

impl Permission {
    /// Creates the question about a denial; `None` if it can only be denied.
    pub fn from_denial(denial: &Denial, options: &[AskAnswer]) -> Option<Self> {
        let can_be_allowed = options.iter().any(|answer| *answer != AskAnswer::Deny);
        can_be_allowed.then(|| Self {
            kind: PermissionKind::SandboxAccess,
            resource: denial.target.clone(),
            reason: reason(denial),
            options: options.to_vec(),
        })
    }

    /// Wraps the permission for callers of the library and the protocols.
    pub fn into_response(self) -> RequiresPermission {
        RequiresPermission { status: PermissionStatus::RequiresPermission, permission: self }
    }
}

impl Ask {
    /// Returns the permission to ask for elsewhere; `None` if the access can only be denied.
    pub fn permission(&self) -> Option<Permission> {
        Permission::from_denial(&self.denial, &self.options)
    }
}

/// `/usr/bin/cat wants to read /p/.env: refused by **/.env (built in)`.
fn reason(denial: &Denial) -> String {
    let program = if denial.program.is_empty() {
        "a program".to_owned()
    } else {
        escape_hidden(&denial.program)
    };
    format!(
        "{program} wants to {} {}: {}",
        denial.operation.verb_phrase(),
        escape_hidden(&denial.target),
        denial.describe_rule(escape_hidden)
    )
}

impl Operation {
    /// Returns the verb phrase for a question, before its object.
    pub fn verb_phrase(self) -> &'static str {
        match self {
            Operation::Read => "read",
            // Write permission includes read permission.
            Operation::Write => "read and write",
            Operation::Create => "make",
            Operation::Rename => "rename",
            Operation::Execute => "run",
            Operation::Connect => "connect to",
            Operation::Call => "call",
            Operation::Command => "be run as",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::DenialEvidence;

    fn denial(target: &str, program: &str) -> Denial {
        Denial {
            operation: Operation::Read,
            target: target.into(),
            rule: "**/.env".into(),
            origin: "built in".into(),
            explicit: true,
            pid: 42,
            program: program.into(),
            time_ms: 0,
            evidence: DenialEvidence::Kernel,
            count: 1,
            optional: false,
        }
    }

    #[test]
    fn json_is_as_documented() {
        let ask =
            Ask { denial: denial("/p/.env", "/usr/bin/cat"), options: AskAnswer::ALL.to_vec() };
        let text = serde_json::to_string(&ask.permission().unwrap().into_response()).unwrap();
        let expect = r#"{"status":"requires_permission","permission":{"type":"sandbox_access","resource":"/p/.env","reason":"/usr/bin/cat wants to read /p/.env: refused by **/.env (built in)","options":["allow_once","allow_session","allow_permanent","deny"]}}"#;
        assert_eq!(text, expect);
        assert_eq!(
            serde_json::from_str::<RequiresPermission>(expect).unwrap().permission,
            ask.permission().unwrap()
        );
    }

    #[test]
    fn denial_without_another_option_is_not_asked_about() {
        assert_eq!(Permission::from_denial(&denial("/x", ""), &[AskAnswer::Deny]), None);
        assert_eq!(Permission::from_denial(&denial("/x", ""), &[]), None);
        let once =
            Permission::from_denial(&denial("/x", ""), &[AskAnswer::AllowOnce, AskAnswer::Deny])
                .unwrap();
        assert_eq!(once.options, [AskAnswer::AllowOnce, AskAnswer::Deny]);
        assert!(once.reason.starts_with("a program wants to read /x"), "{}", once.reason);
    }

    #[test]
    fn missing_rule_is_not_named() {
        let shut = Denial { rule: Denial::NO_RULE_ALLOWS.into(), ..denial("/x", "/usr/bin/cat") };
        let asked = Permission::from_denial(&shut, AskAnswer::ALL).unwrap();
        assert_eq!(asked.reason, "/usr/bin/cat wants to read /x: nothing opens it");
    }

    /// Promise: question-text
    #[test]
    fn hostile_names_are_escaped() {
        let name =
            "/p/\u{1b}]0;x\u{7}\",\"options\":[\"deny\"]}\n\u{202e}vne.\u{200b}\u{fe0f}\u{a0}\\n";
        let permission =
            Permission::from_denial(&denial(name, "/bin/\u{9b}2Jx"), AskAnswer::ALL).unwrap();
        let text = serde_json::to_string(&permission).unwrap();
        assert_eq!(text.lines().count(), 1);
        let read: Permission = serde_json::from_str(&text).unwrap();
        // The resource is exact; the reason has no hidden characters.
        assert_eq!((read.resource.as_str(), read.options.len()), (name, 4));
        assert!(!read.reason.chars().any(crate::is_hidden), "{}", read.reason);
        assert!(read.reason.contains(r"\u{202e}vne.\u{200b}\u{fe0f}\u{a0}\\n"), "{}", read.reason);
        assert!(read.reason.starts_with(r"/bin/\u{9b}2Jx wants to read "), "{}", read.reason);
    }
}
