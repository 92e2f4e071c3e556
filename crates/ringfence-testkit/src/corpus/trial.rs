//! Runs one entry.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{CorpusEntry, ExpectedDenial};
use crate::output::TestOutput;
use crate::project::{SEARCH_PATH, TestProject};
use crate::user::TestUser;

/// The result of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorpusResult {
    /// The reported denials.
    pub refused: BTreeSet<ExpectedDenial>,
    /// True if the result reports `blocked`.
    pub blocked: bool,
    /// The `blockedResource` of the result.
    pub resource: Option<String>,
    /// The command's standard error.
    pub stderr: String,
    /// Its exit status.
    pub status: i64,
}

impl CorpusEntry {
    /// Runs the entry as `user`, with the ringfence at `binary`, in a new project.
    #[track_caller]
    pub fn run(&self, user: TestUser, binary: &Path) -> CorpusResult {
        let project = TestProject::new(user, binary);
        let mut path = SEARCH_PATH.to_owned();
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
        let ran = TestOutput::run(&mut command, b"");
        let json: Value = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
        let Some(denials) = json["denials"].as_array() else {
            panic!("{}\n{}{}", self.line, ran.text(), ran.stderr_text())
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
                .filter(|refused| !is_ignored(&refused.target))
                .collect(),
            blocked: json["blocked"] == true,
            resource: json["blockedResource"].as_str().map(|_| short(&json["blockedResource"])),
            stderr: json["stderr"]
                .as_str()
                .unwrap_or_default()
                .replace(&root, ".")
                .replace(&home, "~"),
            status: json["exitCode"].as_i64().unwrap_or_default(),
        }
    }

    /// The differences from the expected result, one per line.
    pub fn differences(&self, result: &CorpusResult) -> Vec<String> {
        let mut lines: Vec<String> = result
            .refused
            .difference(&self.refused)
            .map(|refused| format!("reported but not expected: {refused}"))
            .collect();
        lines.extend(
            self.refused
                .difference(&result.refused)
                .map(|refused| format!("expected but not reported: {refused}")),
        );
        if result.blocked != self.blocked {
            lines.push(format!("blocked is {} (exit status {})", result.blocked, result.status));
        }
        lines
    }
}

/// True for targets that differ between hosts.
fn is_ignored(target: &str) -> bool {
    target.starts_with("/sys/") || target == "registry.npmjs.org"
}
