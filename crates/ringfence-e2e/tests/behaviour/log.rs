//! `ringfence log` shows audit records and verifies that they are unchanged.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

fn log(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().arg("log").args(words), b"")
}

/// Each line of output as JSON.
#[track_caller]
fn json(project: &TestProject, words: &[&str]) -> Vec<Value> {
    let text = log(project, words).ok();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

fn file(project: &TestProject) -> PathBuf {
    project.home().join(".local/state/ringfence/audit/00000001.jsonl")
}

/// Runs commands as two agents in the project.
fn used(project: &TestProject) {
    project.run(["--agent", "one", "--", "true"]).ok();
    project.run(["--agent", "two", "-c", "echo x > .mcp.json"]);
}

#[test]
fn records_are_filtered_by_their_fields() {
    each_user(|user| {
        let project = project(user);
        assert_eq!(log(&project, &[]).ok(), "");
        used(&project);
        let all = json(&project, &["--json"]);
        assert_eq!(all.len(), 5);
        let count = |words: &[&str]| json(&project, &[&["--json"], words].concat()).len();
        assert_eq!(count(&["--agent", "one"]), 2);
        assert_eq!(count(&["--blocked-only"]), 2);
        assert_eq!(count(&["--operation", "create"]), 1);
        assert_eq!(count(&["--operation", "execute", "--agent", "two"]), 1);
        assert_eq!(count(&["--since", "1h"]), 5);
        assert_eq!(count(&["--since", "2999-01-01"]), 0);
        assert_eq!(count(&["--session", all[0]["session"].as_str().unwrap()]), 2);
        log(&project, &["--since", "yesterday"]).expect_status(125);
        // The records as in the file, byte for byte.
        assert_eq!(log(&project, &["--json"]).stdout, fs::read(file(&project)).unwrap());
    });
}

/// The denials of `ringfence test` are its own; the user looks for those of a command.
#[test]
fn runs_of_ringfence_test_are_neither_the_last_command_nor_in_the_table() {
    each_user(|user| {
        let project = project(user);
        project.run(["-c", "echo x > .mcp.json"]);
        TestOutput::run(project.ringfence().arg("test"), b"").ok();
        let last = TestOutput::run(project.ringfence().args(["explain", "--last"]), b"").text();
        assert!(last.lines().next().is_some_and(|line| line.contains("echo x")), "{last}");
        let runs = |words: &[&str]| {
            let shown = log(&project, words).ok();
            shown.lines().filter(|line| line.contains("execute")).count()
        };
        // Three starts are measured.
        let agent = ["--agent", "ringfence test"];
        assert_eq!((runs(&[]), runs(&["--all"]), runs(&agent)), (1, 5, 4), "{user}");
        let all = json(&project, &["--json"]);
        let of_test: Vec<&Value> =
            all.iter().filter(|one| one["agent"] == "ringfence test").collect();
        assert!(of_test.len() > 8, "{user}: {}", of_test.len());
        let session = of_test[of_test.len() - 1]["session"].as_str().unwrap().to_owned();
        let named = project.ringfence().args(["explain", "--last", "--session", &session]).output();
        let named = String::from_utf8_lossy(&named.unwrap().stdout).into_owned();
        assert!(named.contains(&session) && !named.contains("echo x"), "{user}: {named}");
        // The name of an agent hides nothing.
        project.run(["--agent", "ringfence test", "--", "/bin/sh", "-c", "true", "ringfence-test"]);
        assert_eq!(runs(&[]), 2, "{user}");
    });
}

/// Promise: hostile-log-text
#[test]
fn table_output_has_no_control_characters() {
    each_user(|user| {
        let project = project(user);
        project
            .run(["--agent", "a\u{1b}[2J", "--", "/bin/echo", "\u{1b}]0;title\u{7} \u{202e}"])
            .ok();
        let text = log(&project, &[]).ok();
        assert!(
            text.contains("execute") && text.contains("/bin/echo") && text.contains("allowed"),
            "{text}"
        );
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text:?}");
    });
}

#[test]
fn events_are_exported_for_other_systems() {
    each_user(|user| {
        let project = project(user);
        used(&project);
        let events = json(&project, &["--ocsf"]);
        let classes: Vec<&Value> = events.iter().map(|event| &event["class_uid"]).collect();
        assert_eq!(classes, [1007, 1007, 1007, 1001, 1007]);
        for event in &events {
            assert_eq!(event["metadata"]["version"], "1.8.0");
            assert!(event["time"].as_u64().is_some_and(|time| time > 1_700_000_000_000), "{event}");
            assert!(event["device"]["hostname"].as_str().is_some_and(|host| !host.is_empty()));
        }
        assert_eq!(events[3]["file"]["name"], ".mcp.json");
        assert_eq!(events[3]["actor"]["app_name"], "two");
    });
}

/// Changes the lines of the log, and checks that `--verify` reports `expect`.
#[track_caller]
fn check(project: &TestProject, change: impl FnOnce(&mut Vec<String>), expect: &str) {
    let whole = fs::read_to_string(file(project)).unwrap();
    let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
    change(&mut lines);
    fs::write(file(project), lines.into_iter().map(|line| line + "\n").collect::<String>())
        .unwrap();
    let ran = log(project, &["--verify"]);
    ran.expect_status(1);
    assert!(ran.text().contains(&format!("{}{expect}", file(project).display())), "{}", ran.text());
    let json: Value =
        serde_json::from_slice(&log(project, &["--verify", "--json"]).expect_status(1).stdout)
            .unwrap();
    assert_eq!(json["intact"], false);
    fs::write(file(project), whole).unwrap();
    log(project, &["--verify"]).ok();
}

/// Promise: log-tampering
#[test]
fn verify_finds_every_manual_change() {
    each_user(|user| {
        let project = project(user);
        log(&project, &["--verify"]).ok();
        used(&project);
        let said = log(&project, &["--verify"]).ok();
        assert!(said.contains("5 records in 1 file: no tampering found"), "{said}");
        check(
            &project,
            |lines| lines[1] = lines[1].replace("\"one\"", "\"two\""),
            ":2: record 2 was changed",
        );
        check(&project, |lines| drop(lines.remove(2)), ":3: record 3 is missing before this line");
        check(&project, |lines| lines.swap(1, 2), ":3: record 2 comes after record 3");
        check(&project, |lines| lines.truncate(3), ": records 4 to 5 are missing at the end");
        let hash = said.rsplit(' ').next().unwrap().trim().to_owned();
        project.run(["--", "true"]).ok();
        log(&project, &["--verify", "--kept", &hash]).ok();
        log(&project, &["--verify", "--kept", &"0".repeat(64)]).expect_status(1);
        log(&project, &["--verify", "--kept", "x"]).expect_status(125);
        fs::remove_file(file(&project)).unwrap();
        let ran = log(&project, &["--verify"]);
        assert!(
            ran.expect_status(1).text().contains("00000001.jsonl: this file of the log is missing"),
            "{}",
            ran.text()
        );
    });
}

#[test]
fn follow_continues_into_the_next_file() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[audit]\nrotate-size = \"64KiB\"\n",
        );
        let mut follower = project.ringfence();
        follower
            .args(["log", "--follow", "--json", "--operation", "execute"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut follower = follower.spawn().expect("ringfence starts");
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        let long = "x".repeat(40_000);
        for number in 0..4 {
            project.run(["--", "/bin/true", &number.to_string(), &long]).ok();
            let seen: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(seen["command"][1], number.to_string());
        }
        follower.kill().unwrap();
        follower.wait().unwrap();
        assert!(file(&project).with_file_name("00000003.jsonl").exists());
        assert!(log(&project, &["--verify"]).ok().contains("8 records in "));
    });
}

#[test]
fn copied_log_can_be_read_elsewhere() {
    each_user(|user| {
        let project = project(user);
        used(&project);
        let copy = project.at("copy");
        project.make_directories(&copy);
        for entry in fs::read_dir(file(&project).parent().unwrap()).unwrap().flatten() {
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
            project.user.chown(&copy.join(entry.file_name()));
        }
        log(&project, &["--verify", "--dir", "copy"]).ok();
        assert_eq!(json(&project, &["--json", "--dir", "copy"]).len(), 5);
    });
}
