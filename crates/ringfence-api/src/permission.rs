//! What was refused, as a question to whoever called: they may ask a person, and come again.

use serde::{Deserialize, Serialize};

use crate::ask::{Ask, AskAnswer};
use crate::outcome::{Denial, Operation};
use crate::text::visible;

/// `{"status": "requires_permission", "permission": …}`: a command came to where a person
/// has to say something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequiresPermission {
    /// Always the same word.
    pub status: PermissionStatus,
    /// What for.
    pub permission: Permission,
}

/// The word by which callers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PermissionStatus {
    /// Nothing goes on without an answer.
    RequiresPermission,
}

/// What somebody is to say yes or no to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Permission {
    /// What kind of thing it is.
    #[serde(rename = "type")]
    pub kind: PermissionKind,
    /// On what: the path, or host and port, exactly.
    pub resource: String,
    /// A sentence for people, in which everything shows that a terminal would obey.
    pub reason: String,
    /// What may be answered.
    pub options: Vec<AskAnswer>,
}

/// What kind of permission is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionKind {
    /// To something that the sandbox keeps shut.
    SandboxAccess,
}

impl Permission {
    /// What is asked about a refusal; `None` where nothing but no could be said.
    pub fn of(denial: &Denial, options: &[AskAnswer]) -> Option<Self> {
        let can_be_allowed = options.iter().any(|answer| *answer != AskAnswer::Deny);
        can_be_allowed.then(|| Self {
            kind: PermissionKind::SandboxAccess,
            resource: denial.target.clone(),
            reason: reason(denial),
            options: options.to_vec(),
        })
    }

    /// As callers of the library and of the wires get it.
    pub fn required(self) -> RequiresPermission {
        RequiresPermission { status: PermissionStatus::RequiresPermission, permission: self }
    }
}

impl Ask {
    /// The question, for whoever asks it elsewhere; `None` where nothing but no could be said.
    pub fn permission(&self) -> Option<Permission> {
        Permission::of(&self.denial, &self.options)
    }
}

/// `/usr/bin/cat wants to read /p/.env: refused by **/.env (built in)`.
fn reason(denial: &Denial) -> String {
    let who =
        if denial.program.is_empty() { "a program".to_owned() } else { visible(&denial.program) };
    format!(
        "{who} wants to {} {}: {}",
        denial.operation.wish(),
        visible(&denial.target),
        denial.refused_by(visible)
    )
}

impl Operation {
    /// What is wanted, as a verb before its object.
    pub fn wish(self) -> &'static str {
        match self {
            Operation::Read => "read",
            // Whoever may write a file may read it.
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
    fn the_words_are_the_documented_ones() {
        let ask =
            Ask { denial: denial("/p/.env", "/usr/bin/cat"), options: AskAnswer::ALL.to_vec() };
        let text = serde_json::to_string(&ask.permission().unwrap().required()).unwrap();
        let expect = r#"{"status":"requires_permission","permission":{"type":"sandbox_access","resource":"/p/.env","reason":"/usr/bin/cat wants to read /p/.env: refused by **/.env (built in)","options":["allow_once","allow_session","allow_permanent","deny"]}}"#;
        assert_eq!(text, expect);
        assert_eq!(
            serde_json::from_str::<RequiresPermission>(expect).unwrap().permission,
            ask.permission().unwrap()
        );
    }

    #[test]
    fn where_nothing_but_no_can_be_said_nothing_is_asked() {
        assert_eq!(Permission::of(&denial("/x", ""), &[AskAnswer::Deny]), None);
        assert_eq!(Permission::of(&denial("/x", ""), &[]), None);
        let once =
            Permission::of(&denial("/x", ""), &[AskAnswer::AllowOnce, AskAnswer::Deny]).unwrap();
        assert_eq!(once.options, [AskAnswer::AllowOnce, AskAnswer::Deny]);
        assert!(once.reason.starts_with("a program wants to read /x"), "{}", once.reason);
    }

    #[test]
    fn where_there_is_no_rule_none_is_named() {
        let shut = Denial { rule: Denial::NOTHING_OPENS_IT.into(), ..denial("/x", "/usr/bin/cat") };
        let asked = Permission::of(&shut, AskAnswer::ALL).unwrap();
        assert_eq!(asked.reason, "/usr/bin/cat wants to read /x: nothing opens it");
    }

    /// Promise: P43
    #[test]
    fn hostile_names_stay_names() {
        let name =
            "/p/\u{1b}]0;x\u{7}\",\"options\":[\"deny\"]}\n\u{202e}vne.\u{200b}\u{fe0f}\u{a0}\\n";
        let permission = Permission::of(&denial(name, "/bin/\u{9b}2Jx"), AskAnswer::ALL).unwrap();
        let text = serde_json::to_string(&permission).unwrap();
        assert_eq!(text.lines().count(), 1);
        let read: Permission = serde_json::from_str(&text).unwrap();
        // Exact for programs, and for people without anything that does not show.
        assert_eq!((read.resource.as_str(), read.options.len()), (name, 4));
        assert!(!read.reason.chars().any(crate::is_hidden), "{}", read.reason);
        assert!(read.reason.contains(r"\u{202e}vne.\u{200b}\u{fe0f}\u{a0}\\n"), "{}", read.reason);
        assert!(read.reason.starts_with(r"/bin/\u{9b}2Jx wants to read "), "{}", read.reason);
    }
}
