//! Every tool, called by the Python client over both transports and both kinds of protocol.

use ringfence_testkit::{SECRET, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::{HttpServer, MODES, call, drive, drive_stdio, project, shell};

const TOOLS: [&str; 8] = [
    "shell",
    "exec",
    "read_file",
    "write_file",
    "edit_file",
    "list_files",
    "search_files",
    "request_permission",
];

/// The calls that are made over every transport and protocol version.
fn tour(project: &TestProject) -> Vec<Value> {
    let secret = project.home().join(".ssh/id_rsa");
    vec![
        json!({ "list": true }),
        shell("cd src && export X=3 && f() { echo f-$1; }"),
        shell("pwd; f $X"),
        call("exec", json!({ "command": ["cat", "$X"], "input": "in" })),
        call("exec", json!({ "command": ["tr", "a-z", "A-Z"], "input": "in" })),
        call("write_file", json!({ "path": "new.txt", "content": "one\ntwo\n" })),
        call("edit_file", json!({ "path": "new.txt", "old": "two", "new": "three" })),
        call("read_file", json!({ "path": "new.txt", "limit": 1 })),
        call("list_files", json!({ "glob": "new*" })),
        call("search_files", json!({ "pattern": "^thr" })),
        shell(&format!("cat {}", secret.display())),
        call("read_file", json!({ "path": secret })),
        call(
            "write_file",
            json!({ "path": ".git/hooks/pre-commit", "content": "x", "createParents": true }),
        ),
        shell("for i in 1 2 3; do echo tick-$i; sleep 0.3; done"),
        json!({ "call": "shell", "arguments": { "command": "echo begun; sleep 600" }, "cancelAfter": 1 }),
        shell("echo lives-$X"),
    ]
}

#[track_caller]
fn check_tour(project: &TestProject, report: &Value) {
    let results = report["results"].as_array().unwrap_or_else(|| panic!("{report}"));
    let names: Vec<&str> = results[0]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, TOOLS);
    for tool in results[0].as_array().into_iter().flatten() {
        let is_reader = ["read_file", "list_files", "search_files"]
            .contains(&tool["name"].as_str().unwrap_or_default());
        assert_eq!(tool["annotations"]["readOnlyHint"], is_reader, "{tool}");
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object")),
            "{tool}"
        );
    }
    let structured = |index: usize| &results[index]["structured"];
    assert_eq!(
        structured(2)["stdout"],
        format!("{}\nf-3\n", project.at("src").display()),
        "`cd` stays: {}",
        results[2]
    );
    assert_eq!(structured(3)["exitCode"], 1, "nothing is expanded: {}", results[3]);
    assert_eq!((&structured(4)["stdout"], &results[4]["isError"]), (&json!("IN"), &json!(false)));
    assert_eq!(project.read("new.txt").as_deref(), Some("one\nthree\n"));
    assert_eq!((&structured(7)["text"], &results[7]["text"]), (&json!("one\n"), &json!("one\n")));
    assert_eq!(structured(8)["entries"][0]["path"], "new.txt", "{}", results[8]);
    assert_eq!(
        (&structured(9)["matches"][0]["line"], &structured(9)["matches"][0]["path"]),
        (&json!(2), &json!("new.txt"))
    );
    // A denial is a result with the rule; the response has no denied content.
    let secret = json!(project.home().join(".ssh/id_rsa"));
    assert_eq!(
        (&structured(10)["blocked"], &results[10]["isError"]),
        (&json!(true), &json!(true)),
        "{}",
        results[10]
    );
    assert_eq!(
        (&structured(10)["denials"][0]["operation"], &structured(10)["denials"][0]["target"]),
        (&json!("read"), &secret)
    );
    assert_eq!(structured(10)["denials"][0]["rule"], "~/.ssh");
    assert_eq!(
        (&structured(11)["error"]["code"], &structured(11)["error"]["denial"]["target"]),
        (&json!("denied"), &secret)
    );
    assert_eq!(structured(12)["error"]["code"], "denied", "{}", results[12]);
    assert!(!report.to_string().contains(SECRET) && !project.has(".git"));
    let ticks: Vec<&Value> = results[13]["progress"].as_array().into_iter().flatten().collect();
    assert!(ticks.len() >= 3 && ticks.iter().any(|tick| tick[1] == "tick-2\n"), "{}", results[13]);
    assert!(ticks.windows(2).all(|two| two[0][0].as_f64() < two[1][0].as_f64()), "{}", results[13]);
    assert_eq!(results[14]["cancelled"], true, "{}", results[14]);
    assert_eq!(structured(15)["stdout"], "lives-3\n", "the shell lives on: {}", results[15]);
    assert!(
        results[15]["seconds"].as_f64() < Some(20.0),
        "the command was interrupted: {}",
        results[15]
    );
}

/// Promise: mcp-clients
#[test]
fn every_tool_works_over_stdio() {
    each_user(|user| {
        for (mode, version) in MODES.iter().zip(["2025-11-25", "2026-07-28"]) {
            let project = project(user);
            let Some(report) = drive_stdio(&project, &[], mode, None, &tour(&project)) else {
                return;
            };
            assert_eq!(report["version"], version);
            check_tour(&project, &report);
        }
    });
}

/// Promise: mcp-clients
#[test]
fn every_tool_works_over_http() {
    each_user(|user| {
        for (mode, version) in MODES.iter().zip(["2025-11-25", "2026-07-28"]) {
            let project = project(user);
            let http = HttpServer::open(&project, &[]);
            let plan = json!({ "server": http.server(), "mode": mode, "steps": tour(&project) });
            let Some(report) = drive(&plan) else { return };
            assert_eq!(report["version"], version);
            check_tour(&project, &report);
        }
    });
}

/// Promise: mcp-clients
#[test]
fn exec_runs_while_the_shell_is_busy_and_shell_lines_queue() {
    let project = project(TestUser::User);
    let together = json!({ "together": [
        shell("echo first; sleep 3; echo first-ends"),
        call("exec", json!({ "command": ["echo", "second-program"] })),
        shell("echo second"),
    ] });
    let Some(report) = drive_stdio(&project, &[], "auto", None, &[shell("true"), together]) else {
        return;
    };
    let results = &report["results"][1];
    assert_eq!(results[0]["structured"]["stdout"], "first\nfirst-ends\n", "{results}");
    assert!(results[1]["seconds"].as_f64() < Some(2.0), "{results}");
    assert!(results[2]["seconds"].as_f64() > Some(2.0), "{results}");
    assert_eq!(results[2]["structured"]["stdout"], "second\n", "{results}");
}

/// Promise: mcp-robust
#[test]
fn tools_removed_by_policy_are_neither_listed_nor_served() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[tools]\ndisallowed = [\"Write\", \"Bash\"]\n",
        );
        let steps = [
            json!({ "list": true }),
            shell("echo x > new"),
            call("exec", json!({ "command": ["true"] })),
            call("write_file", json!({ "path": "new", "content": "x" })),
            call("read_file", json!({ "path": "README" })),
        ];
        let Some(report) = drive_stdio(&project, &[], "auto", None, &steps) else { return };
        let results = &report["results"];
        let names: Vec<&str> = results[0]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        assert_eq!(
            names,
            ["read_file", "edit_file", "list_files", "search_files", "request_permission"]
        );
        for refused in 1..=3 {
            assert_eq!(
                results[refused]["structured"]["error"]["code"], "denied",
                "{}",
                results[refused]
            );
            assert_eq!(
                results[refused]["structured"]["error"]["denial"]["operation"], "call",
                "{}",
                results[refused]
            );
        }
        assert_eq!(results[4]["structured"]["text"], "hello\n");
        assert!(!project.has("new"));
    });
}

/// Promise: mcp-robust
#[test]
fn invalid_calls_get_an_error_with_the_cause() {
    let project = project(TestUser::User);
    let steps = [
        call("shell", json!({})),
        call("shell", json!({ "command": "true", "timeout": 5 })),
        call("exec", json!({ "command": [] })),
        call("exec", json!({ "command": "true" })),
        call("sudo", json!({})),
        call("read_file", json!({ "path": "nowhere" })),
        call(
            "request_permission",
            json!({ "access": "connect", "resource": "example.org", "reason": "x" }),
        ),
        shell("exit 7"),
        shell("echo still here"),
    ];
    let Some(report) = drive_stdio(&project, &[], "legacy", None, &steps) else { return };
    let said = |index: usize| report["results"][index]["structured"]["error"].clone();
    for (index, expect) in [
        (0, "missing field `command`"),
        (1, "unknown field `timeout`"),
        (2, "`command` is empty"),
        (3, "invalid type"),
        (4, "no such tool: `sudo`"),
    ] {
        assert_eq!(said(index)["code"], "input", "{report}");
        assert!(
            said(index)["message"].as_str().is_some_and(|message| message.contains(expect)),
            "{expect}: {}",
            said(index)
        );
    }
    assert_eq!(said(5)["code"], "not-found");
    assert_eq!(
        (&said(6)["code"], &said(6)["hint"]),
        (&json!("input"), &json!("write example.org:443"))
    );
    assert_eq!(
        (
            &report["results"][7]["structured"]["exitCode"],
            &report["results"][7]["structured"]["shell"]
        ),
        (&json!(7), &json!("ended"))
    );
    assert_eq!(report["results"][8]["structured"]["stdout"], "still here\n");
}

/// Promise: mcp-robust
#[test]
fn output_is_bounded_and_a_timeout_keeps_the_shell() {
    let project = project(TestUser::User);
    let steps = [
        shell("echo begins; yes | head -c 50000000; echo ends"),
        call("shell", json!({ "command": "X=5; sleep 600", "timeout_ms": 300 })),
        shell("echo $X"),
    ];
    let Some(report) = drive_stdio(&project, &[], "auto", None, &steps) else { return };
    let much = &report["results"][0]["structured"];
    let text = much["stdout"].as_str().unwrap_or_default();
    assert!(
        text.len() < 600_000 && text.starts_with("begins\n") && text.ends_with("ends\n"),
        "{}",
        text.len()
    );
    assert!(much["stdoutDropped"].as_u64() > Some(49_000_000), "{}", much["stdoutDropped"]);
    let progress: usize = report["results"][0]["progress"].to_string().len();
    assert!(progress < 2_000_000, "{progress}");
    assert_eq!(
        (
            &report["results"][1]["structured"]["timedOut"],
            &report["results"][1]["structured"]["exitCode"]
        ),
        (&json!(true), &json!(124))
    );
    assert_eq!(report["results"][2]["structured"]["stdout"], "5\n");
}
