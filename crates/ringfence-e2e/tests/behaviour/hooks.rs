//! Hooks: responses to an agent's tool calls, and the confinement of its commands.

mod conversation;
mod hostile;
mod recorded;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user, fuse_for_all};
use serde_json::{Value, json};

use crate::project;

/// The input of a Claude Code hook.
fn input(project: &TestProject, event: &str, tool: &str, arguments: Value) -> Value {
    json!({
        "session_id": "00893aaf-19fa-41d2-8238-13269b9b3ca0",
        "transcript_path": project.home().join(".claude/projects/app/00893aaf.jsonl"),
        "cwd": project.root(),
        "permission_mode": "default",
        "hook_event_name": event,
        "tool_name": tool,
        "tool_input": arguments,
        "tool_use_id": "toolu_01ABC123",
    })
}

fn hook(project: &TestProject, input: &Value) -> TestOutput {
    TestOutput::run(project.ringfence().args(["hook", "claude-code"]), input.to_string().as_bytes())
}

fn answer(ran: &TestOutput) -> Value {
    ran.ok();
    if ran.stdout.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{:?}", ran.text()))
    }
}

/// The hook's response before a tool is used.
#[track_caller]
fn said(project: &TestProject, tool: &str, arguments: Value) -> Value {
    answer(&hook(project, &input(project, "PreToolUse", tool, arguments)))["hookSpecificOutput"]
        .clone()
}

/// The line that runs in place of `line`.
#[track_caller]
fn rewritten(project: &TestProject, line: &str) -> String {
    let said = said(project, "Bash", json!({ "command": line }));
    assert_eq!(said["permissionDecision"], "allow", "{said}");
    said["updatedInput"]["command"].as_str().expect("a command").to_owned()
}

/// Runs the rewritten line as the agent would, and prints the shell's directory afterwards.
#[track_caller]
fn confined(project: &TestProject, line: &str) -> TestOutput {
    let whole = format!(
        "eval {} < /dev/null && pwd -P >| {}",
        quoted(&rewritten(project, line)),
        project.home().join("cwd").display()
    );
    TestOutput::run(shell(project).args(["-c", &whole]), b"")
}

/// The agent's shell, with the project's own directory for sockets.
fn shell(project: &TestProject) -> Command {
    let mut command = project.command("bash");
    command.env("XDG_RUNTIME_DIR", runtime(project));
    command
}

/// The directory for sockets of sessions.
fn runtime(project: &TestProject) -> PathBuf {
    let runtime = project.home().join("runtime");
    if fs::create_dir(&runtime).is_ok() {
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))
            .expect("its mode can be set");
        project.user.chown(&runtime);
    }
    runtime
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn verdict(project: &TestProject, tool: &str, arguments: Value) -> String {
    said(project, tool, arguments)["permissionDecision"].as_str().unwrap_or("nothing").to_owned()
}

/// Promise: hooked-commands
#[test]
fn rewritten_command_is_confined() {
    each_user(|user| {
        let project = project(user);
        confined(&project, "echo made > made && cat README").ok();
        assert_eq!(project.read("made").as_deref(), Some("made\n"));
        for line in [
            "cat .env",
            "cat ~/.ssh/id_rsa",
            "cat ../other/main.rs",
            "echo x > ~/x",
            "cat .env; cat $(echo .env)",
        ] {
            let ran = confined(&project, line);
            assert!(ran.status != 0 && !ran.text().contains(SECRET), "{line}: {}", ran.text());
        }
        confined(&project, "exit 7").expect_status(7);
        assert_eq!(
            confined(
                &project,
                "[[ -n $BASH_VERSION ]] && echo \"it's $0\" && false || cat <<'E'\na 'b' \\\nE"
            )
            .ok(),
            "it's /bin/bash\na 'b' \\"
        );
    });
}

/// Promise: hooked-commands
#[test]
fn ringfence_in_the_command_line_gains_nothing() {
    each_user(|user| {
        let project = project(user);
        let binary = project.binary().display().to_string();
        for line in [
            format!("{binary} run --mode full-access -- cat .env"),
            format!("{binary} run --read ~/.ssh -- cat ~/.ssh/id_rsa"),
            format!("{binary} sandbox linux --sandbox-policy danger-full-access -- cat .env"),
            format!(
                "'{binary}' run --project '{}' --shell bash -c 'cat .env'",
                project.root().display()
            ),
            rewritten(&project, "cat .env").replace("--shell", "--mode full-access --shell"),
            format!("{} ; cat .env", rewritten(&project, "true")),
        ] {
            let ran = confined(&project, &line);
            assert!(ran.status != 0 && !ran.text().contains(SECRET), "{line}: {}", ran.text());
        }
        let once = rewritten(&project, "cat README");
        assert_eq!(rewritten(&project, &once), once);
    });
}

/// Promise: working-directory
#[test]
fn working_directory_follows_the_command_within_the_project() {
    each_user(|user| {
        let project = project(user);
        let stands =
            || fs::read_to_string(project.home().join("cwd")).unwrap().trim_end().to_owned();
        let inside = |name: &str| project.at(name).display().to_string();
        confined(&project, "cd src").ok();
        assert_eq!(stands(), inside("src"));
        confined(&project, "cd src && cd ../sub").ok();
        assert_eq!(stands(), inside("sub"));
        // Directory names with shell syntax, and directories outside the project.
        confined(&project, "mkdir '$(touch owned)' 'a b' && cd '$(touch owned)'").ok();
        assert_eq!(stands(), inside("$(touch owned)"));
        confined(&project, "cd 'a b'").ok();
        assert_eq!(stands(), inside("a b"));
        for line in [
            "cd /usr/lib",
            "cd /tmp",
            "cd ..",
            "ln -s / away; cd away/usr",
            "mkdir -p $'x\\ny' && cd $'x\\ny'",
            "cd src; exit 0",
        ] {
            confined(&project, line).ok();
            assert_eq!(stands(), project.root().display().to_string(), "{line}");
        }
        // In a sandbox of its own the line itself reports its directory, and could report anything.
        let policy = "version = 1\n[sandbox]\nhook-session = \"call\"\n";
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
        for said in ["/etc", "; id", "$(id)", "../..", "-", ""] {
            confined(&project, &format!("cd src; echo '{said}' >&$ringfence; exit")).ok();
            assert_eq!(stands(), project.root().display().to_string(), "{said}");
        }
        assert!(!project.has("owned"));
        confined(&project, "cd src; false").expect_status(1);
        hook(&project, &input(&project, "PostToolUse", "Bash", json!({ "command": "x" }))).ok();
        assert_eq!(
            fs::read_dir(project.home().join(".local/state/ringfence/ended")).unwrap().count(),
            0
        );
    });
}

#[test]
fn denials_are_reported_with_their_command() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        confined(&project, "cat .env").expect_status(1);
        let report = answer(&hook(
            &project,
            &input(&project, "PostToolUseFailure", "Bash", json!({ "command": "cat .env" })),
        ));
        let context = report["hookSpecificOutput"]["additionalContext"].as_str().expect("a text");
        assert_eq!(report["hookSpecificOutput"]["hookEventName"], "PostToolUseFailure");
        let block = format!(
            "<sandbox_violations>\nread {}: **/.env (built in)\n</sandbox_violations>\n",
            project.at(".env").display()
        );
        assert!(context.starts_with(&block), "{context}");
        // Another command of the same conversation.
        let other = json!({ "tool_use_id": "toolu_02" });
        let mut input = input(&project, "PostToolUse", "Bash", json!({ "command": "ls" }));
        input["tool_use_id"] = other["tool_use_id"].clone();
        assert_eq!(answer(&hook(&project, &input)), Value::Null);
        input["tool_use_id"] = "toolu_01ABC123".into();
        assert_eq!(
            answer(&hook(&project, &input))["hookSpecificOutput"]["hookEventName"],
            "PostToolUse"
        );
        confined(&project, "cat README").ok();
        assert_eq!(answer(&hook(&project, &input)), Value::Null);
    });
}

/// Promise: agent-tools
#[test]
fn file_paths_are_resolved_through_links() {
    each_user(|user| {
        let project = project(user);
        for (name, target) in [("link", ".env"), ("out", "../other"), ("fine", "README")] {
            symlink(target, project.at(name)).unwrap();
        }
        fs::hard_link(project.at(".env"), project.at("twin")).unwrap();
        for (tool, path, expect) in [
            ("Read", "link", "deny"),
            ("Read", "out/main.rs", "deny"),
            ("Write", "out/new", "deny"),
            ("Read", "twin", "deny"),
            ("Read", "fine", "nothing"),
            ("Edit", "fine", "nothing"),
        ] {
            assert_eq!(
                verdict(&project, tool, json!({ "file_path": project.at(path) })),
                expect,
                "{tool} {path}"
            );
            assert_eq!(
                verdict(&project, tool, json!({ "file_path": path })),
                expect,
                "{tool} {path}"
            );
        }
    });
}

/// Promise: agent-tools
#[test]
fn policy_decides_file_and_tool_calls() {
    each_user(|user| {
        let project = project(user);
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[commands]\ndeny = [\"git push:*\"]\nexcluded = [\"docker:*\"]\n[tools]\ndisallowed = [\"mcp__github__*\", \"WebSearch\"]\n[network]\nallow = [\"example.com\"]\n",
        );
        let denied = said(&project, "Bash", json!({ "command": "true && git push" }));
        assert_eq!(denied["permissionDecision"], "deny");
        let reason = denied["permissionDecisionReason"].as_str().unwrap();
        assert!(
            reason.contains("`deny git push:*`")
                && reason.contains("policy.toml:3")
                && reason.contains("at character 9"),
            "{reason}"
        );
        assert_eq!(verdict(&project, "Bash", json!({ "command": "docker ps" })), "nothing");
        assert_eq!(verdict(&project, "Bash", json!({ "command": "docker ps && id" })), "allow");
        for (tool, arguments, expect) in [
            ("mcp__github__merge", json!({}), "deny"),
            ("mcp__gitlab__merge", json!({}), "nothing"),
            ("WebSearch", json!({ "query": "x" }), "deny"),
            ("WebFetch", json!({ "url": "https://example.com/", "prompt": "x" }), "nothing"),
            ("WebFetch", json!({ "url": "https://evil.example.com/", "prompt": "x" }), "deny"),
            ("WebFetch", json!({ "url": "https://127.0.0.1/", "prompt": "x" }), "deny"),
        ] {
            assert_eq!(verdict(&project, tool, arguments.clone()), expect, "{tool} {arguments}");
        }
        let log =
            fs::read_to_string(project.home().join(".local/state/ringfence/audit/00000001.jsonl"))
                .unwrap();
        let first: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        for (key, expect) in [
            ("agent", "claude-code"),
            ("session", "toolu_01ABC123"),
            ("operation", "command"),
            ("result", "blocked"),
        ] {
            assert_eq!(first[key], expect, "{first}");
        }
        assert!(
            log.lines().any(|line| line.contains(
                "\"operation\":\"command\",\"target\":\"docker ps\",\"result\":\"allowed\""
            )),
            "{log}"
        );
    });
}

#[test]
fn command_rules_apply_to_the_original_line() {
    each_user(|user| {
        let project = project(user);
        let policy = "version = 1\n[commands]\nallow-binaries = [\"cat\", \"cd\", \"[[\"]\n";
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
        assert_eq!(confined(&project, "cat README").ok(), "hello");
        assert_eq!(confined(&project, "cd src && cat ../README").ok(), "hello");
        assert_eq!(verdict(&project, "Bash", json!({ "command": "cat README; ls" })), "deny");
        // Nor if the rewritten line is run with another line inserted.
        for line in ["cat README", "cd src"] {
            let other = rewritten(&project, line).replace(line, "ls");
            let ran = TestOutput::run(shell(&project).args(["-c", &other]), b"");
            ran.expect_status(126);
        }
    });
}

/// Promise: agent-tools
#[test]
fn ask_policy_makes_the_agent_ask() {
    each_user(|user| {
        let project = project(user);
        let policy = "version = 1\nask = \"terminal\"\n[commands]\ndeny = [\"git push:*\"]\n";
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
        assert_eq!(verdict(&project, "Read", json!({ "file_path": ".env" })), "ask");
        assert_eq!(
            verdict(
                &project,
                "Write",
                json!({ "file_path": project.home().join("x"), "content": "" })
            ),
            "ask"
        );
        // Paths that no answer can open.
        assert_eq!(
            verdict(
                &project,
                "Write",
                json!({ "file_path": ".ringfence/policy.toml", "content": "" })
            ),
            "deny"
        );
        assert_eq!(verdict(&project, "Bash", json!({ "command": "git push" })), "deny");
    });
}

/// Promise: agent-tools
#[test]
fn agent_settings_apply_to_the_command() {
    each_user(|user| {
        let project = project(user);
        let user_settings =
            |text: &str| project.write_at(&project.home().join(".claude/settings.json"), text);
        let bare = |command: &str| json!({ "command": command, "dangerouslyDisableSandbox": true });
        // Settings of the repository can only narrow.
        project.write(".claude/settings.json", r#"{"permissions": {"deny": ["Bash(curl:*)"], "ask": ["Bash(make *)"]}, "sandbox": {"enabled": false, "excludedCommands": ["id"], "allowUnsandboxedCommands": true}}"#);
        assert_eq!(verdict(&project, "Bash", json!({ "command": "id; curl x" })), "deny");
        assert_eq!(verdict(&project, "Bash", json!({ "command": "make all" })), "ask");
        assert_eq!(verdict(&project, "Bash", bare("id")), "allow");
        let made = said(&project, "Bash", bare("id"));
        assert!(made["updatedInput"]["command"].as_str().unwrap().contains(" run "), "{made}");
        user_settings(
            r#"{"sandbox": {"excludedCommands": ["docker:*"], "allowUnsandboxedCommands": true}}"#,
        );
        project.write(".claude/settings.json", "{}");
        assert_eq!(verdict(&project, "Bash", json!({ "command": "docker ps" })), "nothing");
        let asked = said(&project, "Bash", bare("id"));
        assert_eq!(
            (asked["permissionDecision"].as_str(), asked.get("updatedInput")),
            (Some("ask"), None)
        );
        user_settings(r#"{"sandbox": {"autoAllowBashIfSandboxed": false}}"#);
        let asked = said(&project, "Bash", json!({ "command": "id" }));
        assert_eq!(asked["permissionDecision"], "ask");
        assert!(
            asked["updatedInput"]["command"]
                .as_str()
                .unwrap()
                .contains(" -c 'id' && builtin cd -P -- "),
            "{asked}"
        );
        user_settings("{");
        hook(&project, &input(&project, "PreToolUse", "Bash", json!({ "command": "id" })))
            .expect_status(2);
    });
}

/// The policy comes first; no settings restore what it removes.
#[test]
fn policy_overrides_agent_settings() {
    each_user(|user| {
        let project = project(user);
        let policy = |text: &str| {
            project.write_at(
                &project.home().join(".config/ringfence/policy.toml"),
                format!("version = 1\n[sandbox]\n{text}\n"),
            )
        };
        let user_settings =
            |text: &str| project.write_at(&project.home().join(".claude/settings.json"), text);
        let wide =
            r#"{"sandbox": {"autoAllowBashIfSandboxed": true, "allowUnsandboxedCommands": true}}"#;
        let narrow = r#"{"sandbox": {"autoAllowBashIfSandboxed": false, "allowUnsandboxedCommands": false}}"#;
        let id = || json!({ "command": "id" });
        let bare = || {
            said(&project, "Bash", json!({ "command": "id", "dangerouslyDisableSandbox": true }))
        };
        policy("auto-allow-bash-if-sandboxed = true");
        assert_eq!(verdict(&project, "Bash", id()), "allow");
        policy("auto-allow-bash-if-sandboxed = false");
        assert_eq!(verdict(&project, "Bash", id()), "ask");
        user_settings(wide);
        assert_eq!(verdict(&project, "Bash", id()), "ask");
        policy("allow-unsandboxed-commands = true");
        user_settings("{}");
        let asked = bare();
        assert_eq!(
            (asked["permissionDecision"].as_str(), asked.get("updatedInput")),
            (Some("ask"), None),
            "{asked}"
        );
        // The user's settings do not open what the project narrows.
        user_settings(wide);
        project.write(".claude/settings.json", narrow);
        let asked = bare();
        assert_eq!(asked["permissionDecision"], "ask");
        assert!(
            asked["updatedInput"]["command"].as_str().is_some_and(|line| line.contains(" run ")),
            "{asked}"
        );
    });
}

/// Promise: hook-protocol
#[test]
fn any_hook_error_blocks_the_call() {
    each_user(|user| {
        let project = project(user);
        let call = input(&project, "PreToolUse", "Bash", json!({ "command": "id" }));
        let blocked = |command: &mut Command, input: &[u8], why: &str| {
            let ran = TestOutput::run(command, input);
            ran.expect_status(2);
            assert!(
                ran.stdout.is_empty() && ran.stderr_text().contains(why),
                "{}",
                ran.stderr_text()
            );
        };
        let text = call.to_string();
        for (input, why) in [
            ("", "is not JSON"),
            ("[]", "is not a JSON object"),
            ("{\"hook_event_name\":1}", "hook_event_name"),
            (&text[..40], "is not JSON"),
        ] {
            blocked(project.ringfence().args(["hook", "claude-code"]), input.as_bytes(), why);
        }
        blocked(project.ringfence().args(["hook", "claude-code"]), b"\xff", "cannot read");
        blocked(project.ringfence().args(["hook", "unknown"]), text.as_bytes(), "unknown");
        blocked(project.ringfence().args(["hook"]), text.as_bytes(), "AGENT");
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\nmoed = \"read-only\"\n",
        );
        blocked(
            project.ringfence().args(["hook", "claude-code"]),
            text.as_bytes(),
            "policy.toml:2:1",
        );
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), "version = 1\n");
        // An audit log that cannot be written.
        let state = project.home().join(".local/state/ringfence");
        fs::remove_dir_all(&state).ok();
        project.write_at(&state, "in the way");
        let read = input(&project, "PreToolUse", "Read", json!({ "file_path": "README" }));
        blocked(project.ringfence().args(["hook", "claude-code"]), read.to_string().as_bytes(), "");
    });
}

/// Promise: hooked-commands
#[test]
fn shell_outside_the_project_runs_nothing() {
    each_user(|user| {
        let project = project(user);
        let mut call = input(&project, "PreToolUse", "Bash", json!({ "command": "cat main.rs" }));
        call["cwd"] = json!(project.home().join("code/other"));
        let mut command = project.ringfence();
        let ran = TestOutput::run(
            command.args(["hook", "claude-code"]).env("CLAUDE_PROJECT_DIR", project.root()),
            call.to_string().as_bytes(),
        );
        assert_eq!(answer(&ran)["hookSpecificOutput"]["permissionDecision"], "deny");
        // A removed directory does not block the agent for ever.
        call["cwd"] = json!(project.at("gone"));
        hook(&project, &call).expect_status(2);
        let mut command = project.ringfence();
        let ran = TestOutput::run(
            command.args(["hook", "claude-code"]).env("CLAUDE_PROJECT_DIR", project.root()),
            call.to_string().as_bytes(),
        );
        assert_eq!(answer(&ran)["hookSpecificOutput"]["permissionDecision"], "allow");
        // Nor if the shell changes its directory in between.
        let line = rewritten(&project, "cat main.rs");
        let ran = TestOutput::run(
            shell(&project).args(["-c", &line]).current_dir(project.home().join("code/other")),
            b"",
        );
        ran.expect_status(125);
        assert!(!ran.text().contains(SECRET));
    });
}

#[test]
fn session_start_describes_the_sandbox() {
    let project = project(TestUser::User);
    let mut start = input(&project, "SessionStart", "", Value::Null);
    start["source"] = "startup".into();
    let report = answer(&hook(&project, &start));
    assert_eq!(report["hookSpecificOutput"]["hookEventName"], "SessionStart");
    let text = report["hookSpecificOutput"]["additionalContext"].as_str().unwrap();
    assert!(
        text.contains(&project.root().display().to_string()) && text.contains("Network: none"),
        "{text}"
    );
    project.write_at(
        &project.home().join(".config/ringfence/policy.toml"),
        "version = 1\nmode = \"full-access\"\n",
    );
    assert!(
        answer(&hook(&project, &start))["systemMessage"]
            .as_str()
            .unwrap()
            .contains("confines nothing")
    );
}

#[test]
fn defined_agent_has_only_its_tools() {
    each_user(|user| {
        let project = project(user);
        project.write(
            ".claude/agents/reviewer.md",
            "---\nname: reviewer\ntools: Read, Grep, Bash, Agent(helper, other)\n---\nLook.\n",
        );
        let of = |agent: &str, tool: &str, arguments: Value| {
            let mut input = input(&project, "PreToolUse", tool, arguments);
            input["agent_type"] = agent.into();
            answer(&hook(&project, &input))["hookSpecificOutput"].clone()
        };
        let file = json!({ "file_path": project.at("new"), "content": "x" });
        let denied = of("reviewer", "Write", file.clone());
        assert_eq!(denied["permissionDecision"], "deny", "{denied}");
        assert!(
            denied["permissionDecisionReason"]
                .as_str()
                .is_some_and(|reason| reason.contains("reviewer.md:3")),
            "{denied}"
        );
        assert_eq!(of("general-purpose", "Write", file), Value::Null);
        let line = of("reviewer", "Bash", json!({ "command": "echo x > made; echo tried" }))["updatedInput"]["command"].clone();
        let line = line.as_str().expect("a command").to_owned();
        assert!(line.contains("--agent 'reviewer'"), "{line}");
        assert_eq!(TestOutput::run(shell(&project).args(["-c", &line]), b"").text(), "tried");
        assert!(!project.has("made"));
        // An unreadable definition blocks the agents that it may define, and no others.
        project.write(".claude/agents/reviewer.md", "---\nname: reviewer\ntool: Read\n---\n");
        let mut wrong = input(&project, "PreToolUse", "Bash", json!({ "command": "true" }));
        wrong["agent_type"] = "reviewer".into();
        hook(&project, &wrong).expect_status(2);
        wrong["agent_type"] = "other".into();
        hook(&project, &wrong).ok();
    });
}

#[test]
fn writable_ringfence_binary_blocks_every_call() {
    each_user(|user| {
        let project = project(user);
        let inside = project.at("bin/ringfence");
        project.make_directories(inside.parent().expect("it has one"));
        fs::copy(env!("CARGO_BIN_EXE_ringfence-e2e"), &inside).expect("it can be copied");
        for (tool, arguments) in [
            ("Bash", json!({ "command": "true" })),
            ("Write", json!({ "file_path": inside, "content": "x" })),
            ("Read", json!({ "file_path": project.at("x") })),
        ] {
            let input = input(&project, "PreToolUse", tool, arguments);
            let said = answer(&TestOutput::run(
                project.command(inside.to_str().expect("text")).args(["hook", "claude-code"]),
                input.to_string().as_bytes(),
            ));
            assert_eq!(said["hookSpecificOutput"]["permissionDecision"], "deny", "{tool}: {said}");
        }
    });
}

#[test]
fn other_shell_tools_of_codex_are_blocked() {
    each_user(|user| {
        let project = project(user);
        for tool in
            ["exec_command", "shell_command", "local_shell", "unified_exec", "container.exec"]
        {
            let input = input(&project, "PreToolUse", tool, json!({ "cmd": "cat ~/.ssh/id_rsa" }))
                .to_string();
            let said = answer(&TestOutput::run(
                project.ringfence().args(["hook", "codex"]),
                input.as_bytes(),
            ));
            assert_eq!(said["hookSpecificOutput"]["permissionDecision"], "deny", "{tool}: {said}");
        }
    });
}
