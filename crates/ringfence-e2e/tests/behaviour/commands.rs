//! A command that a command rule refuses is never started, in any frontend, and each frontend names
//! the rule.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user};
use serde_json::Value;

use crate::project;
use crate::sessions::TestSession;

const POLICY: &str =
    "version = 1\n[commands]\ndeny = [\n  \"git push:*\",\n  \"touch started*\",\n]\n";

fn guarded(user: TestUser, policy: &str) -> TestProject {
    let project = project(user);
    project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
    project
}

#[track_caller]
fn json(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

/// Promise: command-rules
#[test]
fn refused_command_never_starts() {
    each_user(|user| {
        let project = guarded(user, POLICY);
        let refused: &[&[&str]] = &[
            &["-c", "touch started"],
            &["-c", "echo before > began; touch started"],
            &["-c", "echo $(touch started)"],
            &["-c", "FOO=bar timeout 30 nice env -i touch started"],
            &["-c", "t'o'uch \"started\""],
            &["-c", "sh -c 'touch started'"],
            &["-c", "x=touch; $x started"],
            &["-c", "touch 'start"],
            &["--", "touch", "started"],
            &["--", "/usr/bin/touch", "started"],
            &["--", "env", "touch", "started"],
            &["--", "bash", "-c", "true && touch started"],
            &["--mode", "full-access", "--", "touch", "started"],
        ];
        for words in refused {
            let ran = project.run(words.iter());
            ran.expect_status(126);
            assert!(
                ran.stderr_text().contains("command not started: "),
                "{user}: {words:?}: {}",
                ran.stderr_text()
            );
            assert!(
                !project.at("started").exists() && !project.at("began").exists(),
                "{user}: {words:?} was started"
            );
        }
        for words in [
            &["-c", "touch other && git status; true"][..],
            &["--", "touch", "other"],
            &["-c", "echo 'touch started'"],
        ] {
            project.run(words.iter()).ok();
        }
        assert!(project.at("other").exists());
    });
}

/// Promise: command-rules
#[test]
fn refusal_names_rule_reason_and_line() {
    each_user(|user| {
        let project = guarded(user, POLICY);
        let ran = project.run(["--json", "-c", "true && git push --force"]);
        ran.expect_status(126);
        let said = json(&ran);
        assert_eq!(
            (&said["exitCode"], &said["blocked"], &said["stdout"]),
            (&126.into(), &true.into(), &"".into()),
            "{said}"
        );
        let file = project.home().join(".config/ringfence/policy.toml").display().to_string();
        assert_eq!(said["blockedReason"], format!("deny git push:* ({file}:4 (user policy))"));
        let denial = &said["denials"][0];
        assert_eq!(
            (&denial["operation"], &denial["evidence"], &denial["target"]),
            (&"command".into(), &"guard".into(), &"git push --force".into())
        );
        let refusal = &said["refusal"];
        assert_eq!((&refusal["position"], &refusal["length"]), (&8.into(), &16.into()), "{said}");
        assert_eq!(refusal["reason"], "`git push --force` is denied");
        assert_eq!(said["permission"], Value::Null);
        // The same in the audit log, and in `explain --last`.
        let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
        let records: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<_> = records
            .iter()
            .map(|record| {
                (record["operation"].as_str().unwrap(), record["result"].as_str().unwrap())
            })
            .collect();
        assert_eq!(events, [("execute", "blocked"), ("command", "blocked"), ("exit", "blocked")]);
        assert_eq!(
            (&records[1]["policy"], &records[2]["exitCode"]),
            (&"deny git push:*".into(), &126.into())
        );
        let last = TestOutput::run(project.ringfence().args(["explain", "--last"]), b"");
        assert!(
            last.expect_status(1)
                .text()
                .contains("the command was not started: `git push --force` is denied"),
            "{}",
            last.text()
        );
        TestOutput::run(project.ringfence().args(["log", "--verify"]), b"").ok();
    });
}

/// Promise: command-rules
#[test]
fn session_continues_after_a_refused_command() {
    each_user(|user| {
        let project = guarded(user, &format!("{POLICY}doubt = \"refuse\"\n"));
        let session = TestSession::start_by(project, TestProject::ringfence, &[]);
        session.exec("cd src; x=1").ok();
        let refused = session.exec("touch started; x=2");
        assert!(
            refused.expect_status(126).stderr_text().contains("`touch started` is denied"),
            "{}",
            refused.stderr_text()
        );
        let said = session.json("[[ -n x ]] && g() { git \"$@\"; }");
        assert_eq!((&said["exitCode"], &said["blocked"]), (&126.into(), &true.into()), "{said}");
        assert_eq!(said["refusal"]["position"], 20, "{said}");
        assert_eq!(
            session.exec("[[ $x == 1 ]] && pwd").ok(),
            session.project.at("src").display().to_string()
        );
        let second = session.words(&["exec", &session.id, "--", "touch", "started"]);
        assert!(
            second.expect_status(126).stderr_text().contains("`touch started` is denied"),
            "{}",
            second.stderr_text()
        );
        assert!(
            !session.project.at("src/started").exists() && !session.project.at("started").exists()
        );
        // Rules written meanwhile hold for the next command.
        let file = session.project.home().join(".config/ringfence/policy.toml");
        session.project.write_at(&file, "version = 1\n[commands]\nallow-binaries = [\"pwd\"]\n");
        session.exec("pwd").ok();
        session.exec("ls").expect_status(126);
    });
}

/// Promise: command-rules
#[test]
fn strict_list_runs_only_listed_commands() {
    let strict = "version = 1\n[commands]\nallow-binaries = [\"@strict\"]\ndeny-arguments = [\"@strict\"]\nanchor-arguments = \".\"\n";
    each_user(|user| {
        let project = guarded(user, strict);
        let inside = project.at("README").display().to_string();
        for line in [
            "ls",
            "cat README | grep hello",
            "python3 -c 'print(1)'",
            &format!("cat {inside}"),
            "echo x > out && rm out",
            "ls *.rs",
        ] {
            project.run(["-c", line]).ok();
        }
        for line in [
            "git status",
            "cat ../other/main.rs",
            "cat /etc/hostname",
            "ls /usr",
            "PATH=. ls",
            "./ls",
            "env ls",
            "cat $HOME/notes.txt",
            "find . -exec id ;",
            "eval ls",
            "bash -c 'id'",
            "cat < /usr/bin/id",
            "ls --privileged",
            "ls $(id)",
        ] {
            project.run(["-c", line]).expect_status(126);
        }
    });
}

#[test]
fn explain_shows_how_a_command_line_is_parsed() {
    each_user(|user| {
        let project = guarded(user, &format!("{POLICY}excluded = [\"docker*\"]\n"));
        let explain =
            |words: &[&str]| TestOutput::run(project.ringfence().arg("explain").args(words), b"");
        let text =
            explain(&["command", "timeout 3 docker ps && touch started"]).expect_status(1).text();
        for expected in [
            "part    docker ps (at character 1)",
            "without timeout 3",
            "deny touch started*: refuses",
            "deny git push:*: passes",
            "outside no: ",
        ] {
            assert!(text.contains(expected), "{user}: {expected} is not in {text}");
        }
        let said = json(explain(&["--json", "command", "nice docker ps"]).expect_status(0));
        assert_eq!(
            (&said["allowed"], &said["excluded"]["outside"]),
            (&true.into(), &true.into()),
            "{said}"
        );
        assert_eq!(said["parts"][0]["wrappers"], serde_json::json!(["nice"]));
    });
}

/// Promise: everyday-lines
#[test]
fn init_policy_allows_everyday_lines_and_refuses_disguised_ones() {
    each_user(|user| {
        let project = project(user);
        project.write("package.json", "{}");
        project.write("Cargo.toml", "[package]\nname = \"x\"\n");
        project.write("env.sh", "export LOADED=yes\n");
        project.write("bin/tool", "#!/bin/sh\necho tool ran\n");
        TestOutput::run(project.ringfence().args(["init", "--yes"]), b"").ok();
        for (line, printed) in [
            (r#"T="$PWD"; chmod +x bin/tool; "$T/bin/tool""#, "tool ran"),
            (r#"$(pwd)/bin/tool"#, "tool ran"),
            (r#"eval "$(cat env.sh)"; echo "$LOADED""#, "yes"),
            (r#". ./env.sh && echo "$LOADED""#, "yes"),
            (r#"cat env.sh - <<EOF | sh && echo over\necho from the pipe\nEOF"#, "from the pipe"),
            (r#"[[ -f package.json ]] 2>/dev/null; echo over"#, "over"),
        ] {
            let line = line.replace("\\n", "\n");
            assert!(project.run(["-c", &line]).ok().contains(printed), "{user}: {line}");
        }
        let bash = project
            .run([
                "--",
                "/bin/bash",
                "-c",
                "a=(one two); for ((i=0;i<2;i++)); do echo \"${a[i]}\"; done",
            ])
            .ok();
        assert!(bash.contains("two"), "{bash}");
        for line in [
            "npm publish",
            "x=publish; npm $x",
            "echo bnBtIHB1Ymxpc2g= | base64 -d | sh",
            "a=car; b=go; $a$b publish",
        ] {
            let ran = project.run(["-c", line]);
            assert!(
                ran.expect_status(126).stderr_text().contains("denied"),
                "{user}: {line}: {}",
                ran.stderr_text()
            );
        }
        let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
        let doubt = log
            .lines()
            .find(|line| line.contains("\"execute\"") && line.contains("$(pwd)/bin/tool"));
        assert!(log.contains("in doubt: ") && doubt.is_some(), "{log}");
        let shell =
            TestOutput::run(project.ringfence().args(["shell"]), b"echo in the shell\nexit\n");
        assert!(shell.expect_status(0).text().contains("in the shell"), "{}", shell.stderr_text());
    });
}

#[path = "../../../ringfence-cmdline/tests/commands/everyday.rs"]
mod everyday;

#[test]
fn init_policy_runs_everyday_lines_and_starts_no_disguised_ones() {
    each_user(|user| {
        let project = project(user);
        project.write("package.json", "{}");
        project.write("Cargo.toml", "[package]\nname = \"x\"\n");
        project.write("pyproject.toml", "[project]\nname = \"x\"\n");
        TestOutput::run(project.ringfence().args(["init", "--yes"]), b"").ok();
        for line in everyday::EVERYDAY {
            TestOutput::run(project.ringfence().args(["explain", "command", line]), b"")
                .expect_status(0);
        }
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[commands]\ndeny = [\"curl:*\"]\n",
        );
        for line in everyday::DISGUISED.iter().step_by(3) {
            project.run(["--shell", "bash", "-c", line]).expect_status(126);
        }
    });
}
