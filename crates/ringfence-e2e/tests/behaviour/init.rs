//! `ringfence init`: detection, proposals, written files, and files left unchanged.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::project;

fn init(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().arg("init").args(words), b"")
}

#[track_caller]
fn found(project: &TestProject, words: &[&str]) -> Value {
    serde_json::from_str(&init(project, &[&["--json"], words].concat()).ok())
        .expect("one JSON object")
}

/// A Claude Code and Node.js project with all kinds of remotes.
fn prepared(user: TestUser) -> TestProject {
    let project = project(user);
    project.write("CLAUDE.md", "");
    project.write("package.json", "{}");
    let remotes = "[remote \"origin\"]\n\turl = https://github.com/me/app\n[remote \"near\"]\n\turl = ssh://10.0.0.1/x\n[remote \"odd\"]\n\turl = https://git.evil.example/x\n";
    project.write(".git/config", remotes);
    project
}

/// Promise: init-writes
#[test]
fn init_proposes_what_it_finds_and_writes_nothing_unasked() {
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
        ran.expect_status(125);
        assert!(
            ran.stderr_text().contains("--yes") && ran.text().contains("+++ "),
            "{}",
            ran.stderr_text()
        );
        init(&project, &["--json"]).expect_status(125);
        assert_eq!(project.entries(), before);
        assert!(!project.home().join(".config/ringfence").exists());
    });
}

/// Promise: init-writes
#[test]
fn init_is_idempotent_and_its_hook_works() {
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
        TestOutput::run(project.ringfence().args(["policy", "check"]), b"").ok();
        let opened = TestOutput::run(
            project.ringfence().args(["explain", "connect", "registry.npmjs.org:443"]),
            b"",
        );
        assert!(opened.text().contains("allowed"), "{}", opened.text());
        let settings: Value =
            serde_json::from_str(&project.read(".claude/settings.local.json").unwrap()).unwrap();
        let handler = &settings["hooks"]["PreToolUse"][0]["hooks"][0];
        assert_eq!(handler["onFailure"], "block");
        // The hook command that was written answers a call.
        let call = json!({ "cwd": project.root(), "hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": { "file_path": ".env" } });
        let answered = TestOutput::run(
            project.command("sh").args(["-c", handler["command"].as_str().unwrap()]),
            call.to_string().as_bytes(),
        );
        assert!(answered.ok().contains("\"deny\""));
        let after = project.entries();
        assert!(init(&project, &["--yes"]).ok().contains("nothing to write"));
        assert_eq!(project.entries(), after);
        assert!(!after.keys().any(|path| path.to_string_lossy().ends_with(".new")));
    });
}

/// Promise: init-writes
#[test]
fn existing_file_content_stays() {
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
        assert!(again.contains("nothing to write"), "{again}");
    });
}

/// Promise: init-writes
#[test]
fn unmergeable_files_are_left_unchanged() {
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
            ran.expect_status(125);
            assert!(
                ran.stderr_text().contains(name.rsplit('/').next().unwrap()),
                "{}",
                ran.stderr_text()
            );
            assert_eq!(project.read(name).as_deref(), Some(text));
            assert!(
                !project.home().join(".config/ringfence").exists(),
                "nothing is written where not all can be"
            );
        }
        // The project's content does not choose the file that is written.
        let project = prepared(user);
        project.write_at(&project.home().join("target.json"), "{}");
        project.make_directories(&project.at(".claude"));
        symlink(project.home().join("target.json"), project.at(".claude/settings.local.json"))
            .unwrap();
        init(&project, &["--yes"]).expect_status(125);
        assert_eq!(fs::read_to_string(project.home().join("target.json")).unwrap(), "{}");
    });
}

#[test]
fn agents_without_hooks_get_mcp_tools() {
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

/// A hostile project can imitate our hook.
#[test]
fn lookalike_hooks_do_not_count_as_installed() {
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
            // A second run changes nothing.
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
            ran.expect_status(125);
            assert!(ran.stderr_text().contains("occurs twice"), "{}", ran.stderr_text());
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
        init(&project, &["--yes", "--agent", "cursor"]).expect_status(125);
    });
}

#[test]
fn init_sets_up_the_project_root_unless_here_is_given() {
    each_user(|user| {
        let project = prepared(user);
        project.write("packages/app/package.json", "{}");
        let below = |words: &[&str]| {
            let mut command = project.ringfence();
            TestOutput::run(
                command.arg("init").args(words).current_dir(project.at("packages/app")),
                b"",
            )
        };
        let root = project.root().display().to_string();
        let first = below(&["--yes"]).ok();
        assert!(
            first.contains(&format!("the project is {root}, which is the root of the repository")),
            "{first}"
        );
        assert!(project.has(".ringfence/policy.toml") && !project.has("packages/app/.ringfence"));
        let again = below(&["--yes"]).ok();
        assert!(
            again.contains("nothing to write") && again.contains("which has a policy"),
            "{again}"
        );
        below(&["--here", "--yes"]).ok();
        assert!(project.has("packages/app/.ringfence/policy.toml"));
        assert!(!below(&["--yes"]).ok().contains("the project is"));
        let home = project.home();
        let at_home =
            TestOutput::run(project.ringfence().args(["init", "--yes"]).current_dir(&home), b"");
        assert!(
            at_home.expect_status(125).stderr_text().contains("cd into a project"),
            "{}",
            at_home.stderr_text()
        );
        assert!(!home.join(".ringfence").exists());
    });
}
