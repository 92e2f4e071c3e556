//! Trying one entry.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{CorpusEntry, ExpectedDenial};
use crate::output::TestOutput;
use crate::project::{SEARCHED, TestProject};
use crate::user::TestUser;

/// What came of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorpusResult {
    /// What was refused.
    pub refused: BTreeSet<ExpectedDenial>,
    /// Whether the result says that the sandbox stood in the way.
    pub blocked: bool,
    /// What the result names as that which was refused.
    pub resource: Option<String>,
    /// What the command wrote to standard error.
    pub stderr: String,
    /// Its exit status.
    pub status: i64,
}

impl CorpusEntry {
    /// Tries the entry as `user`, with the ringfence at `binary`, in a project of its own.
    #[track_caller]
    pub fn tried(&self, user: TestUser, binary: &Path) -> CorpusResult {
        let project = TestProject::new(user, binary);
        let mut path = SEARCHED.to_owned();
        if self.needs.as_deref() == Some("cargo") {
            path = format!("{}:{path}", project.toolchain().display());
        }
        if let Some(line) = &self.before {
            project.sh_bare(line).ok();
        }
        let mut command = project.ringfence();
        command
            .env("PATH", path)
            .args(["run", "--json"])
            .args(&self.flags)
            .args(["-c", &self.line]);
        let ran = TestOutput::of(&mut command, b"");
        let said: Value = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
        let Some(denials) = said["denials"].as_array() else {
            panic!("{}\n{}{}", self.line, ran.text(), ran.talk())
        };
        let (home, root) = (
            project.home().to_string_lossy().into_owned(),
            project.root().to_string_lossy().into_owned(),
        );
        let short = |value: &Value| {
            value.as_str().unwrap_or_default().replace(&root, ".").replace(&home, "~")
        };
        let refused = |denial: &Value| ExpectedDenial {
            operation: short(&denial["operation"]),
            target: short(&denial["target"]),
            rule: short(&denial["rule"]),
        };
        CorpusResult {
            refused: denials
                .iter()
                .map(refused)
                .filter(|refused| !is_left_out(&refused.target))
                .collect(),
            blocked: said["blocked"] == true,
            resource: said["blockedResource"].as_str().map(|_| short(&said["blockedResource"])),
            stderr: said["stderr"]
                .as_str()
                .unwrap_or_default()
                .replace(&root, ".")
                .replace(&home, "~"),
            status: said["exitCode"].as_i64().unwrap_or_default(),
        }
    }

    /// How what came differs from what was to come, a line each.
    pub fn differences(&self, came: &CorpusResult) -> Vec<String> {
        let mut lines: Vec<String> = came
            .refused
            .difference(&self.refused)
            .map(|refused| format!("told and not expected: {refused}"))
            .collect();
        lines.extend(
            self.refused
                .difference(&came.refused)
                .map(|refused| format!("expected and not told: {refused}")),
        );
        if came.blocked != self.blocked {
            lines.push(format!("blocked is {} (exit status {})", came.blocked, came.status));
        }
        lines
    }
}

/// What differs from machine to machine.
fn is_left_out(target: &str) -> bool {
    target.starts_with("/sys/") || target == "registry.npmjs.org"
}
