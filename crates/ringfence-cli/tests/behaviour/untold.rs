//! A host without `/dev/fuse`: as much is enforced, less is told, and that is said.

use ringfence_testkit::{
    SECRET, TestOutput, TestProject, TestUser, each_user, fuse_for_all, needs,
};
use serde_json::Value;

use crate::project;

fn without_fuse(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence_without_fuse().args(words), b"")
}

#[track_caller]
fn object(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.talk()))
}

/// As every user, where the device is hidden.
fn each_user_without_fuse(body: impl Fn(&TestProject)) {
    if needs(&["unshare", "mount", "setpriv"]) {
        each_user(|user: TestUser| body(&project(user)));
    }
}

/// What a command line was refused, each as `operation target explicit evidence`.
#[track_caller]
fn check(line: &str, expected: &[&str]) {
    each_user_without_fuse(|project| {
        let said = object(&without_fuse(project, &["run", "--json", "-c", line]));
        let (home, root) = (
            project.home().to_string_lossy().into_owned(),
            project.root().to_string_lossy().into_owned(),
        );
        let told = said["denials"].as_array().expect("a list").iter().map(|denial| {
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
        // The order of files in a directory is the file system's.
        let (mut told, mut expected) = (told.collect::<Vec<_>>(), expected.to_vec());
        told.sort_unstable();
        expected.sort_unstable();
        assert_eq!(told, expected, "{line}\n{said}");
        assert_eq!(said["blocked"], !expected.is_empty(), "{line}\n{said}");
    });
}

/// Promise: P36
#[test]
fn as_much_is_enforced() {
    each_user_without_fuse(|project| {
        let line = "cat .env ~/.ssh/id_rsa ~/notes.txt ../other/main.rs; ls ~/.ssh; (echo x > .mcp.json); echo x > ok; exit 7";
        let ran = without_fuse(project, &["run", "-c", line]);
        ran.ends(7);
        assert!(
            !ran.text().contains(SECRET) && project.has("ok") && !project.has(".mcp.json"),
            "{}",
            ran.text()
        );
        // What is not told of is said once, and not at every command.
        let warned = |ran: &TestOutput| {
            ran.talk()
                .lines()
                .filter(|line| line.starts_with("ringfence: warning: not every denial is reported"))
                .count()
        };
        assert_eq!(warned(&ran), 1, "{}", ran.talk());
        assert!(ran.talk().contains("/dev/fuse"), "{}", ran.talk());
        assert_eq!(warned(without_fuse(project, &["run", "-c", line]).ends(7)), 0);
    });
}

/// Promise: P36
#[test]
fn the_gap_is_shown_and_stops_nobody() {
    each_user_without_fuse(|project| {
        let is_told = |gaps: &Value| {
            let [gap] = gaps.as_array().expect("a list").as_slice() else { panic!("{gaps}") };
            assert_eq!(
                (&gap["what"], &gap["loss"]),
                (&"denials".into(), &"telling".into()),
                "{gap}"
            );
            assert!(gap["why"].as_str().is_some_and(|why| why.contains("/dev/fuse")), "{gap}");
            assert!(gap["hint"].as_str().is_some_and(|hint| hint.starts_with("sudo ")), "{gap}");
        };
        let run = without_fuse(project, &["run", "--json", "--on-gap", "refuse", "-c", "true"]);
        run.ends(0);
        is_told(&object(&run)["gaps"]);
        let plan = object(&without_fuse(project, &["plan", "--json"]));
        is_told(&plan["gaps"]);
        assert!(!plan["steps"].to_string().contains("watch"), "{plan}");
        let text = without_fuse(project, &["plan"]).ok();
        assert!(
            text.contains("\nuntold    denials: /dev/fuse cannot be opened")
                && text.contains("sudo chmod 666 /dev/fuse"),
            "{text}"
        );
        let doctor = without_fuse(project, &["doctor"]).ok();
        assert!(
            doctor
                .contains("limited  /dev/fuse        cannot be opened: refused reads are guessed"),
            "{doctor}"
        );
        // The record has it too.
        let log = TestOutput::of(project.ringfence().args(["log", "--json"]), b"").ok();
        assert!(log.lines().any(|line| line.contains(r#""gaps":["denials"]"#)), "{log}");
    });
}

/// Promise: P36
#[test]
fn a_gap_in_what_is_enforced_refuses_as_ever() {
    each_user_without_fuse(|project| {
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nmode = \"full\"\ndeny = [\"a.org\"]\n",
        );
        let ran = without_fuse(project, &["run", "-c", "touch ran"]);
        ran.ends(125);
        assert!(
            ran.talk().contains("network.deny")
                && !ran.talk().contains("denials")
                && !project.has("ran"),
            "{}",
            ran.talk()
        );
    });
}

/// Promise: P36
#[test]
fn a_device_that_serves_nothing_is_owned_up_to() {
    if !fuse_for_all() {
        return;
    }
    each_user_without_fuse(|project| {
        let run = |line: &str| {
            let mut ringfence = project.ringfence_after("mount --bind /dev/null /dev/fuse");
            object(&TestOutput::of(ringfence.args(["run", "--json", "-c", line]), b""))
        };
        let said = run("cat .env ~/notes.txt");
        assert_eq!(
            (&said["gaps"][0]["what"], &said["gaps"][0]["loss"]),
            (&"denials".into(), &"telling".into()),
            "{said}"
        );
        assert!(!said["enforced"].to_string().contains("watch"), "{said}");
        assert_eq!(said["denials"].as_array().map(Vec::len), Some(2), "{said}");
        assert_eq!(said["denials"][0]["evidence"], "guessed");
    });
}

/// Promise: P36
#[test]
fn what_was_refused_is_guessed() {
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
    // What the usher refuses is told by the kernel, and not guessed as well.
    check("echo x > .mcp.json", &["create PROJECT/.mcp.json true kernel"]);
}

/// Promise: P132
#[test]
fn plain_run_is_guessed_and_logged() {
    each_user_without_fuse(|project| {
        let ran = without_fuse(project, &["run", "-c", "echo out; cat .env; exit 3"]);
        ran.ends(3);
        assert_eq!(ran.text(), "out");
        let talk: Vec<String> = ran
            .talk()
            .lines()
            .filter(|line| !line.starts_with("ringfence:"))
            .map(str::to_owned)
            .collect();
        assert_eq!(talk, ["cat: .env: Permission denied"]);
        let log =
            TestOutput::of(project.ringfence().args(["log", "--json", "--blocked-only"]), b"").ok();
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
fn plain_run_keeps_the_order_of_both_streams_and_all_of_them() {
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
fn time_limit_holds_although_the_output_of_a_plain_run_is_not_read() {
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
        let ended = ringfence_testkit::soon(std::time::Duration::from_secs(30), || {
            child.try_wait().expect("it is ours").is_some()
        });
        drop(reader);
        let status = child.wait().expect("it is ours");
        assert!(ended && status.code() == Some(124), "{ended} {status:?}");
    });
}

/// Promise: P36
#[test]
fn what_a_command_says_of_itself_is_no_denial() {
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

/// Promise: P36
#[test]
fn hostile_text_does_no_harm() {
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

/// Promise: P36
#[test]
fn nothing_is_guessed_where_the_kernel_tells() {
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
