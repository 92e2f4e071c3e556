//! Inputs as the agents' documentation has them, each with the one answer to it.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

const CLAUDE_CODE: &str = include_str!("claude-code.json");
const CODEX: &str = include_str!("codex.json");

/// The recorded text for this project.
fn at_home(text: &str, project: &TestProject) -> String {
    let places = [
        ("{root}", project.root()),
        ("{home}", project.home()),
        ("{ringfence}", project.binary().to_owned()),
    ];
    places
        .iter()
        .fold(text.to_owned(), |text, (word, path)| text.replace(word, &path.display().to_string()))
}

#[track_caller]
fn check(agent: &str, recorded: &str) {
    each_user(|user| {
        let project = project(user);
        let cases: Vec<Value> = serde_json::from_str(&at_home(recorded, &project))
            .expect("the recorded inputs are JSON");
        for case in &cases {
            let ran = TestOutput::of(
                project.ringfence().args(["hook", agent]),
                case["input"].to_string().as_bytes(),
            );
            let says = &case["says"];
            assert_eq!(
                Some(i64::from(ran.status)),
                case["status"].as_i64(),
                "{says}: {} {}",
                ran.text(),
                ran.talk()
            );
            let answer: Value = if ran.stdout.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&ran.stdout).expect("JSON")
            };
            assert_eq!(answer, case["answer"], "{says}");
            // With status 2, standard error is the reason; else it is nobody's.
            match case["stderr"].as_str() {
                Some(reason) => assert!(ran.talk().contains(reason), "{says}: {}", ran.talk()),
                None => assert_eq!(ran.talk(), "", "{says}"),
            }
        }
    });
}

/// Promise: P84
#[test]
fn claude_code_is_answered_as_its_documentation_demands() {
    check("claude-code", CLAUDE_CODE);
}

/// Promise: P84
#[test]
fn codex_is_answered_as_its_documentation_demands() {
    check("codex", CODEX);
}
