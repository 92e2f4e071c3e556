//! Agents have the tools that their definitions leave them, by every door and by the kernel.

use std::fs;

use ringfence_testkit::{TestOutput, TestProject, each_user};
use serde_json::{Value, json};

use crate::project;

const REVIEWER: &str = "---\nname: reviewer\ndescription: Looks: never touches\ndisallowed-tools: [Write, Edit]\n---\nLook.\n";

/// `ringfence agent run NAME -- WORDS`
fn run(project: &TestProject, name: &str, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence().args(["agent", "run", name, "--"]).args(words), b"")
}

fn tool(project: &TestProject, words: &[&str]) -> (TestOutput, Value) {
    let ran = TestOutput::of(project.ringfence().arg("tool").args(words), b"");
    let answer = serde_json::from_slice(&ran.stdout).unwrap_or(Value::Null);
    (ran, answer)
}

fn records(project: &TestProject) -> Vec<Value> {
    let log =
        fs::read_to_string(project.home().join(".local/state/ringfence/audit/00000001.jsonl"))
            .unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Promise: P94
#[test]
fn an_agent_without_tools_that_write_changes_no_file() {
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
            ran.ends(1);
            assert_eq!(answer["error"]["code"], "denied");
        }
        assert!(!project.has("f"));
        assert_eq!(project.read("README").as_deref(), Some("hello\n"));
        // It can do what it is for.
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
    TestOutput::of(project.ringfence().args(words), b"")
}

/// Promise: P94
#[test]
fn a_definition_holds_at_every_door() {
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
            ran.ends(1);
            assert_eq!(answer["error"]["denial"]["rule"], "only Read, Grep, Bash", "{answer}");
        }
        assert!(!project.has("f"));
        tool(&project, &["--agent", "looker", "search", r#"{"pattern": "hello"}"#]).0.ok();
        // Others are not meant.
        ringfence(&project, &["run", "--agent", "somebody", "-c", "echo x > f"]).ok();
        assert!(project.has("f"));
    });
}

/// Promise: P95
#[test]
fn no_command_changes_a_definition_or_makes_one() {
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
        // One that leads to where a command can write says nothing.
        project.write("mine.md", "---\nname: mine\n---\n");
        std::os::unix::fs::symlink("../../mine.md", project.at(".ringfence/agents/mine.md"))
            .unwrap();
        let ran = run(&project, "mine", &["touch", "f"]);
        assert!(ran.ends(125).talk().contains("lies where commands can write"), "{ran:?}");
        // Nor does one that leads out of the project, and nothing of it is quoted.
        std::os::unix::fs::symlink(
            project.home().join("notes.txt"),
            project.at(".ringfence/agents/out.md"),
        )
        .unwrap();
        let ran = run(&project, "out", &["touch", "f"]);
        assert!(ran.ends(125).talk().contains("leads out of the project"), "{ran:?}");
        assert!(!project.has("f"));
    });
}

/// Promise: P95
#[test]
fn a_project_takes_away_and_never_gives() {
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
        // What it takes is taken, seen from the project.
        assert_ne!(run(&project, "reviewer", &["cat", "src/main.rs"]).status, 0);
        assert!(!project.has("f"));
        // A person's own definition has the person's voice.
        let policy = project.home().join(".config/ringfence/agents/own.toml");
        project.write_at(&policy, "version = 1\n[filesystem]\nread = [\"~/notes.txt\"]\n");
        project.write_at(
            &project.home().join(".config/ringfence/agents/own.md"),
            "---\nname: own\npolicy: own.toml\ncommand: cat ~/notes.txt\n---\n",
        );
        assert_eq!(ringfence(&project, &["agent", "run", "own"]).ok(), ringfence_testkit::SECRET);
        // A project's policy file lies beside the definition.
        project.write(".ringfence/agents/far.md", "---\nname: far\npolicy: ../../README\n---\n");
        assert!(
            run(&project, "far", &["true"]).ends(125).talk().contains("lies beside its definition")
        );
    });
}

/// Promise: P96
#[test]
fn without_a_sandbox_only_where_the_policy_lets_it_and_that_is_on_record() {
    each_user(|user| {
        let project = project(user);
        project.write(
            ".ringfence/agents/worker.md",
            "---\nname: worker\ncommand: [touch, made]\n---\n",
        );
        project.write(".ringfence/agents/reviewer.md", REVIEWER);
        let outside = |name: &str, words: &[&str]| {
            let flags = ["agent", "run", name, "--no-sandbox"];
            TestOutput::of(project.ringfence().args(flags).args(words), b"")
        };
        let look = format!("cat {}", project.home().join("notes.txt").display());
        assert!(
            outside("worker", &["--", "sh", "-c", &look])
                .ends(125)
                .talk()
                .contains("does not allow to run without a sandbox")
        );
        ringfence(
            &project,
            &["configure", "--global", "set", "sandbox.allow-unsandboxed-commands", "true"],
        )
        .ok();
        // Not even then by itself.
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
        // What the project's author has run is confined or not run.
        assert!(outside("worker", &[]).ends(125).talk().contains("is confined or does not run"));
        assert!(!project.has("made"));
        ringfence(&project, &["agent", "run", "worker"]).ok();
        assert!(project.has("made"));
        // Nobody would keep it from writing, and that is not passed over.
        assert!(
            outside("reviewer", &["--", "touch", "f"])
                .ends(125)
                .talk()
                .contains("cannot be enforced here: tools")
        );
        assert!(!project.has("f"));
        outside("reviewer", &["--on-gap", "run", "--", "touch", "f"]).ok();
        assert!(project.has("f"));
    });
}

/// Promise: P96
#[test]
fn a_sandbox_that_is_switched_off_is_off_and_one_that_is_asked_for_is_there() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/agents/worker.md", "---\nname: worker\n---\n");
        let look = ["cat".into(), project.home().join("notes.txt").to_string_lossy().into_owned()];
        let ran = |flag: Option<&str>| {
            TestOutput::of(
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
        // It runs, and does not find it.
        ran(Some("--sandbox")).ends(1);
        // A project cannot switch it off, and is told so.
        ringfence(&project, &["configure", "--global", "unset", "sandbox.enabled"]).ok();
        let said =
            ringfence(&project, &["configure", "--shared", "set", "sandbox.enabled", "false"]);
        assert!(
            String::from_utf8_lossy(&said.stderr)
                .contains("is ignored: a project's file cannot widen this"),
            "{said:?}"
        );
        assert_ne!(ran(None).status, 0);
    });
}

/// Promise: P95
#[test]
fn agents_are_listed_and_shown_and_a_wrong_name_runs_nothing() {
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
            ("nobody", "there are: reviewer, writer"),
            ("broken", "broken.md:3:1: unknown key `tool`"),
            ("reviewer", "does not say what is run"),
        ] {
            let ran = ringfence(&project, &["agent", "run", name]);
            assert!(ran.ends(125).talk().contains(says), "{name}: {ran:?}");
        }
    });
}

/// Promise: P96
#[test]
fn where_no_sandbox_can_be_made_nothing_runs_unless_its_owner_accepts_that() {
    each_user(|user| {
        let project = project(user);
        // Within a sandbox none can be made, and no record be written.
        fs::copy(env!("CARGO_BIN_EXE_ringfence"), project.at("rf")).unwrap();
        project.executable("rf");
        project.write("refuse.toml", "version = 1\n[audit]\non-error = \"run\"\n");
        project.write(
            "accept.toml",
            "version = 1\n[audit]\non-error = \"run\"\n[sandbox]\nfail-if-unavailable = false\n",
        );
        let within =
            |policy: &str| project.sh(&format!("./rf run --policy {policy} -- touch {policy}.ran"));
        within("refuse.toml").ends(125);
        assert!(within("accept.toml").ends(0).talk().contains("no sandbox can be made here"));
        assert!(!project.has("refuse.toml.ran") && project.has("accept.toml.ran"));
    });
}
