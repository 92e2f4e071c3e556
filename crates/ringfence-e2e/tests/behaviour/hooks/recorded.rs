//! Inputs from the agents' documentation, each with the expected response.

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
            let ran = TestOutput::run(
                project.ringfence().args(["hook", agent]),
                case["input"].to_string().as_bytes(),
            );
            let says = &case["says"];
            assert_eq!(
                Some(i64::from(ran.status)),
                case["status"].as_i64(),
                "{says}: {} {}",
                ran.text(),
                ran.stderr_text()
            );
            let answer: Value = if ran.stdout.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(&ran.stdout).expect("JSON")
            };
            assert_eq!(answer, case["answer"], "{says}");
            // With status 2, standard error is the reason; otherwise it is ignored.
            match case["stderr"].as_str() {
                Some(reason) => {
                    assert!(ran.stderr_text().contains(reason), "{says}: {}", ran.stderr_text())
                }
                None => assert_eq!(ran.stderr_text(), "", "{says}"),
            }
        }
    });
}

/// Promise: hook-protocol
#[test]
fn claude_code_inputs_get_the_documented_response() {
    check("claude-code", CLAUDE_CODE);
}

/// Promise: hook-protocol
#[test]
fn codex_inputs_get_the_documented_response() {
    check("codex", CODEX);
}
