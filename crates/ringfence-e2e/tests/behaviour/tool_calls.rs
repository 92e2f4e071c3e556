//! In-process tools, called on the command line.

use std::fs;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user};
use serde_json::{Value, json};

use crate::project;

fn call(project: &TestProject, words: &[&str], input: &str) -> (TestOutput, Value) {
    let ran = TestOutput::run(project.ringfence().arg("tool").args(words), input.as_bytes());
    let answer = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
    (ran, answer)
}

#[test]
fn tool_has_the_access_of_a_command() {
    each_user(|user| {
        let project = project(user);
        let (ran, answer) = call(&project, &["read", r#"{"path": "README"}"#], "");
        ran.ok();
        assert_eq!(answer["text"], "hello\n");
        call(&project, &["write"], &json!({ "path": "sub/new", "content": "x" }).to_string())
            .0
            .ok();
        call(
            &project,
            &["Edit"],
            r#"{"file_path": "sub/new", "old_string": "x", "new_string": "y"}"#,
        )
        .0
        .ok();
        assert_eq!(project.read("sub/new").as_deref(), Some("y"));
        let (_, answer) = call(&project, &["search", r#"{"pattern": "^fn \\w+"}"#], "");
        assert_eq!(answer["matches"][0]["path"], "src/main.rs");
        let (_, answer) = call(&project, &["list", r#"{"glob": "*.rs"}"#], "");
        assert_eq!(answer["entries"].as_array().map(Vec::len), Some(2));
    });
}

/// Promise: tools-decide-alike
#[test]
fn tool_is_denied_like_a_command() {
    each_user(|user| {
        let project = project(user);
        for (tool, input) in [
            ("read", json!({ "path": ".env" })),
            ("read", json!({ "path": project.home().join(".ssh/id_rsa") })),
            ("read", json!({ "path": "../other/main.rs" })),
            ("write", json!({ "path": ".mcp.json", "content": "x" })),
            (
                "write",
                json!({ "path": ".git/hooks/pre-commit", "content": "x", "createParents": true }),
            ),
            ("edit", json!({ "path": ".env", "old": SECRET, "new": "x" })),
        ] {
            let (ran, answer) = call(&project, &[tool, &input.to_string()], "");
            ran.expect_status(1);
            assert_eq!(answer["error"]["code"], "denied", "{tool} {input}");
            assert_eq!(answer["error"]["denial"]["evidence"], "tool", "{tool} {input}");
        }
        assert_eq!(project.read(".env").as_deref(), Some(SECRET));
        assert!(!project.has(".mcp.json") && !project.has(".git"));
    });
}

/// Promise: tool-records
#[test]
fn removed_tools_are_refused_and_calls_are_audited() {
    each_user(|user| {
        let project = project(user);
        let words = [
            "write",
            "--disallow",
            "Write",
            "--agent",
            "reviewer",
            "--session",
            "s1",
            r#"{"path": "new", "content": "x"}"#,
        ];
        let (ran, answer) = call(&project, &words, "");
        ran.expect_status(1);
        assert_eq!(answer["error"]["denial"]["rule"], "Write");
        assert!(!project.has("new"));
        let (ran, _) = call(
            &project,
            &["edit", "--disallow", "Write", r#"{"path": "README", "old": "hello", "new": "x"}"#],
            "",
        );
        ran.expect_status(1);
        let log =
            fs::read_to_string(project.home().join(".local/state/ringfence/audit/00000001.jsonl"))
                .unwrap();
        let record: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        for (key, expect) in [
            ("agent", "reviewer"),
            ("session", "s1"),
            ("operation", "call"),
            ("result", "blocked"),
            ("tool", "write"),
        ] {
            assert_eq!(record[key], expect, "{record}");
        }
    });
}

#[test]
fn invalid_call_runs_nothing() {
    each_user(|user| {
        let project = project(user);
        for words in [&["bash", "{}"][..], &["nothing", "{}"], &["read", "{"]] {
            call(&project, words, "").0.expect_status(125);
        }
        let (ran, answer) = call(&project, &["read", "{}"], "");
        ran.expect_status(1);
        assert_eq!(answer["error"]["code"], "input");
    });
}
