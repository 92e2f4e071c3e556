//! The choice of the sandbox provider, and `process`, which confines nothing.

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user};
use serde_json::Value;

use crate::agents::records;
use crate::project as plain_project;
use crate::sessions::TestSession;

const PROCESS: &str = "version = 1\n[sandbox]\nprovider = \"process\"\n";

/// A project with a user policy.
fn project(user: TestUser, policy: &str) -> TestProject {
    let project = plain_project(user);
    project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
    project
}

fn refused(ran: &TestOutput, expect: &str) {
    let stderr = ran.expect_status(125).stderr_text();
    assert!(stderr.contains(expect) && stderr.contains("hint: "), "{stderr}");
}

/// The records of commands that started, newest last.
fn started(project: &TestProject) -> Vec<Value> {
    records(project).into_iter().filter(|record| record["operation"] == "execute").collect()
}

#[test]
fn unknown_provider_or_option_runs_nothing() {
    each_user(|user| {
        let project = plain_project(user);
        let touch = |flags: &[&str]| project.run(flags.iter().copied().chain(["--", "touch", "x"]));
        let unknown = "Unknown sandbox provider: \"x\". Available: [local, process]";
        refused(&touch(&["--provider", "x"]), unknown);
        let json: Value = serde_json::from_str(&touch(&["--json", "--provider", "x"]).text())
            .expect("one object");
        assert_eq!(json["error"]["code"], "unknown-provider", "{json}");
        refused(
            &touch(&["--provider", "local:a=b"]),
            "unknown option `a` of the sandbox provider `local`; known options: engine",
        );
        touch(&["--provider", "a b"]).expect_status(125);
        project.write("p.toml", "version = 1\n[sandbox]\nprovider = \"a b\"\n");
        refused(&touch(&["--policy", "p.toml"]), "p.toml:3");
        project.write("q.toml", "version = 1\n[sandbox]\nprovider = \"x\"\n");
        refused(&touch(&["--policy", "q.toml"]), unknown);
        let check =
            |file: &str| TestOutput::run(project.ringfence().args(["policy", "check", file]), b"");
        refused(&check("q.toml"), unknown);
        project.write("q.toml", PROCESS);
        check("q.toml").ok();
        assert!(!project.has("x"));
    });
}

/// Promise: no-unconfined-run
#[test]
fn process_provider_refuses_every_policy_that_confines() {
    each_user(|user| {
        let project = project(user, PROCESS);
        let ran = project.run(["--", "touch", "ran"]);
        refused(&ran, "cannot be enforced on this host: filesystem, processes, network");
        assert!(!ran.stderr_text().contains("all your permissions"), "{}", ran.stderr_text());
        refused(&project.run(["--provider", "process", "--", "touch", "ran"]), "filesystem");
        assert!(!project.has("ran"));
        // A flag takes precedence over the policy.
        assert_eq!(project.run(["--provider", "local", "-c", "cat .env; echo over"]).ok(), "over");
        let shown = TestOutput::run(project.ringfence().args(["policy", "show", "--origin"]), b"");
        let shown = shown.ok();
        let line = shown.lines().find(|line| line.contains("sandbox.provider")).expect("a line");
        assert!(line.contains("= process") && line.contains("policy.toml:3"), "{line}");
    });
}

/// Promise: no-unconfined-run
#[test]
fn accepted_gaps_run_the_command_with_warnings_and_a_record() {
    each_user(|user| {
        let project = project(user, PROCESS);
        let ran = project.run(["--on-gap", "run", "-c", "cat .env; exit 3"]);
        let stderr = ran.expect_status(3).stderr_text();
        assert_eq!(ran.text(), SECRET);
        for warning in ["nothing is confined", "not enforced: filesystem", "not enforced: network"]
        {
            assert!(stderr.contains(warning), "{warning}: {stderr}");
        }
        let record = started(&project).pop().expect("a record");
        assert_eq!(record["confined"], false, "{record}");
        assert_eq!(record["gaps"][0], "filesystem", "{record}");
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("not confined: sandbox.provider = process ("), "{record}");
        let slow = ["--on-gap", "run", "--timeout", "300ms", "--", "sleep", "20"];
        project.run(slow).expect_status(124);
        project.run(["--on-gap", "run", "-c", "kill -9 $$"]).expect_status(137);
        project.run(["--on-gap", "run", "--", "./src"]).expect_status(126);
        project.run(["--on-gap", "run", "--", "no-such-program"]).expect_status(127);
    });
}

/// Promise: no-unconfined-run
#[test]
fn repository_cannot_choose_a_provider() {
    each_user(|user| {
        let project = plain_project(user);
        project.write(".ringfence/policy.toml", PROCESS);
        let ran = project.run(["--on-gap", "run", "-c", "cat .env; echo over"]);
        assert_eq!(ran.ok(), "over");
        assert!(ran.stderr_text().contains("`sandbox.provider` is ignored"));
        assert_eq!(started(&project).pop().expect("a record")["confined"], true);
    });
}

/// Promise: no-unconfined-run
#[test]
fn required_sandbox_refuses_the_process_provider() {
    each_user(|user| {
        let project = project(user, PROCESS);
        project.write(
            ".ringfence/agents/worker.md",
            "---\nname: worker\ncommand: [touch, ran]\n---\n",
        );
        let agent = |words: &[&str]| {
            let flags = ["agent", "run", "worker", "--on-gap", "run"];
            TestOutput::run(project.ringfence().args(flags).args(words), b"")
        };
        let expect = "confines nothing, and a sandbox is required";
        refused(&agent(&["--sandbox", "--", "touch", "ran"]), expect);
        // The project wrote this command.
        refused(&agent(&[]), expect);
        let named = ["--engine", "namespaces", "--on-gap", "run", "--", "touch", "ran"];
        refused(&project.run(named), "`--engine namespaces` requires the provider `local`");
        assert!(!project.has("ran"));
    });
}

/// Also without a policy that confines, as before.
#[test]
fn early_sandbox_ends_before_an_unconfined_command_starts() {
    each_user(|user| {
        let project = plain_project(user);
        let children = "cat /proc/$PPID/task/$PPID/children | wc -w";
        for flags in [["--provider", "process"], ["--mode", "full-access"]] {
            let ran = project.run(flags.into_iter().chain(["--on-gap", "run", "-c", children]));
            assert_eq!(ran.ok(), "1", "{flags:?}");
        }
    });
}

/// Promise: no-unconfined-run
#[test]
fn session_of_the_process_provider_is_recorded_as_unconfined() {
    each_user(|user| {
        let refused_one =
            TestOutput::run(project(user, PROCESS).ringfence().args(["session", "start"]), b"");
        refused(&refused_one, "filesystem");
        let session = TestSession::start_with(user, &["--provider", "process", "--on-gap", "run"]);
        session.exec("cd src; x=1").ok();
        let ran = session.exec("cat ../.env; echo; echo $x");
        assert_eq!(ran.ok(), format!("{SECRET}\n1"));
        let json = session.json("exit 4");
        assert_eq!(json["exitCode"], 4, "{json}");
        assert!(json["gaps"].to_string().contains("filesystem"), "{json}");
        let timeout = ["exec", &session.id, "--timeout", "300ms", "-c", "sleep 20"];
        session.words(&timeout).expect_status(124);
        let records = started(&session.project);
        assert!(records.len() >= 4 && records.iter().all(|one| one["confined"] == false));
    });
}
