//! `run --ask`: a denied access waits for the user's answer, and follows it.

use ringfence_testkit::{TestOutput, TestProject, each_user, fuse_for_all};
use serde_json::Value;

use crate::project;

/// Runs a line on a terminal while `script` types for the user; its output goes to `out`.
#[track_caller]
fn check(project: &TestProject, line: &str, script: &str, out: &str) {
    let script = format!("{script}\ns = wait(); print(os.WEXITSTATUS(s))");
    let ran = project
        .run_on_terminal(&["--ask", "-c", &format!("{{ {line}; }} > out 2>&1; exit 7")], &script);
    assert_eq!(ran.ok(), "7", "{line}");
    assert_eq!(
        project.read("out").unwrap_or_default().replace(&project.home().display().to_string(), "~"),
        out,
        "{line}"
    );
}

#[track_caller]
fn records(project: &TestProject) -> Vec<(String, String, String)> {
    let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let asked = records.filter(|record| {
        ["ask", "permit"].contains(&record["operation"].as_str().unwrap_or_default())
    });
    asked
        .map(|record| {
            (text(&record, "operation"), text(&record, "result"), text(&record, "reason"))
        })
        .collect()
}

const QUESTION: &str = "expect('ringfence asks'); expect('.ssh/id_rsa\"'); expect('\\r\\n> ');";

#[test]
fn allow_once_holds_for_one_access() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".ssh/id_rsa"), "key\n");
        let script =
            format!("{QUESTION} type('o\\r'); expect('allowed once'); {QUESTION} type('d\\r')");
        check(
            &project,
            "cat ~/.ssh/id_rsa; cat ~/.ssh/id_rsa",
            &script,
            "key\ncat: ~/.ssh/id_rsa: Permission denied\n",
        );
        let answers: Vec<String> =
            records(&project).into_iter().map(|(_, _, reason)| reason).collect();
        assert_eq!(answers, ["answered allow_once", "answered deny"]);
    });
}

#[test]
fn allow_session_holds_until_the_command_ends() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".ssh/id_rsa"), "key\n");
        check(
            &project,
            "cat ~/.ssh/id_rsa; cat ~/.ssh/id_rsa",
            &format!("{QUESTION} type('s\\r')"),
            "key\nkey\n",
        );
        project.sh("cat ~/.ssh/id_rsa").expect_status(1);
    });
}

#[test]
fn allow_always_is_added_to_the_users_policy_file() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join(".ssh/id_rsa"), "key\n");
        let policy = project.own_policy();
        let head = format!("version = 1 # mine\nproject = \"{}\"\n", project.root().display());
        project.write_at(&policy, &head);
        let script = format!("{QUESTION} type('p\\r'); expect('added '); expect('app.toml:5')");
        check(&project, "cat ~/.ssh/id_rsa", &script, "key\n");
        assert_eq!(
            std::fs::read_to_string(&policy).unwrap(),
            head + "\n[filesystem]\nread = [\"~/.ssh/id_rsa\"]\n"
        );
        assert_eq!(project.sh("cat ~/.ssh/id_rsa").ok(), "key");
        let operations: Vec<String> =
            records(&project).into_iter().map(|(operation, ..)| operation).collect();
        assert_eq!(operations, ["ask", "permit"]);
    });
}

#[test]
fn command_that_ends_during_a_question_restores_the_terminal() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let binary = project.binary().to_string_lossy().into_owned();
        let line = format!(
            "stty -a > before; {binary} run --ask -c 'cat ~/.ssh/id_rsa & sleep 1; exit 5'; echo status $?; stty -a > after"
        );
        let script = "expect('\\r\\n> '); expect('status 5'); wait(); print('good')";
        assert_eq!(project.on_terminal(&["/bin/sh", "-c", &line], script).ok(), "good");
        assert!(project.read("before").is_some_and(|before| Some(before) == project.read("after")));
    });
}

/// Waits for the question about making a file.
const MAKING: &str =
    "expect('ringfence asks'); expect('to make'); expect('~made\"'); expect('\\r\\n> ');";

/// Promise: ask-write
#[test]
fn file_creation_is_asked_about_and_each_answer_holds() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let path = |name: &str| project.home().join("papers").join(name);
        project.write_at(&path("old"), "old\n");
        let question = |name: &str, operation: &str| {
            MAKING
                .replace("~made", &format!("/papers/{name}"))
                .replace("to make", &format!("to {operation}"))
        };
        let (made, written) = (question("new", "make"), question("old", "read and write"));
        let read = |name: &str| std::fs::read_to_string(path(name)).ok();
        let refused = "/bin/sh: 1: cannot create ~/papers/new: Directory nonexistent\n";
        check(&project, "(echo a > ~/papers/new)", &format!("{made} type('d\\r')"), refused);
        assert_eq!(read("new"), None);
        let script = format!(
            "{made} type('o\\r'); expect('allowed once'); {} type('d\\r')",
            question("new", "read and write")
        );
        check(&project, "echo a > ~/papers/new; (echo b > ~/papers/new)", &script, refused);
        assert_eq!(read("new").as_deref(), Some("a\n"));
        check(
            &project,
            "echo b >> ~/papers/old; echo c >> ~/papers/old; cat ~/papers/old",
            &format!("{written} type('s\\r')"),
            "old\nb\nc\n",
        );
        let policy = project.own_policy();
        let head = format!("version = 1 # mine\nproject = \"{}\"\n", project.root().display());
        project.write_at(&policy, &head);
        let script = format!("{written} type('p\\r'); expect('added '); expect('app.toml:5')");
        check(&project, "echo d >> ~/papers/old; echo e >> ~/papers/old", &script, "");
        assert_eq!(
            std::fs::read_to_string(&policy).unwrap(),
            head + "\n[filesystem]\nwrite = [\"~/papers/old\"]\n"
        );
        project.sh("echo f >> ~/papers/old").ok();
        assert_eq!(read("old").as_deref(), Some("old\nb\nc\nd\ne\nf\n"));
        let report: Vec<String> = records(&project)
            .into_iter()
            .map(|(operation, result, reason)| format!("{operation} {result} {reason}"))
            .collect();
        let expect = [
            "blocked answered deny",
            "allowed answered allow_once",
            "blocked answered deny",
            "allowed answered allow_session",
            "allowed answered allow_permanent",
        ];
        assert_eq!(&report[..5], expect.map(|one| format!("ask {one}")));
        assert!(report[5].starts_with("permit allowed ") && report.len() == 6, "{report:?}");
    });
}

/// Promise: ask-write
#[test]
fn unanswered_write_question_means_deny() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let words = ["--ask", "--ask-timeout", "1s", "-c", "mkdir ~/papers/x > out 2>&1; exit 7"];
        project.write_at(&project.home().join("papers/old"), "");
        let ran = project.run_on_terminal(
            &words,
            "expect('ringfence asks'); s = wait(); print(os.WEXITSTATUS(s))",
        );
        assert_eq!(ran.ok(), "7");
        assert!(!project.home().join("papers/x").exists());
        assert!(project.read("out").is_some_and(|out| out.contains("No such file or directory")));
    });
}
