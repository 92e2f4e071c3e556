//! Settings of other tools, in their own places, as a part of the policy.

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user, fuse_for_all};
use serde_json::{Value, json};

use crate::project;
use crate::sessions::TestSession;

/// Writes a file below the home directory.
fn home(project: &TestProject, name: &str, text: impl AsRef<[u8]>) {
    project.write_at(&project.home().join(name), text);
}

/// The user's policy for all projects, which extends these tools.
fn extend(project: &TestProject, tools: &[&str]) {
    home(project, ".config/ringfence/policy.toml", format!("version = 1\nextends = {tools:?}\n"));
}

fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// A project with readable files inside and outside.
fn with_files(user: TestUser) -> TestProject {
    let project = project(user);
    for name in ["private/notes", "public.data", "x.data"] {
        project.write(name, "inside\n");
    }
    for name in ["data/a", "closed/b"] {
        home(&project, name, "outside\n");
    }
    project
}

/// Asserts the output of `cat` of each path, empty if it cannot be read.
#[track_caller]
fn check_reads(project: &TestProject, expect: &[(&str, &str)]) {
    for (path, text) in expect {
        let ran = project.sh(&format!("cat {path}"));
        assert_eq!(
            (ran.text().as_str(), ran.status == 0),
            (*text, !text.is_empty()),
            "{path}: {}",
            ran.stderr_text()
        );
    }
}

/// Promise: other-tools
#[test]
fn settings_of_claude_code_are_rules_of_the_policy() {
    each_user(|user| {
        let project = with_files(user);
        let of_user =
            json!({ "permissions": { "allow": ["Read(~/data/**)"], "deny": ["Read(*.data)"] } });
        let of_project = json!({ "permissions": { "allow": ["Read(~/closed/**)"], "deny": ["Read(./private/**)"] } });
        let local = json!({ "sandbox": { "filesystem": { "denyWrite": ["README"] } } });
        home(&project, ".claude/settings.json", of_user.to_string());
        project.write(".claude/settings.json", of_project.to_string());
        project.write(".claude/settings.local.json", local.to_string());
        check_reads(
            &project,
            &[("private/notes", "inside"), ("~/data/a", ""), ("x.data", "inside")],
        );
        extend(&project, &["claude-code"]);
        // The author of the repository opens nothing outside of it.
        check_reads(
            &project,
            &[
                ("private/notes", ""),
                ("x.data", ""),
                ("README", "hello"),
                ("~/data/a", "outside"),
                ("~/closed/b", ""),
            ],
        );
        assert_ne!(project.sh("echo x > README").status, 0);
        assert_ne!(project.sh("echo x > other && echo x > .claude/settings.json").status, 0);
        assert_eq!(project.read(".claude/settings.json"), Some(of_project.to_string()));
    });
}

/// Promise: other-tools
#[test]
fn sandbox_json_and_config_toml_are_rules_of_the_policy() {
    each_user(|user| {
        let project = with_files(user);
        let synapse = json!({ "policy": { "filesystem": { "whitelist": ["~/data"], "blacklist": ["*.data"] } } });
        home(&project, ".synapse/sandbox.json", synapse.to_string());
        extend(&project, &["synapse"]);
        check_reads(&project, &[("~/data/a", "outside"), ("x.data", ""), ("~/closed/b", "")]);
        project.sh("echo x > ~/data/new").ok();
        home(
            &project,
            ".codex/config.toml",
            format!(
                "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"{}\"]\n",
                project.home().join("closed").display()
            ),
        );
        extend(&project, &["codex"]);
        check_reads(&project, &[("~/closed/b", "outside"), ("~/data/a", ""), ("x.data", "inside")]);
        home(&project, ".codex/config.toml", "sandbox_mode = \"read-only\"\n");
        assert_ne!(project.sh("echo x > made").status, 0);
        assert!(!project.has("made"));
    });
}

/// Promise: other-tools
#[test]
fn config_yaml_of_the_project_denies_and_commands_cannot_change_it() {
    each_user(|user| {
        let project = with_files(user);
        extend(&project, &["uds"]);
        // The file is protected before it exists.
        project.sh("mkdir .uds && echo 'sandbox: {}' > .uds/config.yaml; true").ok();
        assert!(!project.has(".uds/config.yaml"));
        let yaml = "sandbox:\n  filesystem:\n    blocked-patterns: ['*.data']\n    allowed-patterns: ['public.data', '.env']\n";
        project.write(".uds/config.yaml", yaml);
        check_reads(&project, &[("x.data", ""), ("public.data", "inside"), (".env", "")]);
        assert_ne!(project.sh("echo 'sandbox: {}' > .uds/config.yaml").status, 0);
        project.sh("mv .uds old; rm -f old/config.yaml .uds/config.yaml; true").ok();
        assert_eq!(project.read(".uds/config.yaml").as_deref(), Some(yaml));
        check_reads(&project, &[("x.data", "")]);
    });
}

/// Promise: other-tools
#[test]
fn commands_cannot_change_settings_in_a_writable_directory() {
    each_user(|user| {
        let project = with_files(user);
        let synapse = json!({ "policy": { "filesystem": { "blacklist": ["*.data"] } } });
        home(&project, ".synapse/sandbox.json", synapse.to_string());
        project.make_directories(&project.home().join(".codex"));
        project.make_directories(&project.home().join(".claude"));
        home(
            &project,
            ".config/ringfence/policy.toml",
            "version = 1\nextends = [\"claude-code\", \"codex\", \"synapse\"]\n\
             [filesystem]\nwrite = [\"~/.claude\", \"~/.codex\", \"~/.synapse\"]\n",
        );
        for file in [".claude/settings.json", ".codex/config.toml", ".synapse/sandbox.json"] {
            let ran = project.sh(&format!("echo '{{}}' > ~/{file}"));
            assert_ne!(ran.status, 0, "{file} as {user}");
            project.sh(&format!("echo '{{}}' > ~/{file}.new; mv ~/{file}.new ~/{file}; true")).ok();
        }
        assert_eq!(
            std::fs::read_to_string(project.home().join(".synapse/sandbox.json")).ok(),
            Some(synapse.to_string())
        );
        assert!(!project.home().join(".claude/settings.json").exists(), "as {user}");
        assert!(!project.home().join(".codex/config.toml").exists(), "as {user}");
    });
}

/// Promise: other-tools
#[test]
fn settings_of_other_tools_open_no_built_in_deny_and_turn_nothing_off() {
    each_user(|user| {
        let project = with_files(user);
        let claude = json!({
            "permissions": { "allow": ["Read(~/.ssh/**)", "Read(**/.env)", "Read(//**)"] },
            "sandbox": { "enabled": false, "excludedCommands": ["cat:*"], "allowUnsandboxedCommands": true },
        });
        let synapse = json!({ "enabled": false, "policy": { "filesystem": { "whitelist": ["~/.ssh", "~/.aws"] } } });
        home(&project, ".claude/settings.json", claude.to_string());
        home(&project, ".synapse/sandbox.json", synapse.to_string());
        home(&project, ".codex/config.toml", "sandbox_mode = \"danger-full-access\"\n");
        project.write(".uds/config.yaml", "sandbox:\n  enabled: false\n");
        extend(&project, &["claude-code", "codex", "uds", "synapse"]);
        let ran = project.sh("cat ~/.ssh/id_rsa ~/.aws/credentials .env x.pem ~/notes.txt");
        assert!(ran.status != 0 && !ran.text().contains(SECRET), "{}", ran.text());
        let said = ran.stderr_text();
        for text in [
            "`~/.ssh/**` is not opened",
            "sandbox.json: enabled: turns the sandbox off and is ignored",
            "config.toml: sandbox_mode: turns the sandbox off and is ignored",
        ] {
            assert!(said.contains(text), "{text}: {said}");
        }
    });
}

/// Promise: other-tools
#[test]
fn project_policy_gets_no_more_from_settings_than_by_itself() {
    each_user(|user| {
        let project = with_files(user);
        let allow = json!({ "permissions": { "allow": ["Read(~/data/**)"], "deny": ["Read(./private/**)"] } });
        home(&project, ".claude/settings.json", allow.to_string());
        project.write(".claude/settings.json", allow.to_string());
        let synapse = json!({ "policy": { "filesystem": { "whitelist": ["~/data"] } } });
        home(&project, ".synapse/sandbox.json", synapse.to_string());
        project.write(
            ".ringfence/policy.toml",
            "version = 1\nextends = [\"claude-code\", \"synapse\"]\n",
        );
        check_reads(&project, &[("~/data/a", ""), ("private/notes", "")]);
        let said = project.sh("true").stderr_text();
        assert!(said.contains("a project's file cannot open paths outside"), "{said}");
        assert!(said.contains("policy.toml:2:27: `synapse` in `extends` has no effect"), "{said}");
    });
}

#[test]
fn unknown_tool_is_an_error_and_missing_settings_are_a_warning() {
    each_user(|user| {
        let project = with_files(user);
        extend(&project, &["claude"]);
        let ran = project.sh("echo ran");
        ran.expect_status(125);
        let said = ran.stderr_text();
        assert!(
            said.contains("policy.toml:2:12: `claude` in `extends` is neither a file nor")
                && said.contains("known tools: `claude-code`, `codex`, `uds`, `synapse`"),
            "{said}"
        );
        extend(&project, &["synapse"]);
        let ran = project.sh("echo ran");
        assert_eq!(ran.ok(), "ran");
        let place = project.home().join(".synapse/sandbox.json");
        let expect = format!(
            "policy.toml:2:12: `synapse` in `extends` has no effect: no file {}",
            place.display()
        );
        assert!(ran.stderr_text().contains(&expect), "{}", ran.stderr_text());
    });
}

#[test]
fn malformed_sandbox_json_is_a_warning_and_other_malformed_settings_an_error() {
    each_user(|user| {
        let project = with_files(user);
        home(&project, ".synapse/sandbox.json", "{ \"enabled\": ");
        extend(&project, &["synapse"]);
        let ran = project.sh("echo ran");
        assert_eq!(ran.ok(), "ran");
        assert!(
            ran.stderr_text().contains(".synapse/sandbox.json: the file is malformed (1:"),
            "{}",
            ran.stderr_text()
        );
        for (tool, file, text, place) in [
            (
                "claude-code",
                ".claude/settings.json",
                "{\n  \"permissions\": { \"deny\": 1 }\n}",
                "2:21",
            ),
            ("codex", ".codex/config.toml", "a = 1\nsandbox_mode = [1\n", "2:18"),
            ("uds", "code/app/.uds/config.yaml", "sandbox:\n  filesystem: 3\n", "2:3"),
        ] {
            home(&project, file, text);
            extend(&project, &[tool]);
            let ran = project.sh("echo ran");
            ran.expect_status(125);
            let expect = format!("{}:{place}", project.home().join(file).display());
            let said = ran.stderr_text();
            assert!(
                said.contains(&expect) && said.contains("hint:") && ran.text().is_empty(),
                "{expect} as {user}: {said}"
            );
        }
    });
}

#[test]
fn rules_of_settings_are_shown_with_file_and_line() {
    each_user(|user| {
        let project = with_files(user);
        let settings = "{\n  \"permissions\": {\n    \"deny\": [\n      \"Read(./private/**)\",\n      \"WebFetch(domain:evil.example)\"\n    ]\n  }\n}\n";
        home(&project, ".claude/settings.json", settings);
        home(&project, ".codex/config.toml", "# mine\nsandbox_mode = \"read-only\"\n");
        project.write(
            ".uds/config.yaml",
            "sandbox:\n  filesystem:\n    blocked-patterns:\n      - '*.data'\n",
        );
        extend(&project, &["claude-code", "codex", "uds"]);
        let shown = ringfence(&project, &["policy", "show", "--origin"]).ok();
        for (file, line, source) in [
            (".claude/settings.json", 4, "user policy"),
            (".claude/settings.json", 5, "user policy"),
            (".codex/config.toml", 2, "user policy"),
            ("code/app/.uds/config.yaml", 4, "project policy"),
        ] {
            let place = format!("{}:{line} ({source})", project.home().join(file).display());
            assert!(shown.contains(&place), "{place} as {user}: {shown}");
        }
        let explained = ringfence(&project, &["explain", "read", "private/notes"]).text();
        assert!(explained.contains(".claude/settings.json:4 (user policy)"), "{explained}");
        for (words, text) in [(["policy", "check"], "ok "), (["policy", "list"], "codex          ")]
        {
            let said = ringfence(&project, &words).ok();
            let expect = format!("{text}{}", project.home().join(".codex/config.toml").display());
            assert!(said.contains(&expect), "{words:?}: {said}");
        }
    });
}

#[test]
fn init_and_doctor_name_settings_without_applying_them() {
    each_user(|user| {
        let project = with_files(user);
        let settings = json!({ "permissions": { "deny": ["Read(./private/**)"] } });
        home(&project, ".claude/settings.json", settings.to_string());
        project.write(
            ".uds/config.yaml",
            "sandbox:\n  filesystem:\n    blocked-patterns: ['*.data']\n",
        );
        for words in [&["init", "--dry-run"][..], &["doctor"]] {
            let said = ringfence(&project, words).text();
            let command = r#"ringfence configure set extends '["claude-code", "uds"]'"#;
            for text in [".claude/settings.json", ".uds/config.yaml", command] {
                assert!(said.contains(text), "{text} in {words:?} as {user}: {said}");
            }
        }
        check_reads(&project, &[("private/notes", "inside"), ("x.data", "inside")]);
        ringfence(&project, &["configure", "set", "extends", r#"["claude-code", "uds"]"#]).ok();
        check_reads(&project, &[("private/notes", ""), ("x.data", "")]);
        for words in [&["init", "--dry-run"][..], &["doctor"]] {
            let said = ringfence(&project, words).text();
            assert!(!said.contains("set extends"), "{words:?} as {user}: {said}");
        }
    });
}

/// Promise: live-policy
#[test]
fn session_follows_settings_that_appear_and_change() {
    fuse_for_all();
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write("x.data", "inside\n");
        session.project.write("x.other", "inside\n");
        extend(&session.project, &["claude-code", "uds"]);
        assert_eq!(session.exec("cat x.data").ok(), "inside");
        let deny = json!({ "permissions": { "deny": ["Read(*.data)"] } });
        home(&session.project, ".claude/settings.json", deny.to_string());
        assert_ne!(session.exec("cat x.data").status, 0);
        home(&session.project, ".claude/settings.json", "{}");
        assert_eq!(session.exec("cat x.data").ok(), "inside");
        // Commands cannot make the file, so the user's is followed.
        session.exec("mkdir .uds; echo x > .uds/config.yaml; rmdir .uds");
        let yaml = "sandbox:\n  filesystem:\n    blocked-patterns: ['*.data']\n";
        session.project.write(".uds/config.yaml", yaml);
        assert_ne!(session.exec("cat x.data").status, 0);
        let deny = json!({ "permissions": { "deny": ["Read(*.other)"] } });
        session.project.write(".claude/settings.json", deny.to_string());
        assert_ne!(session.exec("cat x.other").status, 0);
    });
}

/// The answer of a hook to a tool call.
fn hook(project: &TestProject, agent: &str, tool: &str, arguments: Value) -> TestOutput {
    let input = json!({
        "session_id": "s", "cwd": project.root(), "permission_mode": "default",
        "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments,
        "tool_use_id": "toolu_01",
    });
    let mut command = project.ringfence();
    command.env("CLAUDE_PROJECT_DIR", project.root()).args(["hook", agent]);
    TestOutput::run(&mut command, input.to_string().as_bytes())
}

/// The decision of a hook, and its reason.
fn decision(ran: &TestOutput) -> (String, String) {
    ran.ok();
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
    let text =
        |key: &str| answer["hookSpecificOutput"][key].as_str().unwrap_or_default().to_owned();
    (text("permissionDecision"), text("permissionDecisionReason"))
}

/// Promise: claude-rules
#[test]
fn hook_of_claude_code_applies_its_settings_to_its_file_tools() {
    each_user(|user| {
        let project = with_files(user);
        let read = |path: &str| {
            let path = project.home().join(path);
            decision(&hook(&project, "claude-code", "Read", json!({ "file_path": path })))
        };
        assert_eq!(read("code/app/private/notes").0, "");
        assert_eq!(read("data/a").0, "deny");
        let of_project = json!({ "permissions": { "deny": ["Read(./private/**)"], "allow": ["Read(~/closed/**)"] } });
        let of_user = json!({ "permissions": { "allow": ["Read(~/data/**)", "Read(~/.ssh/**)"] } });
        project.write(".claude/settings.json", of_project.to_string());
        home(&project, ".claude/settings.json", of_user.to_string());
        let (decided, reason) = read("code/app/private/notes");
        assert_eq!(decided, "deny", "as {user}");
        assert!(reason.contains(".claude/settings.json:1 (project policy)"), "{reason}");
        assert_eq!(read("code/app/README").0, "", "as {user}");
        assert_eq!(read("data/a").0, "", "as {user}");
        assert_eq!(read("closed/b").0, "deny", "as {user}");
        assert_eq!(read(".ssh/id_rsa").0, "deny", "as {user}");
        project.write(".claude/settings.json", "{ \"permissions\": ");
        let ran = hook(&project, "claude-code", "Read", json!({ "file_path": "README" }));
        ran.expect_status(2);
        assert!(ran.stderr_text().contains(".claude/settings.json:1:"), "{}", ran.stderr_text());
    });
}

/// Promise: other-tools
#[test]
fn hook_of_codex_applies_its_config() {
    each_user(|user| {
        let project = with_files(user);
        let rewritten = |line: &str| {
            let ran = hook(&project, "codex", "Bash", json!({ "command": line }));
            ran.ok();
            let answer: Value = serde_json::from_slice(&ran.stdout).expect("an answer");
            let line = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str();
            line.expect("a command").to_owned()
        };
        let run = |line: &str| {
            let mut bash = project.command("bash");
            TestOutput::run(bash.args(["-c", &rewritten(line)]), b"")
        };
        let patch = |file: &str| {
            let text = format!("*** Begin Patch\n*** Add File: {file}\n+x\n*** End Patch");
            decision(&hook(&project, "codex", "apply_patch", json!({ "command": text }))).0
        };
        let data = project.home().join("data");
        run("echo x > ~/data/new").expect_status(1);
        let config = format!(
            "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"{}\"]\n",
            data.display()
        );
        home(&project, ".codex/config.toml", &config);
        assert_eq!(run("echo x > ~/data/new && cat ~/data/new").ok(), "x", "as {user}");
        assert_eq!(patch(&format!("{}/more", data.display())), "", "as {user}");
        // The hook reads the file before each command.
        let codex = project.home().join(".codex");
        let config = config.replace("data\"", ".codex\"");
        assert!(config.contains(&codex.display().to_string()), "{config}");
        home(&project, ".codex/config.toml", &config);
        let line = "for f in ~/.codex/config.toml; do echo >> $f; mv $f ~/.codex/old; rm $f; done; echo over";
        assert_eq!(run(line).text(), "over", "as {user}");
        let kept = std::fs::read_to_string(codex.join("config.toml")).expect("it is there");
        assert_eq!(kept, config, "as {user}");
        let config = "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nnetwork_access = true\n";
        home(&project, ".codex/config.toml", config);
        assert!(rewritten("true").contains("--net=full"), "as {user}");
        home(
            &project,
            ".config/ringfence/policy.toml",
            "version = 1\n[network]\nmode = \"none\"\n",
        );
        assert!(!rewritten("true").contains("--net"), "as {user}");
        home(&project, ".codex/config.toml", "sandbox_mode = \"danger-full-access\"\n");
        assert_ne!(run("cat ~/.ssh/id_rsa").status, 0, "as {user}");
        home(&project, ".codex/config.toml", "sandbox_mode = \"read-only\"\n");
        assert_ne!(run("echo x > made").status, 0, "as {user}");
        assert_eq!(patch("made"), "deny", "as {user}");
        assert!(!project.has("made"), "as {user}");
    });
}

/// The settings do not exist yet, and a link leads to their directory.
#[test]
fn commands_cannot_create_settings_behind_a_link() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p ~/dotfiles/claude && ln -s dotfiles/claude ~/.claude && ln -s dotfiles/codex.toml ~/codex.toml && mkdir ~/.codex && ln -s ../dotfiles/codex.toml ~/.codex/config.toml";
        project.sh_bare(line).ok();
        let dotfiles = project.home().join("dotfiles").display().to_string();
        let line = "echo x > ~/dotfiles/more; for f in ~/dotfiles/claude/settings.json ~/dotfiles/codex.toml; do echo '{}' > $f; mv ~/dotfiles/more $f; done; echo over";
        project.run(["--write", &dotfiles, "-c", line]).ok();
        let made = |name: &str| project.home().join("dotfiles").join(name).exists();
        assert!(made("more"), "as {user}");
        assert!(!made("claude/settings.json") && !made("codex.toml"), "as {user}");
    });
}

#[test]
fn settings_do_not_open_the_home_directory() {
    each_user(|user| {
        let project = project(user);
        home(
            &project,
            ".config/ringfence/policy.toml",
            "version = 1\nextends = [\"claude-code\"]\n",
        );
        home(
            &project,
            ".claude/settings.json",
            r#"{"permissions": {"allow": ["Edit(./**)"], "additionalDirectories": ["."]}}"#,
        );
        let ran = project.run(["-C", &project.home().display().to_string(), "--", "touch", "ran"]);
        let stderr = ran.expect_status(125).stderr_text();
        assert!(stderr.contains("home directory"), "{stderr}");
    });
}
