//! Hooks: what an agent is told of its calls, and what its commands can do then.

use ringfence_testkit::{Project, Ran, SECRET, each_user};
use serde_json::{Value, json};

use crate::project;

/// The input of a hook of Claude Code.
fn input(project: &Project, event: &str, tool: &str, arguments: Value) -> Value {
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

fn hook(project: &Project, input: &Value) -> Ran {
    Ran::of(project.ringfence().args(["hook", "claude-code"]), input.to_string().as_bytes())
}

/// What is said of a tool that is about to be used.
#[track_caller]
fn said(project: &Project, tool: &str, arguments: Value) -> Value {
    let ran = hook(project, &input(project, "PreToolUse", tool, arguments));
    ran.ok();
    let answer: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{:?}", ran.text()));
    assert_eq!(answer["hookSpecificOutput"]["hookEventName"], "PreToolUse", "{answer}");
    answer["hookSpecificOutput"].clone()
}

/// The line that is run in the place of `line`, run as the agent would.
#[track_caller]
fn confined(project: &Project, line: &str) -> Ran {
    let said = said(project, "Bash", json!({ "command": line, "description": "try it", "timeout": 120_000, "run_in_background": false }));
    assert_eq!(said["permissionDecision"], "allow", "{said}");
    for (key, expect) in [("description", json!("try it")), ("timeout", json!(120_000)), ("run_in_background", json!(false))] {
        assert_eq!(said["updatedInput"][key], expect, "the whole input is replaced, so all of it must be there");
    }
    let command = said["updatedInput"]["command"].as_str().expect("a command");
    Ran::of(project.command("bash").args(["-c", command]), b"")
}

#[test]
fn a_rewritten_command_is_confined() {
    each_user(|user| {
        let project = project(user);
        confined(&project, "echo made > made && cat README").ok();
        assert_eq!(project.read("made").as_deref(), Some("made\n"));
        for line in ["cat .env", "cat ~/.ssh/id_rsa", "cat ../other/main.rs", "echo x > ~/x", "cat .env; cat .env; cat $(echo .env)"] {
            let ran = confined(&project, line);
            assert!(ran.status != 0 && !ran.text().contains(SECRET), "{line}: {}", ran.text());
        }
        confined(&project, "exit 7").ends(7);
    });
}
