//! One request at every door: `run`, the session protocol (its shell, and a program), and MCP (the
//! same). Each gives the same result, and the same record in the audit log.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use ringfence_testkit::{SECRET, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::agents::records;
use crate::project;

/// The line that every door runs.
const LINE: &str = "cat .env; touch started; exit 3";
const WARNING: &str = "nothing is confined: the command has all your permissions";

/// Sends `lines`, and returns the first object that `find` finds in the answers. If the program
/// ends before, its standard error.
fn converse(
    command: &mut Command,
    lines: &[Value],
    find: fn(Value) -> Option<Value>,
) -> Result<Value, String> {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = piped.spawn().expect("it starts");
    let mut input = server.stdin.take().expect("it is piped");
    for line in lines {
        // A program that refuses does not read.
        let _ = writeln!(input, "{line}");
    }
    let output = BufReader::new(server.stdout.take().expect("it is piped"));
    let answers = output.lines().map_while(Result::ok);
    let found = answers.filter_map(|line| serde_json::from_str(&line).ok()).find_map(find);
    drop(input);
    let ended = ringfence_testkit::finish(server);
    found.ok_or_else(|| ended.stderr_text())
}

fn run(project: &TestProject) -> Result<Value, String> {
    let ran = project.run(["--json", "--shell", "bash", "-c", LINE]);
    let result: Value = serde_json::from_str(&ran.text()).expect("one object");
    if result["error"].is_null() { Ok(result) } else { Err(ran.stderr_text()) }
}

/// The result of a request to `session serve --stdio`.
fn session(project: &TestProject, request: Value) -> Result<Value, String> {
    let hello = json!({ "ask": "hello", "version": 1 });
    let find = |reply: Value| (reply["reply"] == "result").then_some(reply);
    converse(project.ringfence().args(["session", "serve", "--stdio"]), &[hello, request], find)
}

/// The result of a call of an MCP tool.
fn mcp(project: &TestProject, tool: &str, command: Value) -> Result<Value, String> {
    let client = json!({ "name": "doors", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": tool, "arguments": { "command": command } });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }),
    ];
    let find = |mut answer: Value| {
        (answer["id"] == 1).then(|| answer["result"]["structuredContent"].take())
    };
    converse(project.ringfence().arg("mcp"), &lines, find)
}

fn doors(project: &TestProject) -> Vec<(&'static str, Result<Value, String>)> {
    let words = json!(["/bin/bash", "-c", LINE]);
    vec![
        ("run", run(project)),
        ("session exec", session(project, json!({ "ask": "exec", "line": LINE }))),
        ("session start", session(project, json!({ "ask": "start", "command": words }))),
        ("mcp shell", mcp(project, "shell", json!(LINE))),
        ("mcp exec", mcp(project, "exec", words)),
    ]
}

/// The fields of a result that the policy decides, and those of its record.
#[track_caller]
fn check(user: TestUser, policy: &str, expect: Result<Value, &str>) {
    let project = project(user);
    let file = project.home().join(".config/ringfence/policy.toml");
    project.write_at(&file, format!("version = 1\n{policy}"));
    for (door, result) in doors(&project) {
        let result = match (&expect, result) {
            (Ok(_), Ok(result)) => result,
            (Err(why), Err(stderr)) if stderr.contains(why) && !project.has("started") => continue,
            (_, result) => panic!("{door} with {policy}: {result:?}"),
        };
        let is_warned =
            result["warnings"].as_array().is_some_and(|all| all.contains(&WARNING.into()));
        let is_begun = |record: &Value| {
            record["operation"] == "execute" && record["session"] == result["session"]
        };
        let begun = records(&project).into_iter().find(is_begun).expect("a record");
        let found = json!({
            "exitCode": result["exitCode"],
            "secret": result["stdout"].as_str().is_some_and(|text| text.contains(SECRET)),
            "blocked": result["blocked"],
            "confined": result["confined"],
            "warned": is_warned,
            "gaps": result["gaps"][0]["what"],
            "recorded": [begun["confined"], begun["result"]],
            "reason": begun["reason"].as_str().map(|reason| reason.split(" (").next()),
        });
        assert_eq!(&found, expect.as_ref().unwrap(), "{door} with {policy}: {begun}");
    }
}

/// The result of a command that ran unconfined.
fn unconfined(reason: Value, gap: Value) -> Value {
    json!({ "exitCode": 3, "secret": true, "blocked": false, "confined": false, "warned": true,
        "gaps": gap, "recorded": [false, "allowed"], "reason": reason })
}

/// Promise: no-unconfined-run
#[test]
fn every_door_gives_the_same_result() {
    each_user(|user| {
        check(
            user,
            "",
            Ok(json!({ "exitCode": 3, "secret": false, "blocked": true, "confined": true,
                "warned": false, "gaps": null, "recorded": [true, "allowed"], "reason": null })),
        );
        check(user, "mode = \"full-access\"\n", Ok(unconfined(json!(null), json!(null))));
        check(
            user,
            "[sandbox]\nenabled = false\n",
            Ok(unconfined(json!("not confined: sandbox.enabled = false"), json!(null))),
        );
        check(
            user,
            "on-gap = \"run\"\n[sandbox]\nprovider = \"process\"\n",
            Ok(unconfined(json!("not confined: sandbox.provider = process"), json!("filesystem"))),
        );
        check(
            user,
            "[sandbox]\nprovider = \"process\"\n",
            Err("cannot be enforced on this host: filesystem"),
        );
        check(
            user,
            "[commands]\ndeny = [\"touch started*\"]\n",
            Ok(json!({ "exitCode": 126, "secret": false, "blocked": true, "confined": true,
                "warned": false, "gaps": null, "recorded": [true, "blocked"], "reason": "`touch started` is denied" })),
        );
    });
}
