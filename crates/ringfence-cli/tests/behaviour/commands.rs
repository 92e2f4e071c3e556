//! A command that a rule on its text refuses is never started, at any door, and every door says
//! by which rule.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user};
use serde_json::Value;

use crate::project;
use crate::sessions::Session;

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
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.talk()))
}

/// Promise: P75
#[test]
fn a_refused_command_never_starts() {
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
            ran.ends(126);
            assert!(
                ran.talk().contains("the command was not started: "),
                "{user}: {words:?}: {}",
                ran.talk()
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

/// Promise: P75
#[test]
fn a_refusal_has_its_rule_its_reason_and_its_place() {
    each_user(|user| {
        let project = guarded(user, POLICY);
        let ran = project.run(["--json", "-c", "true && git push --force"]);
        ran.ends(126);
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
        // The same in the log, and what the log says of the last run.
        let log = TestOutput::of(project.ringfence().args(["log", "--json"]), b"").ok();
        let records: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = records
            .iter()
            .map(|record| {
                (record["operation"].as_str().unwrap(), record["result"].as_str().unwrap())
            })
            .collect();
        assert_eq!(told, [("execute", "blocked"), ("command", "blocked"), ("exit", "blocked")]);
        assert_eq!(
            (&records[1]["policy"], &records[2]["exitCode"]),
            (&"deny git push:*".into(), &126.into())
        );
        let last = TestOutput::of(project.ringfence().args(["explain", "--last"]), b"");
        assert!(
            last.ends(1).text().contains("it was not started: `git push --force` is denied"),
            "{}",
            last.text()
        );
        TestOutput::of(project.ringfence().args(["log", "--verify"]), b"").ok();
    });
}

/// Promise: P75
#[test]
fn a_session_refuses_and_goes_on() {
    each_user(|user| {
        let project = guarded(user, &format!("{POLICY}doubt = \"refuse\"\n"));
        let session = Session::start_by(project, TestProject::ringfence, &[]);
        session.exec("cd src; x=1").ok();
        let refused = session.exec("touch started; x=2");
        assert!(
            refused.ends(126).talk().contains("`touch started` is denied"),
            "{}",
            refused.talk()
        );
        let said = session.json("[[ -n x ]] && g() { git \"$@\"; }");
        assert_eq!((&said["exitCode"], &said["blocked"]), (&126.into(), &true.into()), "{said}");
        assert_eq!(said["refusal"]["position"], 20, "{said}");
        assert_eq!(
            session.exec("[[ $x == 1 ]] && pwd").ok(),
            session.project.at("src").display().to_string()
        );
        let beside = session.words(&["exec", &session.id, "--", "touch", "started"]);
        assert!(beside.ends(126).talk().contains("`touch started` is denied"), "{}", beside.talk());
        assert!(
            !session.project.at("src/started").exists() && !session.project.at("started").exists()
        );
        // Rules that are written meanwhile hold for the next command.
        let file = session.project.home().join(".config/ringfence/policy.toml");
        session.project.write_at(&file, "version = 1\n[commands]\nallow-binaries = [\"pwd\"]\n");
        session.exec("pwd").ok();
        session.exec("ls").ends(126);
    });
}

/// Promise: P75
#[test]
fn the_strict_list_lets_nothing_else_run() {
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
            project.run(["-c", line]).ends(126);
        }
    });
}

#[test]
fn explain_shows_how_a_line_is_read() {
    each_user(|user| {
        let project = guarded(user, &format!("{POLICY}excluded = [\"docker*\"]\n"));
        let explain =
            |words: &[&str]| TestOutput::of(project.ringfence().arg("explain").args(words), b"");
        let text = explain(&["command", "timeout 3 docker ps && touch started"]).ends(1).text();
        for expected in [
            "part    docker ps (at character 1)",
            "without timeout 3",
            "deny touch started*: refuses",
            "deny git push:*: passes",
            "outside no: ",
        ] {
            assert!(text.contains(expected), "{user}: {expected} is not in {text}");
        }
        let said = json(explain(&["--json", "command", "nice docker ps"]).ends(0));
        assert_eq!(
            (&said["allowed"], &said["excluded"]["outside"]),
            (&true.into(), &true.into()),
            "{said}"
        );
        assert_eq!(said["parts"][0]["wrappers"], serde_json::json!(["nice"]));
    });
}

/// Promise: P160
#[test]
fn policy_that_init_writes_lets_everyday_lines_run_and_refuses_disguises() {
    each_user(|user| {
        let project = project(user);
        project.write("package.json", "{}");
        project.write("Cargo.toml", "[package]\nname = \"x\"\n");
        project.write("env.sh", "export LOADED=yes\n");
        project.write("bin/tool", "#!/bin/sh\necho tool ran\n");
        TestOutput::of(project.ringfence().args(["init", "--yes"]), b"").ok();
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
            assert!(ran.ends(126).talk().contains("denied"), "{user}: {line}: {}", ran.talk());
        }
        let log = TestOutput::of(project.ringfence().args(["log", "--json"]), b"").ok();
        let doubt = log
            .lines()
            .find(|line| line.contains("\"execute\"") && line.contains("$(pwd)/bin/tool"));
        assert!(log.contains("in doubt: ") && doubt.is_some(), "{log}");
        let shell =
            TestOutput::of(project.ringfence().args(["shell"]), b"echo in the shell\nexit\n");
        assert!(shell.ends(0).text().contains("in the shell"), "{}", shell.talk());
    });
}

#[path = "../../../ringfence-policy/tests/commands/everyday.rs"]
mod everyday;

#[test]
fn everyday_lines_pass_under_the_policy_of_init_and_disguises_are_not_started() {
    each_user(|user| {
        let project = project(user);
        project.write("package.json", "{}");
        project.write("Cargo.toml", "[package]\nname = \"x\"\n");
        project.write("pyproject.toml", "[project]\nname = \"x\"\n");
        TestOutput::of(project.ringfence().args(["init", "--yes"]), b"").ok();
        for line in everyday::EVERYDAY {
            TestOutput::of(project.ringfence().args(["explain", "command", line]), b"").ends(0);
        }
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[commands]\ndeny = [\"curl:*\"]\n",
        );
        for line in everyday::DISGUISED.iter().step_by(3) {
            project.run(["--shell", "bash", "-c", line]).ends(126);
        }
    });
}
