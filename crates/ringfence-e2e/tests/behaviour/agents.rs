//! Agents have only the tools that their definitions leave them, in every frontend and by the
//! kernel.

use std::fs;

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::{Value, json};

use crate::project;

const REVIEWER: &str = "---\nname: reviewer\ndescription: Looks: never touches\ndisallowed-tools: [Write, Edit]\n---\nLook.\n";

/// `ringfence agent run NAME -- WORDS`
fn run(project: &TestProject, name: &str, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(["agent", "run", name, "--"]).args(words), b"")
}

fn tool(project: &TestProject, words: &[&str]) -> (TestOutput, Value) {
    let ran = TestOutput::run(project.ringfence().arg("tool").args(words), b"");
    let answer = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
    (ran, answer)
}

pub(crate) fn records(project: &TestProject) -> Vec<Value> {
    let log =
        fs::read_to_string(project.home().join(".local/state/ringfence/audit/00000001.jsonl"))
            .unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Promise: read-only-agent
#[test]
fn agent_without_write_tools_changes_no_file() {
    each_user(|user| {
        let Some(python) = ringfence_testkit::python() else { return };
        let project = project(user);
        project.write(".ringfence/agents/reviewer.md", REVIEWER);
        for words in [
            &["bash", "-c", "echo x > f"][..],
            &["bash", "-c", "echo x >> README"],
            &["bash", "-c", "rm README"],
            &["bash", "-c", "mv README f"],
            &["bash", "-c", "mkdir f"],
            &["bash", "-c", "ln -s README f"],
            &["bash", "-c", "chmod 600 README"],
            &["truncate", "-s", "0", "README"],
            &[python, "-c", "open('f','w')"],
            &[python, "-c", "import os; os.rename('README', 'f')"],
        ] {
            let ran = run(&project, "reviewer", words);
            assert_ne!(ran.status, 0, "{words:?}: {ran:?}");
        }
        for call in [
            ["write", r#"{"path": "f", "content": "x"}"#],
            ["edit", r#"{"path": "README", "old": "hello", "new": "x"}"#],
        ] {
            let (ran, answer) = tool(&project, &["--agent", "reviewer", call[0], call[1]]);
            ran.expect_status(1);
            assert_eq!(answer["error"]["code"], "denied");
        }
        assert!(!project.has("f"));
        assert_eq!(project.read("README").as_deref(), Some("hello\n"));
        // It can still read.
        assert_eq!(run(&project, "reviewer", &["cat", "README"]).ok(), "hello");
        tool(&project, &["--agent", "reviewer", "read", r#"{"path": "README"}"#]).0.ok();

        let records = records(&project);
        assert!(records.iter().all(|record| record["agent"] == "reviewer"));
        let blocked: Vec<&Value> = records
            .iter()
            .filter(|record| record["result"] == "blocked" && record["operation"] != "exit")
            .collect();
        let is_logged = |operation: &str, tool: &str| {
            blocked.iter().any(|record| record["operation"] == operation && record["tool"] == tool)
        };
        assert!(
            is_logged("create", "Write")
                && is_logged("write", "Write")
                && is_logged("call", "write"),
            "{blocked:#?}"
        );
        assert!(is_logged("call", "edit"));
        let place = format!("{}:4 (tools)", project.at(".ringfence/agents/reviewer.md").display());
        assert!(blocked.iter().any(|record| record["origin"] == json!(place)), "{blocked:#?}");
    });
}

/// `ringfence WORDS…`
fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// Promise: read-only-agent
#[test]
fn agent_definition_holds_in_every_frontend() {
    each_user(|user| {
        let project = project(user);
        project.write(
            ".claude/agents/looker.md",
            "---\nname: looker\ntools: Read, Grep, Bash\nmodel: opus\n---\n",
        );
        for words in [
            &["run", "--agent", "looker", "-c", "echo x > f"][..],
            &["agent", "run", "looker", "--", "sh", "-c", "echo x > f"],
            &["agent", "run", "looker", "--write", ".", "--", "sh", "-c", "echo x > f"],
        ] {
            assert_ne!(ringfence(&project, words).status, 0, "{words:?}");
        }
        for (call, input) in
            [("write", json!({ "path": "f", "content": "" })), ("list", json!({ "path": "." }))]
        {
            let (ran, answer) = tool(&project, &["--agent", "looker", call, &input.to_string()]);
            ran.expect_status(1);
            assert_eq!(answer["error"]["denial"]["rule"], "only Read, Grep, Bash", "{answer}");
        }
        assert!(!project.has("f"));
        tool(&project, &["--agent", "looker", "search", r#"{"pattern": "hello"}"#]).0.ok();
        // Other agents are not affected.
        ringfence(&project, &["run", "--agent", "unknown", "-c", "echo x > f"]).ok();
        assert!(project.has("f"));
    });
}

/// Promise: agent-definitions
#[test]
fn command_cannot_change_or_make_an_agent_definition() {
    each_user(|user| {
        let project = project(user);
        for line in [
            "mkdir -p .ringfence/agents",
            "mkdir -p .claude/agents",
            "mkdir .claude",
            "echo x > .ringfence",
        ] {
            assert_ne!(project.sh(line).status, 0, "{line}");
        }
        project.write(".ringfence/agents/reviewer.md", REVIEWER);
        project.write(".claude/agents/other.md", REVIEWER.replace("reviewer", "other"));
        for file in [".ringfence/agents/reviewer.md", ".claude/agents/other.md"] {
            for line in [
                format!("echo x >> {file}"),
                format!("rm -f {file}"),
                format!("echo x > new; mv -f new {file}"),
                format!("sed -i s/Write// {file}"),
                format!("ln -sf /dev/null {file}"),
                format!("mv $(dirname {file}) away"),
            ] {
                assert_ne!(project.sh(&line).status, 0, "{line}");
            }
        }
        assert_ne!(project.sh("echo x > .claude/agents/new.md").status, 0);
        assert_eq!(project.read(".ringfence/agents/reviewer.md").as_deref(), Some(REVIEWER));
        // A definition behind a symlink to a writable place is refused.
        project.write("mine.md", "---\nname: mine\n---\n");
        std::os::unix::fs::symlink("../../mine.md", project.at(".ringfence/agents/mine.md"))
            .unwrap();
        let ran = run(&project, "mine", &["touch", "f"]);
        assert!(ran.expect_status(125).stderr_text().contains("commands can write to"), "{ran:?}");
        // So is one behind a symlink out of the project, and nothing of its target is quoted.
        std::os::unix::fs::symlink(
            project.home().join("notes.txt"),
            project.at(".ringfence/agents/out.md"),
        )
        .unwrap();
        let ran = run(&project, "out", &["touch", "f"]);
        assert!(
            ran.expect_status(125).stderr_text().contains("link to a file outside the project"),
            "{ran:?}"
        );
        assert!(!project.has("f"));
    });
}

/// Promise: agent-definitions
#[test]
fn project_definition_only_narrows() {
    each_user(|user| {
        let project = project(user);
        let own = project.home().join(".config/ringfence/agents/reviewer.md");
        project.write_at(&own, REVIEWER);
        project.write(
            ".ringfence/agents/reviewer.md",
            "---\nname: reviewer\ntools: Write, Edit, Bash\npolicy: wide.toml\n---\n",
        );
        project.write(
            ".ringfence/agents/wide.toml",
            "version = 1\nmode = \"full-access\"\n[sandbox]\nenabled = false\n[filesystem]\nread = [\"~/notes.txt\"]\ndeny = [\"src\"]\n",
        );
        assert_ne!(run(&project, "reviewer", &["sh", "-c", "echo x > f"]).status, 0);
        assert_ne!(
            run(
                &project,
                "reviewer",
                &["cat", &project.home().join("notes.txt").to_string_lossy()]
            )
            .status,
            0
        );
        // Tools that the project's definition removes are removed.
        assert_ne!(run(&project, "reviewer", &["cat", "src/main.rs"]).status, 0);
        assert!(!project.has("f"));
        // A definition in the user's home counts as the user's.
        let policy = project.home().join(".config/ringfence/agents/own.toml");
        project.write_at(&policy, "version = 1\n[filesystem]\nread = [\"~/notes.txt\"]\n");
        project.write_at(
            &project.home().join(".config/ringfence/agents/own.md"),
            "---\nname: own\npolicy: own.toml\ncommand: cat ~/notes.txt\n---\n",
        );
        assert_eq!(ringfence(&project, &["agent", "run", "own"]).ok(), ringfence_testkit::SECRET);
        // A policy file of the project is next to the definition.
        project.write(".ringfence/agents/far.md", "---\nname: far\npolicy: ../../README\n---\n");
        assert!(
            run(&project, "far", &["true"])
                .expect_status(125)
                .stderr_text()
                .contains("must be in the directory of its definition")
        );
    });
}

/// Promise: no-unconfined-run
#[test]
fn running_without_a_sandbox_needs_the_policy_and_is_audited() {
    each_user(|user| {
        let project = project(user);
        project.write(
            ".ringfence/agents/worker.md",
            "---\nname: worker\ncommand: [touch, made]\n---\n",
        );
        project.write(".ringfence/agents/reviewer.md", REVIEWER);
        let outside = |name: &str, words: &[&str]| {
            let flags = ["agent", "run", name, "--no-sandbox"];
            TestOutput::run(project.ringfence().args(flags).args(words), b"")
        };
        let look = format!("cat {}", project.home().join("notes.txt").display());
        assert!(
            outside("worker", &["--", "sh", "-c", &look])
                .expect_status(125)
                .stderr_text()
                .contains("does not allow running without a sandbox")
        );
        ringfence(
            &project,
            &["configure", "--global", "set", "sandbox.allow-unsandboxed-commands", "true"],
        )
        .ok();
        // Even then a flag is needed.
        assert_ne!(run(&project, "worker", &["sh", "-c", &look]).status, 0);
        assert_eq!(outside("worker", &["--", "sh", "-c", &look]).ok(), ringfence_testkit::SECRET);
        let begun = records(&project)
            .into_iter()
            .rev()
            .find(|record| record["operation"] == "execute")
            .unwrap();
        for (key, expect) in [
            ("agent", json!("worker")),
            ("confined", json!(false)),
            ("reason", json!("not confined: --no-sandbox (a flag)")),
        ] {
            assert_eq!(begun[key], expect, "{begun}");
        }
        // A command of the project's definition runs confined or not at all.
        assert!(
            outside("worker", &[])
                .expect_status(125)
                .stderr_text()
                .contains("must run in a sandbox")
        );
        assert!(!project.has("made"));
        ringfence(&project, &["agent", "run", "worker"]).ok();
        assert!(project.has("made"));
        // Without a sandbox nothing would keep it from writing, so it is refused.
        assert!(
            outside("reviewer", &["--", "touch", "f"])
                .expect_status(125)
                .stderr_text()
                .contains("cannot be enforced on this host: tools")
        );
        assert!(!project.has("f"));
        outside("reviewer", &["--on-gap", "run", "--", "touch", "f"]).ok();
        assert!(project.has("f"));
    });
}

/// Promise: no-unconfined-run
#[test]
fn sandbox_setting_of_the_policy_is_honoured() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/agents/worker.md", "---\nname: worker\n---\n");
        let look = ["cat".into(), project.home().join("notes.txt").to_string_lossy().into_owned()];
        let ran = |flag: Option<&str>| {
            TestOutput::run(
                project
                    .ringfence()
                    .args(["agent", "run", "worker"])
                    .args(flag)
                    .arg("--")
                    .args(&look),
                b"",
            )
        };
        assert_ne!(ran(None).status, 0);
        ringfence(&project, &["configure", "--global", "set", "sandbox.enabled", "false"]).ok();
        assert_eq!(ran(None).ok(), ringfence_testkit::SECRET);
        // With `--sandbox` it is confined and does not find the file.
        ran(Some("--sandbox")).expect_status(1);
        // A project cannot switch the sandbox off, and a warning says so.
        ringfence(&project, &["configure", "--global", "unset", "sandbox.enabled"]).ok();
        let said =
            ringfence(&project, &["configure", "--shared", "set", "sandbox.enabled", "false"]);
        assert!(
            String::from_utf8_lossy(&said.stderr)
                .contains("is ignored: a project's file cannot widen it"),
            "{said:?}"
        );
        assert_ne!(ran(None).status, 0);
    });
}

/// Promise: agent-definitions
#[test]
fn agents_are_listed_and_an_unknown_name_runs_nothing() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/agents/reviewer.md", REVIEWER);
        project.write(
            ".claude/agents/deep/er.md",
            "---\nname: writer\ndescription: \"a\" b: c\n---\n",
        );
        project.write(".claude/agents/broken.md", "---\nname: broken\ntool: Read\n---\n");
        let list: Value =
            serde_json::from_str(&ringfence(&project, &["agent", "list", "--json"]).ok()).unwrap();
        let names: Vec<_> = list["agents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|agent| (agent["name"].clone(), agent["writes"].clone()))
            .collect();
        assert_eq!(names, [(json!("reviewer"), json!(false)), (json!("writer"), json!(true))]);
        assert_eq!(list["unread"][0]["code"], "policy-unknown-key");
        let shown: Value = serde_json::from_str(
            &ringfence(&project, &["agent", "show", "reviewer", "--json"]).ok(),
        )
        .unwrap();
        let tools = |allowed: bool| -> Vec<&str> {
            let all = shown["tools"].as_array().unwrap().iter();
            all.filter(|tool| tool["allowed"] == allowed)
                .map(|tool| tool["tool"].as_str().unwrap())
                .collect()
        };
        assert_eq!(tools(false), ["write", "edit"]);
        assert_eq!(tools(true), ["read", "list", "search", "shell", "WebFetch", "WebSearch"]);
        let text = ringfence(&project, &["agent", "show", "reviewer"]).ok();
        assert!(text.contains("writes     nothing in the project: Write ("), "{text}");
        for (name, says) in [
            ("reviwer", "did you mean `reviewer`?"),
            ("unknown", "known agents: reviewer, writer"),
            ("broken", "broken.md:3:1: unknown key `tool`"),
            ("reviewer", "defines no `command`"),
        ] {
            let ran = ringfence(&project, &["agent", "run", name]);
            assert!(ran.expect_status(125).stderr_text().contains(says), "{name}: {ran:?}");
        }
    });
}

/// Promise: no-unconfined-run
#[test]
fn without_a_sandbox_nothing_runs_unless_the_policy_accepts_it() {
    each_user(|user| {
        let project = project(user);
        // Within a sandbox no other can be made, and no audit record be written.
        fs::copy(env!("CARGO_BIN_EXE_ringfence-e2e"), project.at("rf")).unwrap();
        project.executable("rf");
        project.write("refuse.toml", "version = 1\n[audit]\non-error = \"run\"\n");
        project.write(
            "accept.toml",
            "version = 1\n[audit]\non-error = \"run\"\n[sandbox]\nfail-if-unavailable = false\n",
        );
        let within =
            |policy: &str| project.sh(&format!("./rf run --policy {policy} -- touch {policy}.ran"));
        within("refuse.toml").expect_status(125);
        assert!(
            within("accept.toml")
                .expect_status(0)
                .stderr_text()
                .contains("the sandbox is unavailable here")
        );
        assert!(!project.has("refuse.toml.ran") && project.has("accept.toml.ran"));
        // A session does the same.
        let session = |policy: &str| {
            let lines = format!(
                r#"{{"ask":"hello","version":1}}\n{{"ask":"exec","line":"touch {policy}.shell"}}\n"#
            );
            project.sh(&format!(
                "(printf '{lines}'; until [ -e {policy}.shell ] || [ $((n += 1)) -gt 50 ]; do sleep 0.1; done) \
                 | ./rf session serve --stdio --policy {policy}"
            ))
        };
        session("refuse.toml").expect_status(125);
        session("accept.toml");
        assert!(!project.has("refuse.toml.shell") && project.has("accept.toml.shell"));
    });
}
