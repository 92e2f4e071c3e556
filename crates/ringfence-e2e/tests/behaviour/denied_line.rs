//! One line on standard error names the denials of a failed command.

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

/// The lines on standard error that are ringfence's own.
fn own_lines(ran: &TestOutput) -> Vec<String> {
    ran.stderr_text()
        .lines()
        .filter(|line| line.starts_with("ringfence: ") && !line.contains("not every denial"))
        .map(str::to_owned)
        .collect()
}

fn each_project(check: impl Fn(TestUser, &TestProject) + Send + Sync) {
    if fuse_for_all() {
        each_user(|user| check(user, &project(user)));
    }
}

#[test]
fn failed_command_names_the_denied_paths_in_one_line() {
    each_project(|user, project| {
        project.write_at(&project.home().join(".ssh/id_rsa"), "key");
        let ran = project.sh("cat ~/.ssh/id_rsa");
        assert_eq!(
            own_lines(ran.expect_status(1)),
            ["ringfence: 1 path was denied (~/.ssh/id_rsa); see: ringfence explain --last"],
            "{user}"
        );
        let ran = project.sh("cat ~/.ssh/id_rsa .env ~/notes.txt");
        let lines = own_lines(ran.expect_status(1));
        assert_eq!(
            lines,
            [
                "ringfence: 3 paths were denied (~/.ssh/id_rsa, ~/code/app/.env, …); see: ringfence explain --last"
            ],
            "{user}"
        );
    });
}

#[test]
fn failed_command_names_the_denied_host() {
    if !needs(&["curl"]) {
        return;
    }
    each_project(|user, project| {
        let ran = project.run(["--", "curl", "-sS", "https://registry.example.org/x"]);
        let lines = own_lines(&ran);
        let [line] = lines.as_slice() else { panic!("{user}: {lines:?}") };
        assert!(
            line.starts_with("ringfence: 1 host was denied (registry.example.org"),
            "{user}: {line}"
        );
        let ran = project.run(["--", "curl", "-sS", "http://192.0.2.7:81/"]);
        assert_eq!(
            own_lines(&ran),
            ["ringfence: 1 host was denied (192.0.2.7:81); see: ringfence explain --last"],
            "{user}"
        );
    });
}

#[test]
fn names_in_the_line_hold_no_control_characters() {
    each_project(|user, project| {
        let ran = project.sh("cat \"$HOME/.ssh/$(printf 'a\\033[31m\\nb')\"");
        let lines = own_lines(ran.expect_status(1));
        assert_eq!(
            lines,
            [
                "ringfence: 1 path was denied (~/.ssh/a\\u{1b}[31m\\nb); see: ringfence explain --last"
            ],
            "{user}"
        );
    });
}

#[test]
fn success_and_unrelated_failures_add_no_line() {
    each_project(|user, project| {
        project.write_at(&project.home().join(".profile"), "# mine\n");
        for line in ["cat .env; true", "exit 3", "bash -lc 'exit 4'", "ls /sys/fs/cgroup; exit 5"] {
            let ran = project.sh(line);
            assert_eq!(own_lines(&ran), Vec::<String>::new(), "{user}: {line}");
        }
    });
}

#[test]
fn quiet_and_json_leave_the_line_out() {
    each_project(|user, project| {
        for words in
            [["--quiet", "-c", "cat .env"], ["-q", "-c", "cat .env"], ["--json", "-c", "cat .env"]]
        {
            assert_eq!(own_lines(&project.run(words)), Vec::<String>::new(), "{user}: {words:?}");
        }
        let run = |value: &str| {
            TestOutput::run(
                project.ringfence().env("RINGFENCE_QUIET", value).args(["run", "-c", "cat .env"]),
                b"",
            )
        };
        assert_eq!(own_lines(&run("1")), Vec::<String>::new(), "{user}");
        assert_eq!(own_lines(&run("")).len(), 1, "{user}");
    });
}

#[test]
fn session_commands_name_the_denied_paths() {
    each_project(|user, project| {
        let session = TestOutput::run(project.ringfence().args(["session", "start"]), b"").ok();
        let exec = |words: &[&str]| {
            TestOutput::run(
                project.ringfence().args(["session", "exec", &session]).args(words),
                b"",
            )
        };
        let said = [
            exec(&["-c", "cat .env"]),
            exec(&["-q", "-c", "cat .env"]),
            exec(&["-c", "cat .env; true"]),
            exec(&["--", "cat", ".env"]),
        ];
        TestOutput::run(project.ringfence().args(["session", "stop", &session]), b"").ok();
        let line = "ringfence: 1 path was denied (~/code/app/.env); see: ringfence explain --last"
            .to_owned();
        assert_eq!(
            said.each_ref().map(own_lines),
            [vec![line.clone()], vec![], vec![], vec![line]],
            "{user}"
        );
    });
}

/// The proposal of `explain --last` for the first denial.
fn first_proposal(project: &TestProject) -> (String, String) {
    let said = TestOutput::run(project.ringfence().args(["explain", "--last", "--json"]), b"");
    let said: Value =
        serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{}", said.stderr_text()));
    let first = &said["denials"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&first["target"]), text(&first["now"]["change"]))
}

#[track_caller]
fn check_registry(project: &TestProject, words: &[&str], registry: &str) {
    check_named(project, &project.run(words), registry);
}

/// Fails unless the line and `explain --last` name the registry first.
#[track_caller]
fn check_named(project: &TestProject, ran: &TestOutput, registry: &str) {
    let lines = own_lines(ran);
    let [line] = lines.as_slice() else { panic!("{registry}: {lines:?}\n{}", ran.stderr_text()) };
    assert!(line.contains(registry) && line.contains("1 host"), "{line}");
    let (target, change) = first_proposal(project);
    assert!(target.starts_with(registry), "{target} is named first");
    assert!(change.starts_with(&format!("ringfence run --allow-host {registry}")), "{change}");
}

#[test]
fn npm_and_pip_try_once_without_a_network_and_name_the_registry() {
    if !needs(&["npm", "/usr/bin/python3"]) {
        return;
    }
    each_project(|_, project| {
        project.write("package.json", r#"{"name":"a","version":"1.0.0"}"#);
        check_registry(project, &["--", "npm", "install", "left-pad"], "registry.npmjs.org");
        let npm =
            project.run(["-c", "echo $npm_config_fetch_retries $PIP_RETRIES $CARGO_NET_RETRY"]);
        assert_eq!(npm.ok(), "0 0 0");
        let pip = "/usr/bin/python3 -m pip --version > /dev/null";
        if project.sh_bare(pip).status == 0 {
            check_registry(
                project,
                &[
                    "--",
                    "/usr/bin/python3",
                    "-m",
                    "pip",
                    "install",
                    "--target",
                    "x",
                    "sampleproject",
                ],
                "pypi.org",
            );
        }
    });
}

#[test]
fn cargo_tries_once_without_a_network_and_names_the_index() {
    if !needs(&["cargo", "rustc"]) {
        return;
    }
    each_project(|_, project| {
        let manifest = "[package]\nname = \"a\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n";
        project.write("Cargo.toml", manifest);
        project.write("src/lib.rs", "");
        let mut command = project.ringfence();
        command
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", project.toolchain().display()));
        let home = format!("CARGO_HOME={}", project.at("empty").display());
        let ran =
            TestOutput::run(command.args(["run", "--env", &home, "--", "cargo", "fetch"]), b"");
        check_named(project, &ran, "index.crates.io");
    });
}

#[test]
fn retry_count_set_by_the_user_is_kept() {
    each_project(|user, project| {
        let line = "echo $npm_config_fetch_retries $PIP_RETRIES $CARGO_NET_RETRY";
        let mut command = project.ringfence();
        command
            .env("npm_config_fetch_retries", "4")
            .env("PIP_RETRIES", "5")
            .env("CARGO_NET_RETRY", "6")
            .args(["run", "-c", line]);
        assert_eq!(TestOutput::run(&mut command, b"").ok(), "4 5 6", "{user}");
        assert_eq!(project.run(["--net", "full", "-c", line]).ok(), "", "{user}");
        let pauses =
            format!("{line} $npm_config_fetch_retry_mintimeout $npm_config_fetch_retry_maxtimeout");
        let ran = project.run([
            "--allow-host",
            "pypi.org",
            "--allow-host",
            "registry.npmjs.org",
            "-c",
            &pauses,
        ]);
        assert_eq!(ran.ok(), "1 1 0 500 1000", "{user}: a list leaves one retry");
    });
}
