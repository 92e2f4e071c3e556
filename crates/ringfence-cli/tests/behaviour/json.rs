//! `--json`: one object that says what became of the command.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

#[track_caller]
fn outcome(project: &TestProject, words: &[&str]) -> Value {
    let ran = project.run(["--json"].iter().chain(words));
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.talk()))
}

#[test]
fn it_has_the_fields_of_the_interface() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(object["stdout"], "out\n");
        assert_eq!(object["stderr"], "err\n");
        assert_eq!(object["exitCode"], 3);
        for (name, value) in [
            ("blocked", Value::Bool(false)),
            ("timedOut", Value::Bool(false)),
            ("truncated", Value::Bool(false)),
            ("denials", Value::Array(vec![])),
            ("denialsDropped", 0.into()),
            ("connections", Value::Array(vec![])),
            ("connectionsDropped", 0.into()),
        ] {
            assert_eq!(object[name], value, "{name}");
        }
        // What cannot be told without /dev/fuse is a gap that refuses nothing.
        assert!(
            object["gaps"]
                .as_array()
                .is_some_and(|gaps| gaps.iter().all(|gap| gap["loss"] == "telling")),
            "{}",
            object["gaps"]
        );
        assert!(object["durationMs"].is_u64() && object["usage"].is_object());
        assert!(object["enforced"].as_array().is_some_and(|steps| steps.len() > 5));
        assert!(object.get("blockedReason").is_some() && object.get("blockedResource").is_some());
        project.run(["--json", "-c", "exit 3"]).ends(3);
    });
}

#[test]
fn bytes_are_bytes() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["-c", "printf 'a\\377\\000b'"]);
        assert_eq!(object["stdoutBase64"], "Yf8AYg==");
        assert_eq!(outcome(&project, &["-c", "printf 'a\\000b'"])["stdout"], "a\0b");
        assert_eq!(outcome(&project, &["-c", "printf '\\303\\274\\n\"\\\\'"])["stdout"], "ü\n\"\\");
    });
}

#[test]
fn ten_megabytes_arrive_whole() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(
            &project,
            &[
                "-c",
                "head -c 10000000 /dev/zero | tr '\\0' x; head -c 200000 /dev/zero | tr '\\0' y >&2",
            ],
        );
        assert_eq!(object["stdout"].as_str().map(str::len), Some(10_000_000));
        assert_eq!(object["stderr"].as_str().map(str::len), Some(200_000));
        assert_eq!(object["truncated"], false);
    });
}

/// Promise: P22
#[test]
fn a_denial_is_told_exactly() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["-c", "echo x > .mcp.json"]);
        let denial = &object["denials"][0];
        assert_eq!(denial["target"].as_str(), Some(&*project.at(".mcp.json").to_string_lossy()));
        assert_eq!(denial["operation"], "create");
        assert_eq!(denial["evidence"], "kernel");
        assert_eq!(object["blocked"], true);
        assert_eq!(object["blockedResource"], denial["target"]);
        assert!(denial["rule"].as_str().is_some_and(|rule| rule.contains(".mcp.json")), "{denial}");
        assert!(
            denial["program"].as_str().is_some_and(|program| program.ends_with("sh")),
            "{denial}"
        );
    });
}

/// Promise: P22
#[test]
fn of_very_many_denials_those_that_are_not_kept_are_counted() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(
            &project,
            &["-c", "i=0; while [ $i -lt 1100 ]; do echo > k$i.pem; i=$((i+1)); done; true"],
        );
        assert_eq!(
            (object["denials"].as_array().map(Vec::len), &object["denialsDropped"]),
            (Some(1000), &100.into())
        );
        let log: Value = serde_json::from_str(
            &TestOutput::of(
                project.ringfence().args(["log", "--json", "--operation", "exit"]),
                b"",
            )
            .ok(),
        )
        .expect("one record in JSON");
        assert_eq!((&log["denials"], &log["denialsDropped"]), (&1000.into(), &100.into()), "{log}");
    });
}

/// Promise: P22
#[test]
fn text_about_permissions_is_no_denial() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(
            &project,
            &["-c", "echo 'Permission denied: EACCES Operation not permitted' >&2; exit 1"],
        );
        assert_eq!(object["blocked"], false);
        assert_eq!(object["denials"], Value::Array(vec![]));
    });
}

#[test]
fn a_time_limit_is_told() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["--timeout", "2s", "-c", "echo before; exec sleep 60"]);
        assert_eq!(object["timedOut"], true);
        assert_eq!(object["exitCode"], 124);
        assert_eq!(object["stdout"], "before\n");
    });
}

#[test]
fn a_process_that_keeps_the_pipe_open_does_not_keep_the_answer() {
    each_user(|user| {
        let project = project(user);
        let begun = std::time::Instant::now();
        assert_eq!(outcome(&project, &["-c", "sleep 100 & echo x"])["stdout"], "x\n");
        assert!(begun.elapsed().as_secs() < 20);
    });
}

#[test]
fn no_more_output_is_kept_than_the_policy_says() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\n[limits]\noutput = 6\n");
        let object = outcome(&project, &["-c", "echo 1234567890"]);
        assert_eq!(
            (object["stdout"].as_str().map(str::len), &object["truncated"]),
            (Some(6), &Value::Bool(true))
        );
        // What goes to the person's own streams is not counted, which is a gap.
        project.run(["-c", "true"]).ends(125);
        assert!(
            project.run(["--on-gap", "run", "-c", "echo 1234567890"]).ok().contains("1234567890")
        );
    });
}
