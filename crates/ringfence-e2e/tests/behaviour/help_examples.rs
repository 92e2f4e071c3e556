//! Every example in the help of `policy` and `configure` works as it is written, and flags that
//! cannot work say what to type.

use ringfence_testkit::{TestOutput, TestProject, each_user};

use crate::project;

fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// The lines below `Examples:` in the help of a command.
fn examples(project: &TestProject, words: &[&str]) -> Vec<String> {
    let help = ringfence(project, &[words, &["--help"]].concat()).ok();
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()
}

const HELPED: &[&[&str]] = &[
    &["policy"],
    &["policy", "show"],
    &["policy", "check"],
    &["policy", "allow"],
    &["policy", "import"],
    &["policy", "schema"],
    &["allow"],
    &["configure"],
    &["configure", "set"],
    &["configure", "get"],
    &["configure", "unset"],
    &["configure", "list"],
];

/// Makes every file that an example names.
fn furnished(project: &TestProject) {
    project.write_at(&project.home().join("data/x"), "x");
    project.write_at(&project.home().join(".config/my-tool/x"), "x");
    let settings =
        r#"{"sandbox":{"enabled":true},"permissions":{"deny":["Bash(git push:*)","Bash(rm *)"]}}"#;
    project.write_at(&project.home().join(".claude/settings.json"), settings);
    project.write(".claude/settings.json", settings);
    project.write_at(
        &project.home().join(".codex/config.toml"),
        "sandbox_mode = \"workspace-write\"\n",
    );
    project.write(
        "my-settings.json",
        r#"{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}"#,
    );
    project.write("build/policy.toml", "version = 1\n");
}

/// Promise: help-examples
#[test]
fn every_example_in_the_help_works_and_a_command_runs_afterwards() {
    each_user(|user| {
        let project = project(user);
        furnished(&project);
        let program = project.binary().display().to_string();
        let mut count = 0;
        for words in HELPED {
            for example in examples(&project, words) {
                count += 1;
                // Each starts without a policy: an import writes a new file.
                std::fs::remove_dir_all(project.at(".ringfence")).ok();
                std::fs::remove_file(project.home().join(".config/ringfence/policy.toml")).ok();
                if example.contains("check .ringfence") {
                    project.write(".ringfence/policy.toml", "version = 1\n");
                }
                let line = example.replacen("ringfence", &program, 1);
                let ran = TestOutput::run(project.command("/bin/sh").args(["-c", &line]), b"");
                let is_get = example.contains("configure get");
                assert!(
                    ran.status == 0 || is_get && ran.status == 1,
                    "{user}: {example}: {} {}",
                    ran.status,
                    ran.stderr_text()
                );
                assert!(
                    !ran.stderr_text().contains("is ignored"),
                    "{user}: {example}: {}",
                    ran.stderr_text()
                );
                if ["import", "allow", " set "].iter().any(|word| example.contains(word)) {
                    project.run(["--", "true"]).ok();
                }
            }
        }
        assert!(count >= 18, "{count}");
    });
}

#[test]
fn setting_without_effect_is_not_written() {
    each_user(|user| {
        let project = project(user);
        let ran = ringfence(
            &project,
            &["configure", "--shared", "set", "network.allow", "[\"example.org\"]"],
        );
        let said = ran.expect_status(125).stderr_text();
        assert!(
            said.contains("no effect")
                && said.contains("ringfence configure --global set network.allow"),
            "{said}"
        );
        assert!(!project.has(".ringfence"));
        ringfence(
            &project,
            &["configure", "--global", "set", "network.allow", "[\"example.org\"]"],
        )
        .ok();
        // The repository may name paths that the user opened.
        ringfence(
            &project,
            &["configure", "--shared", "set", "network.allow", "[\"example.org\"]"],
        )
        .ok();
    });
}

#[test]
fn imported_deny_of_claude_code_refuses_the_command() {
    each_user(|user| {
        let project = project(user);
        furnished(&project);
        let words =
            ["policy", "import", ".claude/settings.json", "--output", ".ringfence/policy.toml"];
        ringfence(&project, &words).ok();
        assert!(
            project.run(["-c", "rm README"]).expect_status(126).stderr_text().contains("deny rm:*")
        );
        project.run(["-c", "git push origin main"]).expect_status(126);
        assert!(
            ringfence(&project, &words).expect_status(125).stderr_text().contains("already exists")
        );
    });
}

#[test]
fn flag_that_opens_nothing_says_so_and_the_command_runs() {
    each_user(|user| {
        let project = project(user);
        let ran = project.run([
            "--read",
            "/nonexistent",
            "--env",
            "RINGFENCE_TEST_UNSET",
            "--",
            "echo",
            "ran",
        ]);
        assert_eq!(ran.ok(), "ran");
        assert!(
            ran.stderr_text()
                .contains("--read /nonexistent has no effect: there is no such file or directory"),
            "{}",
            ran.stderr_text()
        );
        assert!(
            ran.stderr_text()
                .contains("--env RINGFENCE_TEST_UNSET has no effect: the variable is not set"),
            "{}",
            ran.stderr_text()
        );
        let quiet = project.run(["--read", "/usr", "--env", "HOME", "--env", "X=y", "--", "true"]);
        quiet.ok();
        assert_eq!(quiet.stderr_text(), "");
    });
}

#[test]
fn flag_that_cannot_be_read_says_what_to_type() {
    each_user(|user| {
        let project = project(user);
        for (flags, says) in [
            (["--allow-host", "github.com/*"], "write the host alone: `github.com`"),
            (["--bind", "3000:3000"], "use `--bind 3000`"),
            (["--bind", "8080:3000"], "make the server listen on 8080"),
            (["--bind", "127.0.0.1:3000"], "use `--bind 3000`"),
            (["--bind", "web"], "a number from 1 to 65535"),
        ] {
            let ran = project.run([&flags[..], &["--", "true"]].concat());
            assert!(
                ran.expect_status(125).stderr_text().contains(says),
                "{user}: {flags:?}: {}",
                ran.stderr_text()
            );
        }
    });
}

#[test]
fn newlines_are_printed_as_escapes() {
    each_user(|user| {
        let project = project(user);
        project.write(
            ".ringfence/policy.toml",
            "version = 1\n[filesystem]\ndeny = [\n  \"a\",\n  \"b\",\n]\n",
        );
        for words in [
            ["configure", "--shared", "get", "filesystem.deny"].as_slice(),
            &["configure", "--shared", "list"],
        ] {
            let said = ringfence(&project, words).ok();
            assert!(!said.contains('\u{fffd}') && said.contains("\"a\""), "{said}");
        }
        project.sh("true\necho two").ok();
        let log = ringfence(&project, &["log"]).ok();
        assert!(log.contains("true\\necho two") && !log.contains('\u{fffd}'), "{log}");
    });
}

#[test]
fn home_directory_as_project_runs_nothing() {
    each_user(|user| {
        let project = project(user);
        let home = project.home().display().to_string();
        project.write_at(&project.home().join("data/x"), "x");
        let at_home = |words: &[&str]| {
            TestOutput::run(project.ringfence().args(words).current_dir(&home), b"")
        };
        at_home(&["policy", "show"]).ok();
        at_home(&["policy", "check"]).ok();
        at_home(&["policy", "allow", "read", "data"]).ok();
        at_home(&["configure", "--global", "list"]).ok();
        let explained = at_home(&["explain", "read", ".ssh/id_rsa"]);
        assert!(
            explained.expect_status(1).stderr_text().contains("refusing to run in"),
            "{}",
            explained.stderr_text()
        );
        for words in [["run", "--", "true"].as_slice(), &["test"], &["plan"]] {
            let said = at_home(words).expect_status(125).stderr_text();
            assert!(
                said.contains("cd into a project, or name one with `-C DIR`"),
                "{user}: {words:?}: {said}"
            );
        }
    });
}

#[test]
fn program_name_as_subcommand_gets_the_right_command_line() {
    each_user(|user| {
        let project = project(user);
        let ran = TestOutput::run(project.ringfence().args(["env", "echo", "two words"]), b"");
        let hint = "hint: did you mean: ringfence run -- env echo 'two words'\n";
        assert!(
            ran.status == 125 && ran.stderr_text().ends_with(hint),
            "{user}: {}",
            ran.stderr_text()
        );
        let unknown = TestOutput::run(project.ringfence().args(["no-such-program-anywhere"]), b"");
        assert!(
            unknown.status == 125 && !unknown.stderr_text().contains("ringfence run --"),
            "{user}: {}",
            unknown.stderr_text()
        );
    });
}
