//! The agent loop stops for the user's answer and continues with it.

use std::fs;
use std::path::Path;

use ringfence::tools::RoutedCall;
use ringfence::{AgentRunner, AgentStep, AskAnswer, SandboxConfig, SandboxManager};
use ringfence_testkit::{SECRET, TestOutput};
use serde_json::{Value, json};

use crate::stage::{home, part};

fn call(tool: &str, input: Value) -> RoutedCall {
    RoutedCall { tool: tool.into(), input }
}

fn shell(line: &str) -> RoutedCall {
    call("Bash", json!({ "command": line }))
}

fn runner(at: &Path) -> AgentRunner {
    AgentRunner::new(SandboxManager::new(SandboxConfig::default()).unwrap(), at)
}

#[track_caller]
fn completed(step: AgentStep) -> Value {
    match step {
        AgentStep::Completed(result) => result,
        other => panic!("not completed: {other:?}"),
    }
}

/// Runs the example on a script as a separate program, with the user's `answers`.
fn example(at: &Path, calls: &[Value], answers: &[&str]) -> Vec<Value> {
    let script: String = calls.iter().map(|call| format!("{call}\n")).collect();
    fs::write(at.join("calls.jsonl"), script).unwrap();
    let said = answers.iter().map(|answer| format!("{answer}\n")).collect::<String>();
    let ran = TestOutput::run(part("agent", at).arg("calls.jsonl"), said.as_bytes()).ok();
    ran.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

tests! { "agent":
    /// Promise: agent-loop
    #[test]
    fn example_asks_and_continues_with_each_of_four_answers(at) {
        let notes = home(at).join("notes.txt");
        let cat = json!({ "tool": "Bash", "input": { "command": "echo $KEPT; cat ~/notes.txt" } });
        let keep = json!({ "tool": "Bash", "input": { "command": "export KEPT=kept" } });
        let read = json!({ "tool": "read", "input": { "path": notes } });
        let write = json!({ "tool": "write", "input": { "path": "made", "content": "x" } });
        let policy = ringfence_testkit::own_policy(&home(at), at);

        // Denied: the model gets the denial, and continues.
        let steps = example(at, &[cat.clone(), write.clone()], &["deny"]);
        let statuses: Vec<&str> = steps.iter().map(|step| step["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["requires_permission", "denied", "completed"], "{steps:#?}");
        let permission = &steps[0]["permission"];
        assert_eq!((&permission["type"], &permission["resource"]), (&json!("sandbox_access"), &json!(notes)));
        assert_eq!(permission["options"], json!(["allow_once", "allow_session", "allow_permanent", "deny"]));
        assert!(steps[1]["reason"].as_str().unwrap().contains("the user denied it"));
        assert!(!steps.iter().any(|step| step.to_string().contains(SECRET)));
        assert_eq!(fs::read_to_string(at.join("made")).unwrap(), "x");

        // Once: that call only, and the next one asks again; the shell of other calls lives on.
        let steps = example(at, &[keep.clone(), cat.clone(), json!({ "tool": "Bash", "input": { "command": "echo $KEPT" } }), read.clone()], &["allow_once", "allow_once"]);
        let statuses: Vec<&str> = steps.iter().map(|step| step["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["completed", "requires_permission", "completed", "completed", "requires_permission", "completed"], "{steps:#?}");
        assert_eq!(steps[2]["result"]["stdout"], format!("\n{SECRET}"));
        assert_eq!(steps[3]["result"]["stdout"], "kept\n");
        assert_eq!(steps[5]["result"]["text"], SECRET);

        // For the session: by command and by tool.
        let steps = example(at, &[read.clone(), cat.clone(), read.clone()], &["allow_session"]);
        let statuses: Vec<&str> = steps.iter().map(|step| step["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["requires_permission", "completed", "completed", "completed"], "{steps:#?}");
        assert!(!policy.exists());

        // Permanently: a line in the user's policy file, and no further question.
        let steps = example(at, std::slice::from_ref(&cat), &["allow_permanent"]);
        assert_eq!((&steps[0]["status"], &steps[1]["status"]), (&json!("requires_permission"), &json!("completed")), "{steps:#?}");
        assert!(fs::read_to_string(&policy).unwrap().contains("~/notes.txt"));
        let steps = example(at, &[cat, read], &[]);
        assert!(steps.iter().all(|step| step["status"] == "completed"), "{steps:#?}");
        // All of it is in the audit log, with the agent's name.
        let log = fs::read_to_string(home(at).join(".local/state/ringfence/audit/00000001.jsonl")).unwrap();
        assert!(log.lines().all(|line| line.contains(r#""agent":"example""#)), "{log}");
    }

    /// Promise: agent-loop
    #[test]
    fn denial_that_no_answer_overrides_is_not_asked_about(at) {
        let mut config = SandboxConfig::default();
        config.provider_options.insert("disallowedTools".into(), json!(["Write"]));
        let mut runner = AgentRunner::new(SandboxManager::new(config).unwrap(), at);
        let step = runner.step(call("write", json!({ "path": "f", "content": "" }))).unwrap();
        assert!(matches!(&step, AgentStep::Denied { reason } if reason.contains("Write")), "{step:?}");
        let result = completed(runner.step(shell("echo x > f; echo x > ~/f")).unwrap());
        assert_ne!(result["exitCode"], 0);
        assert!(!at.join("f").exists());
        // A call that failed by itself reports its own error.
        let result = completed(runner.step(call("read", json!({ "path": "nothing" }))).unwrap());
        assert_eq!(result["error"]["code"], "not-found");
        let result = completed(runner.step(call("mcp__x__y", json!({}))).unwrap());
        assert_eq!(result["error"]["code"], "no-extension");
        runner.shutdown().unwrap();
    }

    /// Promise: agent-loop
    #[test]
    fn only_an_offered_option_is_accepted_and_only_once(at) {
        let mut runner = runner(at);
        assert_eq!(runner.answer(AskAnswer::Deny).err().unwrap().code(), "not-offered");
        let step = runner.step(shell("cat ~/notes.txt")).unwrap();
        assert!(matches!(step, AgentStep::RequiresPermission(_)), "{step:?}");
        let step = runner.answer(AskAnswer::AllowSession).unwrap();
        assert_eq!(completed(step)["stdout"], SECRET);
        assert_eq!(runner.answer(AskAnswer::AllowSession).err().unwrap().code(), "not-offered");
        // A new call drops the waiting one.
        assert!(matches!(runner.step(shell("cat ~/code/other/main.rs")).unwrap(), AgentStep::RequiresPermission(_)));
        completed(runner.step(shell("true")).unwrap());
        assert_eq!(runner.answer(AskAnswer::AllowSession).err().unwrap().code(), "not-offered");
        // Two denials are two questions.
        let both = "cat ~/code/other/main.rs && cat ~/.netrc";
        assert!(matches!(runner.step(shell(both)).unwrap(), AgentStep::RequiresPermission(_)));
        let step = runner.answer(AskAnswer::AllowSession).unwrap();
        assert!(matches!(&step, AgentStep::RequiresPermission(permission) if permission.resource.ends_with(".netrc")), "{step:?}");
        assert_eq!(completed(runner.answer(AskAnswer::AllowOnce).unwrap())["stdout"], format!("{SECRET}{SECRET}"));
        runner.shutdown().unwrap();
    }
}
