//! `ringfence explain --last`: why the last command failed.

use ringfence_testkit::{TestOutput, TestProject, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

#[track_caller]
fn last(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence().args(["explain", "--last"]).args(words), b"")
}

#[track_caller]
fn last_json(project: &TestProject, words: &[&str]) -> Value {
    let ran = last(project, &[&["--json"], words].concat());
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.talk()))
}

/// Promise: P41
#[test]
fn what_was_refused_is_told_with_its_rule_and_what_changes_it() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh("cat ~/notes.txt ~/notes.txt .env; echo x > .mcp.json; unshare -m true; exit 3")
            .ends(3);
        let text = last(&project, &[]).ends(1).text();
        let home = project.home().display().to_string();
        for expected in [
            "the last run in ~/code/app: /bin/sh -c 'cat ~/notes.txt",
            "  policy  the same as now",
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
            "\n4 things were refused; exit status 3",
        ] {
            assert!(text.contains(expected), "{user}: {expected} is not in {text}");
        }
        // The values are those of `explain read`.
        let env = project.at(".env");
        let asked =
            TestOutput::of(project.ringfence().args(["explain", "--json", "read"]).arg(&env), b"");
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

/// Promise: P41
#[test]
fn a_policy_that_was_changed_since_is_told() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.sh("cat ~/notes.txt; cat ~/.netrc").ends(1);
        let policy = project.home().join(".config/ringfence/policy.toml");
        project.write_at(&policy, "version = 1\n[filesystem]\nread = [\"~/notes.txt\"]\n");
        let text = last(&project, &[]).ends(1).text();
        assert!(
            text.contains("policy  not the same as now")
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
            text.contains("  now     refused by another rule: deny ~/notes.txt"),
            "{user}: {text}"
        );
        std::fs::remove_file(&policy).unwrap();
        assert_eq!(last_json(&project, &[])["samePolicy"], true);
        // What is told of a run is no rule.
        project.run(["--observe", "all", "-c", "cat ~/notes.txt"]).ends(1);
        assert_eq!(last_json(&project, &[])["samePolicy"], true);
    });
}

/// Promise: P41
#[test]
fn a_command_that_fails_by_itself_is_told_so() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for (words, expected) in [
            (
                ["-c", "exit 1"].as_slice(),
                "ringfence refused nothing; exit status 1 is the program's own",
            ),
            (&["-c", "true"], "ringfence refused nothing; the command succeeded"),
            (
                &["--observe", "all", "-c", "cat README; exit 4"],
                "ringfence refused nothing; exit status 4 is the program's own",
            ),
            (
                &["--timeout", "300ms", "--", "sleep", "60"],
                "ringfence refused nothing; the time limit ended the command",
            ),
            (
                &["--mode", "full-access", "-c", "exit 2"],
                "nothing was confined, so nothing was refused; exit status 2 is the program's own",
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
        project.run(["--", "true"]).ends(125);
        let text = last(&project, &[]).ends(1).text();
        assert!(text.contains("it was not started: ") && text.contains("network.deny"), "{text}");
    });
}

/// Promise: P41
#[test]
fn the_run_is_that_of_the_project_or_the_one_that_is_named() {
    each_user(|user| {
        let project = project(user);
        let none = last(&project, &[]);
        none.ends(125);
        assert!(none.talk().contains("no run in ~/code/app is on record"), "{}", none.talk());
        project.make_directories(&project.at("sub"));
        project.run(["-C", "sub", "-c", "exit 5"]).ends(5);
        let other = project.home().join("code/other");
        let elsewhere = TestOutput::of(
            project.ringfence().current_dir(&other).args(["run", "--json", "-c", "exit 6"]),
            b"",
        );
        let elsewhere: Value = serde_json::from_slice(&elsewhere.stdout).unwrap();
        assert_eq!(last_json(&project, &[])["exitCode"], 5, "{user}");
        let name = elsewhere["session"].as_str().unwrap();
        assert_eq!(last_json(&project, &["--session", name])["exitCode"], 6);
        assert_eq!(last_json(&project, &["--session", &name[name.len() - 8..]])["exitCode"], 6);
        last(&project, &["--session", "nothing-of-this-name"]).ends(125);
        last(&project, &["read", "README"]).ends(125);
        TestOutput::of(project.ringfence().args(["explain", "read"]), b"").ends(125);
        // One that was killed has no end.
        let mut child = project.ringfence();
        let mut child = child.args(["run", "-c", "touch ready; sleep 60"]).spawn().unwrap();
        assert!(
            ringfence_testkit::soon(std::time::Duration::from_secs(20), || project.has("ready"))
        );
        child.kill().unwrap();
        child.wait().unwrap();
        let said = last_json(&project, &[]);
        assert!(
            said["exitCode"].is_null()
                && said["verdict"].as_str().unwrap().starts_with("it has not ended"),
            "{said}"
        );
    });
}

#[test]
fn hostile_names_steer_no_terminal() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write_at(&project.home().join("\u{1b}[2Jx\nread /: refused"), "");
        project.sh("cat ~/*x*").ends(1);
        project
            .run([
                "--",
                "cat",
                &project.home().join("\u{1b}[2Jx\nread /: refused").to_string_lossy(),
            ])
            .ends(1);
        let text = last(&project, &[]).ends(1).text();
        assert!(
            !text.contains('\u{1b}') && !text.lines().any(|line| line.starts_with("read /:")),
            "{user}: {text}"
        );
    });
}

#[test]
fn a_run_of_which_not_all_is_known_is_told_so() {
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
            .ends(1);
        let text = last(&project, &[]).ends(0).text();
        let expected = "ringfence knows of nothing that was refused, but without /dev/fuse it is not told of reads; exit status 1 is the program's own";
        assert_eq!(text.lines().last(), Some(expected), "{user}");
    });
}

#[test]
fn reason_of_the_failure_is_named_before_what_programs_do_without() {
    if !fuse_for_all() || !needs(&["curl"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project
            .sh("cat /sys/kernel/uevent_seqnum; curl -sS http://registry.example.org/; exit 6")
            .ends(6);
        let text = last(&project, &[]).ends(1).text();
        let (host, noise) = text
            .split_once("read /sys/kernel/uevent_seqnum: refused")
            .unwrap_or_else(|| panic!("{user}: {text}"));
        assert!(
            host.contains("  change  ringfence run --allow-host registry.example.org"),
            "{user}: {text}"
        );
        assert!(
            noise.contains(
                "  note    the program runs without it: this is not why the command failed"
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
fn denied_env_file_is_also_proposed_to_be_found_empty() {
    each_user(|user| {
        let project = project(user);
        let proposal = "ringfence configure set filesystem.env-files empty";
        project.sh("cat .env").ends(1);
        for words in [["explain", "--last"].as_slice(), &["explain", "read", ".env"]] {
            let text = TestOutput::of(project.ringfence().args(words), b"").text();
            assert!(text.contains(proposal), "{user}: {text}");
        }
        let write =
            TestOutput::of(project.ringfence().args(["explain", "write", ".env"]), b"").text();
        assert!(!write.contains(proposal), "{user}: {write}");
        // The proposal is a command that works.
        TestOutput::of(
            project.ringfence().args(["configure", "set", "filesystem.env-files", "empty"]),
            b"",
        )
        .ok();
        assert_eq!(project.sh("cat .env").ok(), "", "{user}");
        let after =
            TestOutput::of(project.ringfence().args(["explain", "read", ".env"]), b"").text();
        assert!(!after.contains(proposal), "{user}: {after}");
    });
}
