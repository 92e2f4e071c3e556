//! `ringfence explain --last`: why the last command failed.

use ringfence_testkit::{TestOutput, TestProject, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

#[track_caller]
fn last(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(["explain", "--last"]).args(words), b"")
}

#[track_caller]
fn last_json(project: &TestProject, words: &[&str]) -> Value {
    let ran = last(project, &[&["--json"], words].concat());
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

/// Promise: explain-last
#[test]
fn denial_is_explained_with_its_rule_and_a_fix() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh("cat ~/notes.txt ~/notes.txt .env; echo x > .mcp.json; unshare -m true; exit 3")
            .expect_status(3);
        let text = last(&project, &[]).expect_status(1).text();
        let home = project.home().display().to_string();
        for expected in [
            "the last run in ~/code/app: /bin/sh -c 'cat ~/notes.txt",
            "  policy  unchanged since the run",
            &format!(
                "read {home}/notes.txt: refused\n  by      /usr/bin/cat, 2 times\n  rule    nothing opens it\n  from    built in\n"
            ),
            &format!(
                "  change  ringfence run --read {home}/notes.txt, or for good: ringfence allow read {home}/notes.txt"
            ),
            &format!(
                "read {home}/code/app/.env: refused\n  by      /usr/bin/cat\n  rule    **/.env\n  from    built in\n  why     tokens by convention\n"
            ),
            &format!("create {home}/code/app/.mcp.json: refused\n"),
            "call unshare: refused\n",
            "\n4 denials; exit status 3",
        ] {
            assert!(text.contains(expected), "{user}: {expected} is not in {text}");
        }
        // The values match `explain read`.
        let env = project.at(".env");
        let asked =
            TestOutput::run(project.ringfence().args(["explain", "--json", "read"]).arg(&env), b"");
        let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
        let said = last_json(&project, &[]);
        let denial = said["denials"]
            .as_array()
            .unwrap()
            .iter()
            .find(|denial| denial["target"] == *env.to_string_lossy())
            .unwrap();
        assert_eq!(
            (&denial["now"], &denial["changed"]),
            (&asked["answers"][0], &false.into()),
            "{said}"
        );
    });
}

/// Promise: explain-last
#[test]
fn policy_change_since_the_run_is_reported() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh("cat ~/notes.txt; cat ~/.netrc").expect_status(1);
        let policy = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&policy, "version = 1\n[filesystem]\nread = [\"~/notes.txt\"]\n");
        let text = last(&project, &[]).expect_status(1).text();
        assert!(
            text.contains("policy  changed since the run")
                && text.contains("  now     allowed: read ~/notes.txt"),
            "{user}: {text}"
        );
        let said = last_json(&project, &[]);
        let changed: Vec<&Value> =
            said["denials"].as_array().unwrap().iter().map(|denial| &denial["changed"]).collect();
        assert_eq!(
            (changed, &said["samePolicy"]),
            (vec![&true.into(), &false.into()], &false.into()),
            "{said}"
        );
        project.write_at(&policy, "version = 1\n[filesystem]\ndeny = [\"~/notes.txt\"]\n");
        let text = last(&project, &[]).text();
        assert!(
            text.contains("  now     denied by another rule: deny ~/notes.txt"),
            "{user}: {text}"
        );
        std::fs::remove_file(&policy).unwrap();
        assert_eq!(last_json(&project, &[])["samePolicy"], true);
        // `--observe` is not part of the compared policy.
        project.run(["--observe", "all", "-c", "cat ~/notes.txt"]).expect_status(1);
        assert_eq!(last_json(&project, &[])["samePolicy"], true);
    });
}

/// Promise: explain-last
#[test]
fn failure_without_a_denial_is_reported_as_such() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for (words, expected) in [
            (["-c", "exit 1"].as_slice(), "no denials; the program itself returned exit status 1"),
            (&["-c", "true"], "no denials; the command succeeded"),
            (
                &["--observe", "all", "-c", "cat README; exit 4"],
                "no denials; the program itself returned exit status 4",
            ),
            (
                &["--timeout", "300ms", "--", "sleep", "60"],
                "no denials; the command reached its time limit",
            ),
            (
                &["--mode", "full-access", "-c", "exit 2"],
                "nothing was confined, so nothing was denied; the program itself returned exit status 2",
            ),
            (&["--", "no-such-program"], "ringfence failed: cannot execute `no-such-program`"),
        ] {
            project.run(words);
            let ran = last(&project, &[]);
            let line = ran.text().lines().last().unwrap_or_default().to_owned();
            assert!(line.starts_with(expected), "{user}: `{line}` instead of `{expected}`");
            assert_eq!(ran.status, 0);
        }
        project.write_at(
            &project.home().join(".config/ringfence/policy.toml"),
            "version = 1\n[network]\nmode = \"full\"\ndeny = [\"a.org\"]\n",
        );
        project.run(["--", "true"]).expect_status(125);
        let text = last(&project, &[]).expect_status(1).text();
        assert!(
            text.contains("the command was not started: ") && text.contains("network.deny"),
            "{text}"
        );
    });
}

/// git reads the repository first, and then makes files with random names in it.
#[test]
fn denied_push_to_a_repository_on_this_machine_gets_a_command_that_allows_it() {
    if !fuse_for_all() || !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let bare = project.home().join("shared/bare.git").display().to_string();
        project
            .sh_bare(&format!(
                "git init -q --bare {bare} && git init -q . && git remote add there {bare} && git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m one"
            ))
            .ok();
        let push = ["--", "git", "push", "there", "HEAD:refs/heads/one"];
        let write = format!(
            "change  ringfence run --write {bare}, or for good: ringfence allow write {bare}\n"
        );
        for flags in [&[][..], &["--read", &bare]] {
            assert_ne!(project.run([flags, &push].concat()).status, 0, "{user}: {flags:?}");
            let text = last(&project, &[]).text();
            assert!(text.contains(&write), "{user}: {flags:?} {text}");
            assert_eq!(text.matches("--write").count(), text.matches(&write).count(), "{text}");
            assert!(!text.contains("run --read"), "{user}: {flags:?} {text}");
        }
        project.run(["--", "git", "fetch", "there"]).expect_status(128);
        let text = last(&project, &[]).text();
        assert!(text.contains(&format!("run --read {bare},")), "{user}: {text}");
        project.run([&["--write", &bare], &push[..]].concat()).ok();
        // What git runs there stays closed.
        project
            .run(["--write", &bare, "-c", &format!("echo x > {bare}/hooks/update")])
            .expect_status(2);
        // A file of the repository that another program reads is no push.
        project.run(["--", "cat", &format!("{bare}/HEAD")]).expect_status(1);
        assert!(last(&project, &[]).text().contains(&format!("run --read {bare}/HEAD,")));
    });
}

/// Promise: explain-last
#[test]
fn explain_uses_the_projects_last_run_or_the_named_one() {
    each_user(|user| {
        let project = project(user);
        let none = last(&project, &[]);
        none.expect_status(125);
        assert!(
            none.stderr_text().contains("the audit log has no run in ~/code/app"),
            "{}",
            none.stderr_text()
        );
        project.make_directories(&project.at("sub"));
        project.run(["-C", "sub", "-c", "exit 5"]).expect_status(5);
        let other = project.home().join("code/other");
        let elsewhere = TestOutput::run(
            project.ringfence().current_dir(&other).args(["run", "--json", "-c", "exit 6"]),
            b"",
        );
        let elsewhere: Value = serde_json::from_slice(&elsewhere.stdout).unwrap();
        assert_eq!(last_json(&project, &[])["exitCode"], 5, "{user}");
        let name = elsewhere["session"].as_str().unwrap();
        assert_eq!(last_json(&project, &["--session", name])["exitCode"], 6);
        assert_eq!(last_json(&project, &["--session", &name[name.len() - 8..]])["exitCode"], 6);
        last(&project, &["--session", "nothing-of-this-name"]).expect_status(125);
        last(&project, &["read", "README"]).expect_status(125);
        TestOutput::run(project.ringfence().args(["explain", "read"]), b"").expect_status(125);
        // A killed run has no end record.
        let mut child = project.ringfence();
        let mut child = child.args(["run", "-c", "touch ready; sleep 60"]).spawn().unwrap();
        assert!(ringfence_testkit::becomes_true(std::time::Duration::from_secs(20), || project
            .has("ready")));
        child.kill().unwrap();
        child.wait().unwrap();
        let said = last_json(&project, &[]);
        assert!(
            said["exitCode"].is_null()
                && said["verdict"].as_str().unwrap().starts_with("the command is still running"),
            "{said}"
        );
    });
}

#[test]
fn hostile_names_are_escaped() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join("\u{1b}[2Jx\nread /: refused"), "");
        project.sh("cat ~/*x*").expect_status(1);
        project
            .run([
                "--",
                "cat",
                &project.home().join("\u{1b}[2Jx\nread /: refused").to_string_lossy(),
            ])
            .expect_status(1);
        let text = last(&project, &[]).expect_status(1).text();
        assert!(
            !text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("read /:")),
            "{user}: {text}"
        );
    });
}

#[test]
fn incomplete_record_is_reported() {
    if !needs(&["unshare"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let mounts = "mount --bind README /dev/fuse; mount -o remount,bind,ro /dev/fuse";
        project
            .sh_bare(&format!(
                "unshare -Urm sh -ec '{mounts}; exec {} run -- false'",
                project.binary().display()
            ))
            .expect_status(1);
        let text = last(&project, &[]).expect_status(0).text();
        let expected = "no denials were recorded, but without /dev/fuse denied reads go unreported; the program itself returned exit status 1";
        assert_eq!(text.lines().last(), Some(expected), "{user}");
    });
}

#[test]
fn cause_of_the_failure_is_listed_before_optional_denials() {
    if !fuse_for_all() || !needs(&["curl"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh("cat /sys/kernel/uevent_seqnum; curl -sS http://registry.example.org/; exit 6")
            .expect_status(6);
        let text = last(&project, &[]).expect_status(1).text();
        let (host, noise) = text
            .split_once("read /sys/kernel/uevent_seqnum: refused")
            .unwrap_or_else(|| panic!("{user}: {text}"));
        assert!(
            host.contains("  change  ringfence run --allow-host registry.example.org"),
            "{user}: {text}"
        );
        assert!(
            noise.contains(
                "  note    the program works without it: this is not why the command failed"
            ),
            "{user}: {text}"
        );
        assert!(!text.contains("--read /sys"), "{user}: {text}");
        let said = last_json(&project, &[]);
        let optional: Vec<&Value> =
            said["denials"].as_array().unwrap().iter().map(|denial| &denial["optional"]).collect();
        assert_eq!(optional, [&Value::Bool(false), &Value::Bool(true)], "{user}: {said}");
    });
}

#[test]
fn empty_env_file_is_proposed_for_a_denied_one() {
    each_user(|user| {
        let project = project(user);
        let proposal = "ringfence configure set filesystem.env-files empty";
        project.sh("cat .env").expect_status(1);
        for words in [["explain", "--last"].as_slice(), &["explain", "read", ".env"]] {
            let text = TestOutput::run(project.ringfence().args(words), b"").text();
            assert!(text.contains(proposal), "{user}: {text}");
        }
        let write =
            TestOutput::run(project.ringfence().args(["explain", "write", ".env"]), b"").text();
        assert!(!write.contains(proposal), "{user}: {write}");
        // The proposal is a command that works.
        TestOutput::run(
            project.ringfence().args(["configure", "set", "filesystem.env-files", "empty"]),
            b"",
        )
        .ok();
        assert_eq!(project.sh("cat .env").ok(), "", "{user}");
        let after =
            TestOutput::run(project.ringfence().args(["explain", "read", ".env"]), b"").text();
        assert!(!after.contains(proposal), "{user}: {after}");
    });
}
