//! `--json`: one object with the command's outcome.

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::Value;

use crate::project;

#[track_caller]
fn outcome(project: &TestProject, words: &[&str]) -> Value {
    let ran = project.run(["--json"].iter().chain(words));
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

#[test]
fn json_result_has_every_documented_field() {
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
        // Missing reports without /dev/fuse are a gap that refuses nothing.
        assert!(
            object["gaps"]
                .as_array()
                .is_some_and(|gaps| gaps.iter().all(|gap| gap["loss"] == "reporting")),
            "{}",
            object["gaps"]
        );
        assert!(object["durationMs"].is_u64() && object["usage"].is_object());
        assert!(object["enforced"].as_array().is_some_and(|steps| steps.len() > 5));
        assert!(object.get("blockedReason").is_some() && object.get("blockedResource").is_some());
        project.run(["--json", "-c", "exit 3"]).expect_status(3);
    });
}

#[test]
fn binary_output_is_encoded_losslessly() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["-c", "printf 'a\\377\\000b'"]);
        assert_eq!(object["stdoutBase64"], "Yf8AYg==");
        assert_eq!(outcome(&project, &["-c", "printf 'a\\000b'"])["stdout"], "a\0b");
        assert_eq!(outcome(&project, &["-c", "printf '\\303\\274\\n\"\\\\'"])["stdout"], "ü\n\"\\");
    });
}

#[test]
fn ten_megabytes_of_output_arrive_whole() {
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

/// Promise: exact-denials
#[test]
fn denial_is_reported_exactly() {
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

/// Promise: exact-denials
#[test]
fn dropped_denials_are_counted() {
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
            &TestOutput::run(
                project.ringfence().args(["log", "--json", "--operation", "exit"]),
                b"",
            )
            .ok(),
        )
        .expect("one record in JSON");
        assert_eq!((&log["denials"], &log["denialsDropped"]), (&1000.into(), &100.into()), "{log}");
    });
}

/// Promise: exact-denials
#[test]
fn permission_error_text_is_not_a_denial() {
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
fn timeout_is_reported() {
    each_user(|user| {
        let project = project(user);
        let object = outcome(&project, &["--timeout", "2s", "-c", "echo before; exec sleep 60"]);
        assert_eq!(object["timedOut"], true);
        assert_eq!(object["exitCode"], 124);
        assert_eq!(object["stdout"], "before\n");
    });
}

#[test]
fn background_process_with_an_open_pipe_does_not_delay_the_result() {
    each_user(|user| {
        let project = project(user);
        let begun = std::time::Instant::now();
        assert_eq!(outcome(&project, &["-c", "sleep 100 & echo x"])["stdout"], "x\n");
        assert!(begun.elapsed().as_secs() < 20);
    });
}

#[test]
fn kept_output_is_limited_by_the_policy() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\n[limits]\noutput = 6\n");
        let object = outcome(&project, &["-c", "echo 1234567890"]);
        assert_eq!(
            (object["stdout"].as_str().map(str::len), &object["truncated"]),
            (Some(6), &Value::Bool(true))
        );
        // Output to inherited streams is not counted, which is a gap.
        project.run(["-c", "true"]).expect_status(125);
        assert!(
            project.run(["--on-gap", "run", "-c", "echo 1234567890"]).ok().contains("1234567890")
        );
    });
}
