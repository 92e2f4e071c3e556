//! Setting up: what is found, what is shown, what is written, and what is left alone.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::project;

fn init(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence().arg("init").args(words), b"")
}

#[track_caller]
fn found(project: &TestProject, words: &[&str]) -> Value {
    serde_json::from_str(&init(project, &[&["--json"], words].concat()).ok())
        .expect("one JSON object")
}

/// A project of Claude Code and node, with remotes of all kinds.
fn prepared(user: TestUser) -> TestProject {
    let project = project(user);
    project.write("CLAUDE.md", "");
    project.write("package.json", "{}");
    let remotes = "[remote \"origin\"]\n\turl = https://github.com/me/app\n[remote \"near\"]\n\turl = ssh://10.0.0.1/x\n[remote \"odd\"]\n\turl = https://git.evil.example/x\n";
    project.write(".git/config", remotes);
    project
}

/// Promise: P87
#[test]
fn what_is_found_is_proposed_and_nothing_written_unasked() {
    each_user(|user| {
        let project = prepared(user);
        let before = project.entries();
        let found = found(&project, &["--dry-run"]);
        assert_eq!(
            (&found["agents"], &found["languages"], &found["written"]),
            (&json!(["claude-code"]), &json!(["node"]), &json!(false))
        );
        let hosts = |proposed: bool| -> Vec<&str> {
            let hosts = found["hosts"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|host| host["proposed"] == proposed);
            hosts.map(|host| host["host"].as_str().unwrap()).collect()
        };
        assert_eq!(
            hosts(true),
            [
                "registry.npmjs.org:443",
                "registry.yarnpkg.com:443",
                "github.com:443",
                "github.com:22"
            ]
        );
        assert_eq!(
            hosts(false),
            ["10.0.0.1:22", "10.0.0.1:443", "git.evil.example:443", "git.evil.example:22"]
        );
        let ran = init(&project, &[]);
        ran.ends(125);
        assert!(ran.talk().contains("--yes") && ran.text().contains("+++ "), "{}", ran.talk());
        init(&project, &["--json"]).ends(125);
        assert_eq!(project.entries(), before);
        assert!(!project.home().join(".config/ringfence").exists());
    });
}

/// Promise: P87
#[test]
fn what_is_written_works_and_twice_is_once() {
    each_user(|user| {
        let project = prepared(user);
        assert_eq!(found(&project, &["--yes"])["written"], true);
        let policy = fs::read_to_string(project.own_policy()).unwrap();
        assert!(!project.home().join(".config/ringfence/policy.toml").exists());
        assert!(
            policy.contains("\n  \"registry.npmjs.org:443\", # node")
                && policy.contains("\n  # \"10.0.0.1:22\""),
            "{policy}"
        );
        project.run(["--", "true"]).ok();
        TestOutput::of(project.ringfence().args(["policy", "check"]), b"").ok();
        let opened = TestOutput::of(
            project.ringfence().args(["explain", "connect", "registry.npmjs.org:443"]),
            b"",
        );
        assert!(opened.text().contains("allowed"), "{}", opened.text());
        let settings: Value =
            serde_json::from_str(&project.read(".claude/settings.local.json").unwrap()).unwrap();
        let handler = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
        assert_eq!(handler["onFailure"], "block");
        // The very command that is written answers a call.
        let call = json!({ "cwd": project.root(), "hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": { "file_path": ".env" } });
        let answered = TestOutput::of(
            project.command("sh").args(["-c", handler["command"].as_str().unwrap()]),
            call.to_string().as_bytes(),
        );
        assert!(answered.ok().contains("\"deny\""));
        let after = project.entries();
        assert!(init(&project, &["--yes"]).ok().contains("nothing is to be written"));
        assert_eq!(project.entries(), after);
        assert!(!after.keys().any(|path| path.to_string_lossy().ends_with(".new")));
    });
}

/// Promise: P87
#[test]
fn what_stands_in_a_file_stays() {
    each_user(|user| {
        let project = prepared(user);
        let mine = "{\n\t// mine\n\t\"model\": \"opus\",\n\t\"hooks\": {\n\t\t\"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"mine\"}]}]\n\t},\n\t\"permissions\": {\"deny\": [\"Read(~/.ssh/**)\"], \"allow\": [\"Bash(ls)\"]}\n}\n";
        project.write(".claude/settings.local.json", mine);
        project.write(".ringfence/policy.toml", "version = 1 # the project's\n");
        let policy = project.own_policy();
        let head = format!("# mine\nversion = 1\nproject = \"{}\"\n", project.root().display());
        project.write_at(
            &policy,
            head.clone()
                + "mode = \"read-only\" # for now\n[network]\nallow = [\n  \"a.org\", # first\n]\n",
        );
        init(&project, &["--yes", "--agent", "claude-code", "--agent", "codex"]).ok();
        let settings = project.read(".claude/settings.local.json").unwrap();
        for line in mine
            .lines()
            .filter(|line| !line.contains("permissions") && !line.contains("Bash\", \"hooks"))
        {
            assert!(settings.contains(line), "{line} in {settings}");
        }
        assert!(
            settings.contains("\"command\": \"mine\"")
                && settings.contains("\"Bash(ls)\"")
                && settings.matches("~/.ssh").count() == 1
        );
        assert!(
            settings.find("\"mine\"").unwrap() < settings.find("hook claude-code").unwrap(),
            "{settings}"
        );
        assert_eq!(
            project.read(".ringfence/policy.toml").as_deref(),
            Some("version = 1 # the project's\n")
        );
        let text = fs::read_to_string(&policy).unwrap();
        assert!(text.starts_with(&(head + "mode = \"read-only\" # for now\n[network]\nallow = [\n  \"a.org\", # first\n")), "{text}");
        assert!(text.contains("registry.npmjs.org:443") && !text.contains("10.0.0.1"), "{text}");
        assert!(project.read(".codex/hooks.json").unwrap().contains("hook codex"));
        let again = init(&project, &["--yes", "--agent", "claude-code", "--agent", "codex"]).ok();
        assert!(again.contains("nothing is to be written"), "{again}");
    });
}

/// Promise: P87
#[test]
fn what_cannot_be_merged_is_left_alone() {
    each_user(|user| {
        for (name, text) in [
            (".claude/settings.local.json", "{"),
            (".claude/settings.local.json", "[]"),
            (".claude/settings.local.json", "{\"hooks\": []}"),
            (".ringfence/policy.toml", "version = 2\n"),
        ] {
            let project = prepared(user);
            project.write(name, text);
            let ran = init(&project, &["--yes"]);
            ran.ends(125);
            assert!(ran.talk().contains(name.rsplit('/').next().unwrap()), "{}", ran.talk());
            assert_eq!(project.read(name).as_deref(), Some(text));
            assert!(
                !project.home().join(".config/ringfence").exists(),
                "nothing is written where not all can be"
            );
        }
        // Whoever wrote the project does not choose which file is written.
        let project = prepared(user);
        project.write_at(&project.home().join("target.json"), "{}");
        project.make_directories(&project.at(".claude"));
        symlink(project.home().join("target.json"), project.at(".claude/settings.local.json"))
            .unwrap();
        init(&project, &["--yes"]).ends(125);
        assert_eq!(fs::read_to_string(project.home().join("target.json")).unwrap(), "{}");
    });
}

#[test]
fn agents_without_hooks_get_tools() {
    let project = project(TestUser::User);
    project.write(".cursor/mcp.json", "{\"mcpServers\": {\"other\": {\"command\": \"x\"}}}");
    init(&project, &["--yes", "--agent", "cursor", "--agent", "gemini", "--agent", "opencode"])
        .ok();
    let read =
        |name: &str| -> Value { serde_json::from_str(&project.read(name).unwrap()).unwrap() };
    assert_eq!(read(".cursor/mcp.json")["mcpServers"]["other"]["command"], "x");
    assert_eq!(read(".cursor/mcp.json")["mcpServers"]["ringfence"]["args"], json!(["mcp"]));
    assert_eq!(read(".gemini/settings.json")["mcpServers"]["ringfence"]["args"], json!(["mcp"]));
    assert_eq!(read("opencode.json")["mcp"]["ringfence"]["command"][1], "mcp");
}

/// Whoever wrote the project knows how a hook of ours looks.
#[test]
fn settings_that_only_look_like_ours_do_not_count() {
    each_user(|user| {
        let project = project(user);
        let ours = format!("{} hook claude-code", project.binary().display());
        let events = ["PreToolUse", "PostToolUse", "PostToolUseFailure", "SessionStart"];
        for handler in [
            json!({ "matcher": "Nope", "hooks": [{ "type": "command", "command": ours, "timeout": 30, "onFailure": "block" }] }),
            json!({ "matcher": "*", "hooks": [{ "type": "command", "command": ours, "timeout": 30, "async": true }] }),
            json!({ "matcher": "*", "hooks": [{ "type": "prompt", "command": ours }] }),
            json!({ "matcher": "Nope", "hooks": [{ "type": "command", "command": "x/ringfence hook claude-code" }] }),
        ] {
            let hooks: serde_json::Map<String, Value> =
                events.iter().map(|event| ((*event).to_owned(), json!([handler]))).collect();
            project.write(".claude/settings.local.json", json!({ "hooks": hooks }).to_string());
            init(&project, &["--yes", "--agent", "claude-code"]).ok();
            let written: Value =
                serde_json::from_str(&project.read(".claude/settings.local.json").unwrap())
                    .unwrap();
            let expect = json!({ "matcher": "*", "hooks": [{ "type": "command", "command": ours, "timeout": 30, "onFailure": "block" }] });
            let groups = written["hooks"]["PreToolUse"].as_array().unwrap();
            assert!(groups.contains(&expect), "{written:#}");
            // Twice is once.
            let again = found(&project, &["--yes", "--agent", "claude-code"]);
            assert_eq!(again["written"], false, "{again:#}");
        }
        for text in [
            r#"{"hooks": {}, "hooks": {"PreToolUse": []}}"#,
            r#"{"hooks": {}, "\u0068ooks": {}}"#,
            r#"{"hooks": {"PreToolUse": [], "PreToolUse": []}}"#,
        ] {
            project.write(".claude/settings.local.json", text);
            let ran = init(&project, &["--yes", "--agent", "claude-code"]);
            ran.ends(125);
            assert!(ran.talk().contains("stands there twice"), "{}", ran.talk());
            assert_eq!(project.read(".claude/settings.local.json").as_deref(), Some(text));
        }
        project.write(".claude/settings.local.json", r#"{"disable\u0041llHooks": true}"#);
        assert!(
            init(&project, &["--dry-run", "--agent", "claude-code"])
                .ok()
                .contains("disableAllHooks")
        );
        project
            .write(".cursor/mcp.json", r#"{"mcpServers": {"ringfence": {"command": "./evil"}}}"#);
        init(&project, &["--yes", "--agent", "cursor"]).ends(125);
    });
}

#[test]
fn init_below_a_project_sets_up_its_root_and_here_makes_one() {
    each_user(|user| {
        let project = prepared(user);
        project.write("packages/app/package.json", "{}");
        let below = |words: &[&str]| {
            let mut command = project.ringfence();
            TestOutput::of(
                command.arg("init").args(words).current_dir(project.at("packages/app")),
                b"",
            )
        };
        let root = project.root().display().to_string();
        let first = below(&["--yes"]).ok();
        assert!(
            first.contains(&format!("the project is {root}, which has the repository")),
            "{first}"
        );
        assert!(project.has(".ringfence/policy.toml") && !project.has("packages/app/.ringfence"));
        let again = below(&["--yes"]).ok();
        assert!(
            again.contains("nothing is to be written") && again.contains("which has a policy"),
            "{again}"
        );
        below(&["--here", "--yes"]).ok();
        assert!(project.has("packages/app/.ringfence/policy.toml"));
        assert!(!below(&["--yes"]).ok().contains("the project is"));
        let home = project.home();
        let at_home =
            TestOutput::of(project.ringfence().args(["init", "--yes"]).current_dir(&home), b"");
        assert!(at_home.ends(125).talk().contains("cd into a project"), "{}", at_home.talk());
        assert!(!home.join(".ringfence").exists());
    });
}
