//! `ringfence mcp wrap`: a third-party server in a sandbox.

use std::fs;
use std::process::Command;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user};
use serde_json::{Value, json};

use crate::{call, drive, installed, project, stdio};

/// Copies the file system server to a place where the project's user can read it.
fn filesystem(project: &TestProject) -> Option<String> {
    let from = installed("server")?;
    let to = project.home().join("servers");
    project.make_directories(&to);
    let copied = Command::new("cp").arg("-r").arg(from.join("node_modules")).arg(&to).status();
    assert!(copied.is_ok_and(|status| status.success()));
    Some(
        to.join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js")
            .display()
            .to_string(),
    )
}

fn path(tool: &str, path: impl serde::Serialize) -> Value {
    call(tool, json!({ "path": path }))
}

/// Promise: wrapped-server
#[test]
fn wrapped_server_sees_only_what_the_policy_opens() {
    each_user(|user| {
        let project = project(user);
        let Some(program) = filesystem(&project) else { return };
        let servers = project.home().join("servers").display().to_string();
        let words =
            ["mcp", "wrap", "--name", "files", "--read", &servers, "--", "node", &program, "/"];
        let steps = [
            path("read_text_file", project.at("README")),
            call("write_file", json!({ "path": project.at("made"), "content": "made" })),
            path("read_text_file", project.at(".env")),
            path("read_text_file", project.home().join(".ssh/id_rsa")),
            path("read_text_file", project.home().join("notes.txt")),
            path("read_text_file", "/etc/shadow"),
            path("list_directory", project.home()),
            path("list_directory", project.home().join("code")),
            call(
                "write_file",
                json!({ "path": project.at(".git/hooks/pre-commit"), "content": "x" }),
            ),
            call("write_file", json!({ "path": project.home().join("x"), "content": "x" })),
        ];
        let Some(report) =
            drive(&json!({ "server": stdio(&project, &words), "mode": "auto", "steps": steps }))
        else {
            return;
        };
        let results = report["results"].as_array().unwrap_or_else(|| panic!("{report}"));
        assert_eq!(
            (&results[0]["isError"], &results[0]["text"]),
            (&json!(false), &json!("hello\n")),
            "{report}"
        );
        assert_eq!(project.read("made").as_deref(), Some("made"));
        for refused in [2, 3, 4, 5, 8, 9] {
            assert_eq!(results[refused]["isError"], true, "{}", results[refused]);
        }
        let homes = results[6]["text"].as_str().unwrap_or_default();
        assert!(homes.contains("code") && !homes.contains("notes.txt"), "{homes}");
        assert!(
            !results[7]["text"].as_str().unwrap_or_default().contains("other"),
            "{}",
            results[7]
        );
        assert!(!report.to_string().contains(SECRET));
        assert!(!project.home().join("x").exists() && !project.has(".git"));
        // The audit log has the denials under the server's name.
        let log =
            TestOutput::run(project.ringfence().args(["log", "--json", "--blocked-only"]), b"");
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        assert!(log.contains("mcp:files") && log.contains("id_rsa"), "{log}");
    });
}

/// Promise: wrapped-server
#[test]
fn wrap_passes_output_and_exit_status_unchanged() {
    each_user(|user| {
        let project = project(user);
        project.write("server.sh", "cat; echo to-stderr >&2; cat ~/notes.txt; cat .env\nexit 7\n");
        let words = ["mcp", "wrap", "--", "sh", "server.sh"];
        let ran = TestOutput::run(project.ringfence().args(words), b"\x00\xff{\"a\":1}\n");
        ran.expect_status(7);
        assert_eq!(ran.stdout, b"\x00\xff{\"a\":1}\n");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            said.contains("to-stderr\n")
                && said.contains("sh: denied: read")
                && said.contains("/.env: **/.env"),
            "{said}"
        );
        let ran = TestOutput::run(
            project.ringfence().args(["mcp", "wrap", "--", "sh", "-c", "kill -9 $$"]),
            b"",
        );
        ran.expect_status(137);
        TestOutput::run(project.ringfence().args(["mcp", "wrap", "--", "no-such-server"]), b"")
            .expect_status(127);
        TestOutput::run(
            project.ringfence().args(["mcp", "wrap", "--mode", "nonsense", "--", "true"]),
            b"",
        )
        .expect_status(125);
        fs::write(project.at("policy.toml"), "version = 1\nmod = 1\n").expect("it can be written");
        let ran = TestOutput::run(
            project.ringfence().args(["mcp", "wrap", "--policy", "policy.toml", "--", "true"]),
            b"",
        );
        ran.expect_status(125);
        assert!(String::from_utf8_lossy(&ran.stderr).contains("policy.toml:2:1"));
    });
}
