//! Every tool, called by the inspector's command line, which starts a new client for each call.

use std::process::Command;

use ringfence_testkit::{SECRET, TestProject, TestUser};
use serde_json::{Value, json};

use crate::{HttpServer, installed, project, words};

/// Runs the inspector on a server; returns its status and its output as JSON.
fn inspect(project: &TestProject, server: &[String], method: &[&str]) -> Option<(i32, Value)> {
    let inspector = installed("inspector")?;
    let mut command = Command::new(inspector.join("node"));
    command
        .arg(inspector.join("node_modules/.bin/mcp-inspector"))
        .args(["--cli", "--connect-timeout", "60000"])
        .args(server)
        .args(method);
    command.current_dir(project.root()).env("HOME", project.home());
    let ended = command.output().expect("the inspector starts");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let report = serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}\n{said}", String::from_utf8_lossy(&ended.stdout))
    });
    Some((ended.status.code().unwrap_or(-1), report))
}

/// Calls every tool; returns the output of the last shell line.
fn check(project: &TestProject, server: &[String]) -> Option<Value> {
    let (status, report) = inspect(project, server, &["--method", "tools/list", "--strict"])?;
    assert_eq!(status, 0, "the inspector reports a schema problem: {report}");
    assert_eq!(report["tools"].as_array().map(Vec::len), Some(8), "{report}");
    let call = |tool: &str, arguments: &[&str]| {
        let mut all = vec!["--method", "tools/call", "--tool-name", tool, "--tool-arg"];
        all.extend(arguments);
        inspect(project, server, &all).map(|(_, report)| report)
    };
    assert_eq!(call("exec", &[r#"command=["echo","hi"]"#])?["structuredContent"]["stdout"], "hi\n");
    assert_eq!(
        call("write_file", &["path=new.txt", "content=one"])?["structuredContent"]["created"],
        true
    );
    assert_eq!(
        call("edit_file", &["path=new.txt", "old=one", "new=two"])?["structuredContent"]["replacements"],
        1
    );
    assert_eq!(call("read_file", &["path=new.txt"])?["structuredContent"]["text"], "two");
    assert_eq!(
        call("list_files", &["glob=new*"])?["structuredContent"]["entries"][0]["path"],
        "new.txt"
    );
    assert_eq!(
        call("search_files", &["pattern=tw."])?["structuredContent"]["matches"][0]["path"],
        "new.txt"
    );
    let refused = call("shell", &["command=cat ~/.ssh/id_rsa"])?;
    assert_eq!(
        (&refused["structuredContent"]["denials"][0]["rule"], &refused["isError"]),
        (&json!("~/.ssh"), &json!(true)),
        "{refused}"
    );
    assert!(!refused.to_string().contains(SECRET));
    let asked = call("request_permission", &["access=read", "resource=~/notes.txt", "reason=x"])?;
    assert!(
        ["requires_permission", "denied"]
            .contains(&asked["structuredContent"]["status"].as_str().unwrap_or_default()),
        "{asked}"
    );
    call("shell", &["command=cd src; export X=4"])?;
    Some(call("shell", &["command=pwd; echo $X"])?["structuredContent"]["stdout"].clone())
}

// One user for each transport: the inspector takes a second for each call, and the other client
// covers the differences between users.

/// Promise: mcp-clients
#[test]
fn inspector_calls_every_tool_over_stdio() {
    let project = project(TestUser::all()[TestUser::all().len() - 1]);
    let Some(last) = check(&project, &words(&project, &["mcp"])) else { return };
    // Each call starts another server, so no shell state remains.
    assert_eq!(last, format!("{}\n\n", project.root().display()));
}

/// Promise: mcp-clients
#[test]
fn inspector_calls_every_tool_over_http() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let bearer = format!("Authorization: Bearer {}", http.token);
    check(
        &project,
        &[http.url.clone(), "--transport".into(), "http".into(), "--header".into(), bearer],
    );
}
