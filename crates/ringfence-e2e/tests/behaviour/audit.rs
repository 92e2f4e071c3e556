//! Every run is in the audit log, and the log is out of a command's reach.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestProject, becomes_true, each_user, finish, signal};
use serde_json::Value;

use crate::project;

fn directory(project: &TestProject) -> PathBuf {
    project.home().join(".local/state/ringfence/audit")
}

/// The records so far.
fn records(project: &TestProject) -> Vec<Value> {
    let text = fs::read_to_string(directory(project).join("00000001.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// `operation target result` of each record, with the project's directory left out.
fn short(project: &TestProject) -> Vec<String> {
    let root = format!("{}/", project.root().display());
    let word = |record: &Value, key: &str| record[key].as_str().unwrap_or("-").replace(&root, "");
    let line = |record: &Value| {
        format!(
            "{} {} {}",
            word(record, "operation"),
            word(record, "target"),
            word(record, "result")
        )
    };
    records(project).iter().map(line).collect()
}

/// Promise: recorded
#[test]
fn run_is_audited_at_start_and_end() {
    each_user(|user| {
        let project = project(user);
        let json = project.run(["--json", "--agent", "tester", "-c", "exit 3"]);
        let object: Value = serde_json::from_slice(&json.expect_status(3).stdout).unwrap();
        let records = records(&project);
        assert_eq!(
            short(&project),
            ["execute /bin/sh -c 'exit 3' allowed", "exit /bin/sh -c 'exit 3' allowed"]
        );
        for record in &records {
            let keys: Vec<&str> = record.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(
                keys[..7],
                ["timestamp", "agent", "session", "operation", "target", "result", "policy"]
            );
            assert_eq!(
                (&record["agent"], &record["session"]),
                (&Value::from("tester"), &object["session"])
            );
            assert_eq!(record["policy"], "workspace-write");
        }
        assert_eq!(records[0]["command"], serde_json::json!(["/bin/sh", "-c", "exit 3"]));
        assert_eq!(records[0]["cwd"], &*project.root().to_string_lossy());
        assert_eq!(
            (&records[1]["exitCode"], &records[1]["timedOut"]),
            (&Value::from(3), &Value::from(false))
        );
        assert_eq!(records[1]["previous"], records[0]["hash"]);
    });
}

/// Promise: recorded
#[test]
fn start_record_survives_a_killed_ringfence() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command
            .args(["run", "-c", "touch ready; sleep 60"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("ringfence starts");
        assert!(becomes_true(Duration::from_secs(20), || project.has("ready")));
        assert_eq!(short(&project), ["execute /bin/sh -c 'touch ready; sleep 60' allowed"]);
        signal(child.id(), 9);
        finish(child).expect_status(137);
        project.run(["--", "true"]).ok();
        assert_eq!(short(&project)[1..], ["execute true allowed", "exit true allowed"]);
    });
}

/// Promise: recorded
#[test]
fn denials_before_an_internal_error_are_audited() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.args(["run", "-c", "echo x > .mcp.json; touch ready; sleep 60"]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ringfence starts");
        assert!(becomes_true(Duration::from_secs(20), || project.has("ready")));
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id()))
            .expect("it has children");
        let supervisor = children
            .split_whitespace()
            .next()
            .and_then(|pid| pid.parse().ok())
            .expect("the supervisor is one of them");
        signal(supervisor, 9);
        finish(child).expect_status(125);
        let lines = short(&project);
        assert_eq!((lines.len(), lines[1].as_str()), (3, "create .mcp.json blocked"), "{lines:?}");
        let ended = &records(&project)[2];
        assert_eq!(
            (&ended["result"], &ended["denials"], &ended["exitCode"]),
            (&"failed".into(), &1.into(), &125.into()),
            "{ended}"
        );
    });
}

/// Promise: recorded
#[test]
fn denials_and_quarantined_files_are_audited() {
    each_user(|user| {
        let project = project(user);
        project.sh("echo x > .mcp.json; echo x > .mcp.json; git init -q made && echo 'echo' > made/.git/hooks/pre-commit");
        let lines = short(&project);
        assert_eq!(lines[1], "create .mcp.json blocked");
        assert_eq!(lines[2], "quarantine made/.git/hooks/pre-commit blocked");
        assert!(lines[3].starts_with("exit ") && lines.len() == 4, "{lines:?}");
        let denial = &records(&project)[1];
        assert_eq!(
            (&denial["count"], &denial["evidence"], &denial["origin"]),
            (&2.into(), &"kernel".into(), &"built in".into())
        );
        assert!(
            denial["program"].as_str().is_some_and(|program| program.ends_with("sh")),
            "{denial}"
        );
        assert_eq!(denial["reason"], ".mcp.json (built in)");
    });
}

/// Promise: recorded
#[test]
fn runs_without_a_sandbox_are_audited() {
    each_user(|user| {
        let project = project(user);
        project.run(["--mode", "full-access", "--", "true"]).ok();
        assert_eq!(short(&project), ["execute true allowed", "exit true allowed"]);
        let first = &records(&project)[0];
        assert_eq!((&first["policy"], &first["confined"]), (&"full-access".into(), &false.into()));
    });
}

/// Promise: recorded
#[test]
fn failed_starts_are_audited() {
    each_user(|user| {
        let project = project(user);
        project.run(["--", "no-such-program"]).expect_status(127);
        assert_eq!(
            short(&project),
            ["execute no-such-program allowed", "exit no-such-program failed"]
        );
        assert_eq!(records(&project)[1]["error"], "command-not-executed");
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nmode = \"full\"\ndeny = [\"a.org\"]\n",
        );
        let ran = project.run(["--json", "--", "touch", "ran"]);
        let object: Value = serde_json::from_slice(&ran.expect_status(125).stdout).unwrap();
        let last = records(&project).pop().unwrap();
        assert_eq!((&last["operation"], &last["result"]), (&"execute".into(), &"blocked".into()));
        assert_eq!(last["session"], object["session"]);
        assert!(
            last["reason"].as_str().is_some_and(|reason| reason.contains("network.deny")),
            "{last}"
        );
        assert!(
            last["policyFiles"][0]
                .as_str()
                .is_some_and(|file| file.ends_with("home/.config/ringfence/policy.toml")),
            "{last}"
        );
        assert!(!project.has("ran"));
    });
}

#[test]
fn agent_name_comes_from_environment_or_flag() {
    each_user(|user| {
        let project = project(user);
        TestOutput::run(
            project.ringfence().env("RINGFENCE_AGENT", "from\nenv").args(["run", "--", "true"]),
            b"",
        )
        .ok();
        TestOutput::run(
            project
                .ringfence()
                .env("RINGFENCE_AGENT", "env")
                .args(["run", "--agent", "flag", "--", "true"]),
            b"",
        )
        .ok();
        project.run(["--", "true"]).ok();
        let agents: Vec<Value> =
            records(&project).iter().step_by(2).map(|record| record["agent"].clone()).collect();
        assert_eq!(agents, [Value::from("from\nenv"), Value::from("flag"), Value::Null]);
    });
}

/// Promise: hostile-log-text
#[test]
fn hostile_command_line_is_audited_exactly() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    each_user(|user| {
        let project = project(user);
        let words = ["--", "/bin/echo", "two\nlines \u{1b}[31m\u{202e}"].map(OsStr::new);
        project.run(words.into_iter().chain([OsStr::from_bytes(b"\xff\xfe")])).ok();
        let first = &records(&project)[0];
        assert_eq!(
            first["command"],
            serde_json::json!(["/bin/echo", "two\nlines \u{1b}[31m\u{202e}", "\u{fffd}\u{fffd}"])
        );
        assert_eq!(first["commandBase64"][2], "//4=");
        let bytes = fs::read(directory(&project).join("00000001.jsonl")).unwrap();
        assert!(!bytes.contains(&0x1b) && !String::from_utf8(bytes).unwrap().contains('\u{202e}'));
    });
}

/// Runs `ringfence` in a shell with its own mount namespace, after `mounts`.
fn after(project: &TestProject, mounts: &str, words: &str) -> TestOutput {
    let line =
        format!("unshare -Urm sh -ec '{mounts}; exec {} {words}'", project.binary().display());
    project.sh_bare(&line)
}

/// Promise: no-record-no-run
#[test]
fn nothing_runs_if_the_audit_log_cannot_be_written() {
    each_user(|user| {
        let project = project(user);
        let state = project.home().join(".local/state");
        let read_only =
            format!("mount --bind {0} {0}; mount -o remount,bind,ro {0}", state.display());
        let full = format!(
            "mount -t tmpfs -o size=16k tmpfs {0}; head -c 16384 /dev/zero > {0}/full || :",
            state.display()
        );
        for (mounts, code) in [(&read_only, "audit-unusable"), (&full, "audit-full")] {
            let ran = after(&project, mounts, "run --json --mode full-access -- touch ran");
            ran.expect_status(125);
            assert!(!project.has("ran"));
            assert!(
                ran.text().contains(code)
                    && ran.stderr_text().contains("hint: ")
                    && ran.stderr_text().contains("on-error"),
                "{}",
                ran.stderr_text()
            );
        }
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[audit]\non-error = \"run\"\n",
        );
        for mounts in [&read_only, &full] {
            let ran = after(&project, mounts, "run --mode full-access -- touch ran");
            ran.ok();
            assert!(
                project.has("ran") && ran.stderr_text().contains("not recorded in the audit log"),
                "{}",
                ran.stderr_text()
            );
            fs::remove_file(project.at("ran")).unwrap();
        }
    });
}

/// Promise: no-record-no-run
#[test]
fn audit_log_writable_by_others_or_linked_is_refused() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    each_user(|user| {
        let project = project(user);
        project.run(["--", "true"]).ok();
        fs::set_permissions(directory(&project), fs::Permissions::from_mode(0o777)).unwrap();
        let ran = project.run(["--", "touch", "ran"]);
        ran.expect_status(125);
        assert!(ran.stderr_text().contains("can be written by others"), "{}", ran.stderr_text());
        fs::remove_dir_all(directory(&project)).unwrap();
        symlink(project.root(), directory(&project)).unwrap();
        project.run(["--", "touch", "ran"]).expect_status(125);
        assert!(!project.has("ran") && !project.has("head"));
    });
}

/// Promise: log-outside
#[test]
fn audit_log_is_unreachable_inside() {
    each_user(|user| {
        let project = project(user);
        project.run(["--", "true"]).ok();
        let log = "HOME/.local/state/ringfence/audit/00000001.jsonl";
        project.tries(&format!("read('{log}')")).inside(&["ENOENT"]).bare_ok();
        let opened = ["--write", "~/.local/state"];
        project.tries(&format!("read('{log}')")).with(&opened).inside(&["EACCES"]);
        project.tries(&format!("open('{log}', 'a')")).with(&opened).inside(&["EACCES"]);
        project
            .tries("os.rename('HOME/.local/state/ringfence', 'HOME/.local/state/x')")
            .with(&opened)
            .inside(&["EACCES", "EBUSY", "EXDEV"]);
        project
            .tries("open('HOME/.local/state/ringfence/x', 'w')")
            .with(&opened)
            .inside(&["EACCES"]);
        let named = ["--write", "~/.local/state/ringfence/audit"];
        project.tries(&format!("open('{log}', 'a')")).with(&named).inside(&["EACCES", "ENOENT"]);
    });
}

/// Promise: log-outside
#[test]
fn state_directory_in_the_project_is_refused() {
    each_user(|user| {
        let project = project(user);
        let run = |state: PathBuf| {
            TestOutput::run(
                project.ringfence().env("XDG_STATE_HOME", state).args(["run", "--", "true"]),
                b"",
            )
        };
        run(project.at("state")).ok();
        assert!(!project.has("state") && records(&project).len() == 2);
        run(project.home().join("elsewhere/new")).ok();
        assert!(
            project.home().join("elsewhere/new/ringfence/audit/head").exists()
                && records(&project).len() == 2
        );
    });
}
