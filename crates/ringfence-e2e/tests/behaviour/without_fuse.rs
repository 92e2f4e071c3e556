//! A host without `/dev/fuse`: enforcement is complete, reports are not, and a warning says so.

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, each_user, fuse_for_all, needs,
};
use serde_json::Value;

use crate::project;

fn without_fuse(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence_without_fuse().args(words), b"")
}

#[track_caller]
fn object(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

/// Runs `body` as every user with the device hidden.
fn each_user_without_fuse(body: impl Fn(&TestProject)) {
    if needs(&["unshare", "mount", "setpriv"]) {
        each_user(|user: TestUser| body(&project(user)));
    }
}

/// Checks the denials of a command line, each as `operation target explicit evidence`.
#[track_caller]
fn check(line: &str, expected: &[&str]) {
    each_user_without_fuse(|project| {
        let said = object(&without_fuse(project, &["run", "--json", "-c", line]));
        let (home, root) = (
            project.home().to_string_lossy().into_owned(),
            project.root().to_string_lossy().into_owned(),
        );
        let report = said["denials"].as_array().expect("a list").iter().map(|denial| {
            let text = |name: &str| {
                denial[name]
                    .as_str()
                    .unwrap_or_default()
                    .replace(&root, "PROJECT")
                    .replace(&home, "~")
            };
            format!(
                "{} {} {} {}",
                text("operation"),
                text("target"),
                denial["explicit"],
                text("evidence")
            )
        });
        // The order of files in a directory depends on the file system.
        let (mut report, mut expected) = (report.collect::<Vec<_>>(), expected.to_vec());
        report.sort_unstable();
        expected.sort_unstable();
        assert_eq!(report, expected, "{line}\n{said}");
        assert_eq!(said["blocked"], !expected.is_empty(), "{line}\n{said}");
    });
}

/// Promise: without-fuse
#[test]
fn enforcement_is_complete_without_fuse() {
    each_user_without_fuse(|project| {
        let line = "cat .env ~/.ssh/id_rsa ~/notes.txt ../other/main.rs; ls ~/.ssh; (echo x > .mcp.json); echo x > ok; exit 7";
        let ran = without_fuse(project, &["run", "-c", line]);
        ran.expect_status(7);
        assert!(
            !ran.text().contains(SECRET) && project.has("ok") && !project.has(".mcp.json"),
            "{}",
            ran.text()
        );
        // The warning is printed once, and not at every command.
        let warned = |ran: &TestOutput| {
            ran.stderr_text()
                .lines()
                .filter(|line| line.starts_with("ringfence: warning: not every denial is reported"))
                .count()
        };
        assert_eq!(warned(&ran), 1, "{}", ran.stderr_text());
        assert!(ran.stderr_text().contains("/dev/fuse"), "{}", ran.stderr_text());
        assert_eq!(warned(without_fuse(project, &["run", "-c", line]).expect_status(7)), 0);
    });
}

/// Promise: without-fuse
#[test]
fn reporting_gap_is_shown_and_refuses_nothing() {
    each_user_without_fuse(|project| {
        let check_gap = |gaps: &Value| {
            let [gap] = gaps.as_array().expect("a list").as_slice() else { panic!("{gaps}") };
            assert_eq!(
                (&gap["what"], &gap["loss"]),
                (&"denials".into(), &"reporting".into()),
                "{gap}"
            );
            assert!(gap["why"].as_str().is_some_and(|why| why.contains("/dev/fuse")), "{gap}");
            assert!(gap["hint"].as_str().is_some_and(|hint| hint.starts_with("sudo ")), "{gap}");
        };
        let run = without_fuse(project, &["run", "--json", "--on-gap", "refuse", "-c", "true"]);
        run.expect_status(0);
        check_gap(&object(&run)["gaps"]);
        let plan = object(&without_fuse(project, &["plan", "--json"]));
        check_gap(&plan["gaps"]);
        assert!(!plan["steps"].to_string().contains("watch"), "{plan}");
        let text = without_fuse(project, &["plan"]).ok();
        assert!(
            text.contains("\nsilent    denials: /dev/fuse cannot be opened")
                && text.contains("sudo chmod 666 /dev/fuse"),
            "{text}"
        );
        let doctor = without_fuse(project, &["doctor"]).ok();
        assert!(
            doctor.contains("limited  /dev/fuse        cannot be opened: denied reads are guessed"),
            "{doctor}"
        );
        // The audit log has it too.
        let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
        assert!(log.lines().any(|line| line.contains(r#""gaps":["denials"]"#)), "{log}");
    });
}

/// Promise: without-fuse
#[test]
fn enforcement_gap_still_refuses() {
    each_user_without_fuse(|project| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nmode = \"full\"\ndeny = [\"a.org\"]\n",
        );
        let ran = without_fuse(project, &["run", "-c", "touch ran"]);
        ran.expect_status(125);
        assert!(
            ran.stderr_text().contains("network.deny")
                && !ran.stderr_text().contains("denials")
                && !project.has("ran"),
            "{}",
            ran.stderr_text()
        );
    });
}

/// Promise: without-fuse
#[test]
fn unusable_fuse_device_is_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user_without_fuse(|project| {
        let run = |line: &str| {
            let mut ringfence = project.ringfence_after("mount --bind /dev/null /dev/fuse");
            object(&TestOutput::run(ringfence.args(["run", "--json", "-c", line]), b""))
        };
        let said = run("cat .env ~/notes.txt");
        assert_eq!(
            (&said["gaps"][0]["what"], &said["gaps"][0]["loss"]),
            (&"denials".into(), &"reporting".into()),
            "{said}"
        );
        assert!(!said["enforced"].to_string().contains("watch"), "{said}");
        assert_eq!(said["denials"].as_array().map(Vec::len), Some(2), "{said}");
        assert_eq!(said["denials"][0]["evidence"], "guessed");
    });
}

/// Promise: without-fuse
#[test]
fn denials_are_guessed_from_error_messages() {
    check("cat .env", &["read PROJECT/.env true guessed"]);
    check("cat sub/.env README > /dev/null", &["read PROJECT/sub/.env true guessed"]);
    check("cat ~/.ssh/id_rsa", &["read ~/.ssh/id_rsa true guessed"]);
    check("cat ~/.ssh/nosuch", &["read ~/.ssh/nosuch true guessed"]);
    check("ls ~/.ssh", &["read ~/.ssh true guessed"]);
    check("cat ~/notes.txt", &["read ~/notes.txt false guessed"]);
    check("python3 -c 'open(\".env\")'", &["read PROJECT/.env true guessed"]);
    check(
        "grep -r xyzzy sub",
        &[
            "read PROJECT/sub/.env true guessed",
            "read PROJECT/sub/deeper/credentials.json true guessed",
        ],
    );
    // Denials of the notify handler are reported exactly, and not guessed as well.
    check("echo x > .mcp.json", &["create PROJECT/.mcp.json true kernel"]);
}

/// Promise: fuse-less-log
#[test]
fn guessed_denials_of_a_plain_run_are_audited() {
    each_user_without_fuse(|project| {
        let ran = without_fuse(project, &["run", "-c", "echo out; cat .env; exit 3"]);
        ran.expect_status(3);
        assert_eq!(ran.text(), "out");
        let talk: Vec<String> = ran
            .stderr_text()
            .lines()
            .filter(|line| !line.starts_with("ringfence:"))
            .map(str::to_owned)
            .collect();
        assert_eq!(talk, ["cat: .env: Permission denied"]);
        let log =
            TestOutput::run(project.ringfence().args(["log", "--json", "--blocked-only"]), b"")
                .ok();
        let records: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let target = project.at(".env").display().to_string();
        let is_it = |one: &Value| {
            one["operation"] == "read"
                && one["target"] == target.as_str()
                && one["evidence"] == "guessed"
        };
        assert!(records.iter().any(is_it), "{log}");
    });
}

#[test]
fn plain_run_keeps_all_output_in_order() {
    each_user_without_fuse(|project| {
        let line = "for i in $(seq 300); do echo out $i; echo err $i >&2; done; head -c 300000 /dev/zero | tr '\\0' x >&2; exit 4";
        let both = project.home().join("both");
        project.write_at(&both, "");
        let file = || std::fs::File::options().append(true).open(&both).expect("it was just made");
        // The warning of the first run.
        without_fuse(project, &["run", "-c", "true"]).ok();
        let mut command = project.ringfence_without_fuse();
        let status = command
            .args(["run", "-c", line])
            .stdin(std::process::Stdio::null())
            .stdout(file())
            .stderr(file())
            .status();
        assert_eq!(status.expect("it starts").code(), Some(4));
        let said = std::fs::read_to_string(&both).expect("it is text");
        let expect: String = (1..=300).map(|i| format!("out {i}\nerr {i}\n")).collect();
        assert!(
            said.starts_with(&expect) && said.len() == expect.len() + 300_000,
            "{}",
            &said[..said.len().min(500)]
        );
    });
}

#[test]
fn timeout_holds_while_the_output_is_not_read() {
    each_user_without_fuse(|project| {
        let mut command = project.ringfence_without_fuse();
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        command.args([
            "run",
            "--timeout",
            "1s",
            "-c",
            "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx >&2; done",
        ]);
        let mut child = command
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(writer)
            .spawn()
            .expect("it starts");
        drop(command);
        let ended = ringfence_testkit::becomes_true(std::time::Duration::from_secs(30), || {
            child.try_wait().expect("it is ours").is_some()
        });
        drop(reader);
        let status = child.wait().expect("it is ours");
        assert!(ended && status.code() == Some(124), "{ended} {status:?}");
    });
}

/// Promise: without-fuse
#[test]
fn unrelated_error_messages_are_not_denials() {
    for line in [
        "echo 'cat: README: Permission denied' >&2; exit 1",
        "echo 'Permission denied: Operation not permitted' >&2; exit 1",
        "cat ~/nowhere /tmp/nothing",
        "echo 'cat: .env: Permission denied'; exit 1",
        // Nothing failed.
        "cat .env; true",
        "echo x > f.txt; chmod 000 f.txt; cat f.txt; exit 1",
    ] {
        check(line, &[]);
    }
}

/// Promise: without-fuse
#[test]
fn hostile_error_text_is_harmless() {
    check(
        r"printf '\033]0;x\007\033[31mcat: .env: Permission denied\033[0m\n' >&2; exit 1",
        &["read PROJECT/.env true guessed"],
    );
    check(
        r"printf '\377\376\200cat: \340: Permission denied\ncat: .env: Permission denied\n' >&2; exit 1",
        &["read PROJECT/.env true guessed"],
    );
    check("head -c 20000000 /dev/zero | tr '\\0' : >&2; exit 1", &[]);
    check("seq -f '/etc/%.0f: No such file or directory' 200000 >&2; exit 1", &[]);
}

/// Promise: without-fuse
#[test]
fn nothing_is_guessed_with_fuse() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line = "echo 'cat: .env: Permission denied' >&2; exit 1";
        let said = object(&project.run(["--json", "-c", line]));
        assert_eq!(
            (&said["denials"], &said["blocked"], &said["gaps"]),
            (&serde_json::json!([]), &false.into(), &serde_json::json!([]))
        );
    });
}
