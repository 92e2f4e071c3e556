//! Permission requests to the user: through the client, from another terminal, or with no way to
//! ask.

use ringfence_testkit::{SECRET, TestUser, each_user};
use serde_json::{Value, json};

use crate::{MODES, call, drive_stdio, host, project, shell};

fn request(access: &str, resource: impl serde::Serialize) -> Value {
    call(
        "request_permission",
        json!({ "access": access, "resource": resource, "reason": "to know \u{202e} it" }),
    )
}

/// Promise: mcp-permissions
#[test]
fn grant_from_the_client_opens_the_path_in_the_running_sandbox() {
    each_user(|user| {
        for mode in MODES {
            let project = project(user);
            let steps = [
                shell("X=1; cat ~/notes.txt"),
                request("read", "~/notes.txt"),
                shell("cat ~/notes.txt; echo X=$X"),
                call("read_file", json!({ "path": project.home().join("notes.txt") })),
                shell("cat ~/.aws/credentials"),
                request("read", "~/notes.txt"),
            ];
            let Some(report) = drive_stdio(&project, &[], mode, Some("allow_session"), &steps)
            else {
                return;
            };
            let structured = |index: usize| &report["results"][index]["structured"];
            assert_eq!(structured(0)["blocked"], true, "{report}");
            assert_eq!(
                structured(0)["permission"]["resource"],
                json!(project.home().join("notes.txt")),
                "{report}"
            );
            assert_eq!(
                (&structured(1)["status"], &structured(1)["answer"]),
                (&json!("granted"), &json!("allow_session")),
                "{report}"
            );
            assert_eq!(
                structured(2)["stdout"],
                format!("{SECRET}X=1\n"),
                "the shell lives on: {report}"
            );
            assert_eq!(structured(3)["text"], SECRET, "for the tools as well: {report}");
            assert_eq!(structured(4)["blocked"], true, "nothing else: {report}");
            assert!(
                structured(5)["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("already allowed")),
                "{report}"
            );
            let questions = report["questions"].as_array().unwrap_or_else(|| panic!("{report}"));
            let message = questions[0]["message"].as_str().unwrap_or_default();
            assert_eq!(questions.len(), 1, "{report}");
            assert!(
                message.contains("notes.txt") && message.contains(r"to know \u{202e} it"),
                "{message}"
            );
        }
    });
}

/// Promise: mcp-permissions
#[test]
fn denial_is_final_and_ungrantable_paths_are_not_asked_about() {
    each_user(|user| {
        for (mode, answer) in
            [("legacy", "deny"), ("auto", "deny"), ("auto", "cancel"), ("legacy", "nonsense")]
        {
            let project = project(user);
            let own = project.home().join(".config/ringfence/policy.toml");
            let steps =
                [request("read", "~/notes.txt"), request("write", own), shell("cat ~/notes.txt")];
            let Some(report) = drive_stdio(&project, &[], mode, Some(answer), &steps) else {
                return;
            };
            assert_eq!(report["results"][0]["structured"]["status"], "denied", "{report}");
            assert_eq!(report["results"][1]["structured"]["status"], "denied", "{report}");
            assert_eq!(report["results"][2]["structured"]["blocked"], true, "{report}");
            assert_eq!(report["questions"].as_array().map(Vec::len), Some(1), "{report}");
        }
    });
}

/// Promise: mcp-permissions
#[test]
fn client_without_elicitation_gets_a_command_that_grants_access() {
    each_user(|user| {
        let project = project(user);
        let file = project.home().join("notes.txt").display().to_string();
        let steps = [
            request("read", "~/notes.txt"),
            request("connect", "example.org:443"),
            host(&project, &["allow", "read", &file]),
            shell("cat ~/notes.txt"),
            host(&project, &["policy", "allow", "connect", "https://example.org"]),
            host(&project, &["policy", "allow", "connect", "example.org:443"]),
            request("connect", "example.org:443"),
        ];
        let Some(report) = drive_stdio(&project, &[], "auto", None, &steps) else { return };
        let structured = |index: usize| &report["results"][index]["structured"];
        assert_eq!(structured(0)["status"], "requires_permission", "{report}");
        assert_eq!(structured(0)["command"], format!("ringfence allow read {file}"));
        assert_eq!(structured(0)["permission"]["resource"], file.as_str());
        assert_eq!(structured(1)["command"], "ringfence allow host example.org:443");
        assert_eq!(report["results"][2]["status"], 0, "{report}");
        assert_eq!(structured(3)["stdout"], SECRET, "{report}");
        assert_eq!(
            (&report["results"][4]["status"], &report["results"][5]["status"]),
            (&json!(125), &json!(0)),
            "{report}"
        );
        assert_eq!(structured(6)["status"], "granted", "{report}");
    });
}

/// Promise: mcp-permissions
#[test]
fn command_waits_for_the_users_answer_in_the_client() {
    each_user(|user| {
        for mode in MODES {
            let project = project(user);
            let steps = [
                shell("Y=1"),
                shell("cat ~/notes.txt; echo Y=$Y"),
                call("exec", json!({ "command": ["cat", project.home().join("notes.txt")] })),
            ];
            let Some(report) = drive_stdio(&project, &["--ask"], mode, Some("allow_once"), &steps)
            else {
                return;
            };
            for index in [1, 2] {
                let ran = &report["results"][index]["structured"];
                assert!(
                    ran["stdout"].as_str().is_some_and(|text| text.starts_with(SECRET)),
                    "{report}"
                );
                assert_eq!(ran["granted"][0]["answer"], "allow_once", "{report}");
            }
            assert_eq!(report["questions"].as_array().map(Vec::len), Some(2), "{report}");
        }
    });
}

/// Promise: mcp-permissions
#[test]
fn another_terminal_answers_for_a_client_without_elicitation() {
    let project = project(TestUser::User);
    let list = host(&project, &["ask", "list"]);
    let sh = |line: &str| {
        let mut words = host(&project, &[]);
        let mut all: Vec<Value> = words["host"].as_array().cloned().unwrap_or_default();
        all.pop();
        all.extend(["sh", "-c", line].map(Value::from));
        words["host"] = all.into();
        words
    };
    let ringfence = project.binary().display();
    let answer = sh(&format!(
        "for try in $(seq 300); do \
           id=$({ringfence} ask list --json | jq -r '.[0].session // empty'); \
           [ -n \"$id\" ] && break; sleep 0.1; \
         done; {ringfence} ask answer $id 1 allow-once"
    ));
    let together = json!({ "together": [shell("cat ~/notes.txt"), shell("true"), shell("true"), shell("true"), shell("true"), list, answer] });
    let Some(report) = drive_stdio(&project, &["--ask"], "auto", None, &[shell("true"), together])
    else {
        return;
    };
    let results = &report["results"][1];
    assert!(
        results[5]["stdout"].as_str().is_some_and(|text| text.contains("notes.txt")),
        "{results}"
    );
    assert_eq!(results[0]["structured"]["stdout"], SECRET, "{results}");
}
