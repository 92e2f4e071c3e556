//! `ringfence learn`: the proposed policy is valid, lets the command succeed, and opens no
//! deliberate denial.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

#[track_caller]
fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(words), b"")
}

/// The allowing lines of a policy, and the comments at its end.
fn parts(text: &str) -> (Vec<String>, Vec<String>) {
    let lines = |start: &str| {
        text.lines()
            .filter(|line| line.starts_with(start))
            .map(|line| line.trim().to_owned())
            .collect()
    };
    let comments: Vec<String> = lines("# ");
    (
        lines("  \""),
        comments
            .into_iter()
            .skip_while(|line| !line.starts_with("# `ringfence learn --policy FILE`"))
            .skip(1)
            .collect(),
    )
}

/// Learns from a shell line until nothing is added; returns the policy and the number of rounds.
#[track_caller]
fn learn(project: &TestProject, line: &str) -> (String, usize) {
    let file = project.home().join("learned.toml");
    let name = file.to_string_lossy().into_owned();
    ringfence(project, &["learn", "--output", &name, "-c", line]).ok();
    for round in 1..8 {
        ringfence(project, &["policy", "check", "--as", "user", &name]).ok();
        let before = fs::read_to_string(&file).unwrap();
        let again = ringfence(
            project,
            &["learn", "--json", "--policy", &name, "--output", &name, "-c", line],
        );
        let said: Value = serde_json::from_str(&again.ok()).unwrap();
        let opens = |text: &str| {
            parts(text)
                .0
                .iter()
                .map(|line| line.split(" # ").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let after = fs::read_to_string(&file).unwrap();
        assert_eq!(said["policy"], after.as_str());
        if said["proposed"] == serde_json::json!([]) {
            assert_eq!(opens(&before), opens(&after), "{after}");
            return (after, round);
        }
    }
    panic!("no end of it: {}", fs::read_to_string(&file).unwrap());
}

/// The denials of a shell line under the learnt policy.
fn refused(project: &TestProject, line: &str) -> (Value, Vec<String>) {
    let name = project.home().join("learned.toml").to_string_lossy().into_owned();
    let said: Value =
        serde_json::from_str(&project.run(["--json", "--policy", &name, "-c", line]).text())
            .unwrap();
    let home = project.home().to_string_lossy().into_owned();
    let targets = said["denials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|denial| denial["target"].as_str().unwrap().replace(&home, "~"));
    let targets = targets.collect();
    (said, targets)
}

/// Promise: learned-policy
#[test]
fn proposed_policy_lets_the_command_succeed() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        for name in [
            "data/a",
            "data/b",
            "data/c",
            "data/d",
            "data/.env",
            "lib/one.txt",
            "tools/run",
            "out/kept",
        ] {
            project.write_at(&home.join(name), "#!/bin/sh\necho said\n");
        }
        project.sh_bare("chmod +x ~/tools/run").ok();
        let line = "cat ~/data/a ~/data/b ~/data/c ~/data/d > /dev/null; cat ~/lib/one.txt; ~/tools/run; echo x > ~/out/new; echo y >> ~/out/kept";
        let (before, denied) = refused_without(&project, line);
        assert!(denied.len() >= 8 && before["exitCode"] != 0, "{denied:?}");
        let (policy, _) = learn(&project, line);
        let (opened, left) = parts(&policy);
        let texts: Vec<&str> = opened.iter().map(|line| line.split('"').nth(1).unwrap()).collect();
        assert_eq!(texts, ["~/data", "~/lib/one.txt", "~/tools/run", "~/out"], "{user}: {policy}");
        assert_eq!(left, Vec::<String>::new());
        let (said, denied) = refused(&project, line);
        assert_eq!(
            (&said["exitCode"], &said["blocked"], denied),
            (&0.into(), &false.into(), vec![]),
            "{user}: {said}"
        );
        assert_eq!(fs::read_to_string(home.join("out/new")).unwrap(), "x\n");
        // The directory is open, the secret in it is not.
        assert!(
            !project
                .run([
                    "--policy",
                    &home.join("learned.toml").to_string_lossy(),
                    "-c",
                    "cat ~/data/.env"
                ])
                .text()
                .contains("said")
        );
    });
}

fn refused_without(project: &TestProject, line: &str) -> (Value, Vec<String>) {
    project.write_at(&project.home().join("learned.toml"), "version = 1\n");
    let found = refused(project, line);
    fs::remove_file(project.home().join("learned.toml")).unwrap();
    found
}

#[test]
fn each_line_names_program_count_and_denying_rule() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        for name in ["data/a", "data/b", "data/c", "data/d"] {
            project.write_at(&home.join(name), "");
        }
        symlink(home.join("code/other/main.rs"), project.at("link")).unwrap();
        let line = "cat ~/notes.txt ~/notes.txt ~/notes.txt; cat ~/data/a ~/data/b ~/data/c ~/data/d; cat link";
        let ran = ringfence(&project, &["learn", "--", "sh", "-c", line]);
        let (opened, _) = parts(&ran.ok());
        let expected = [
            "\"~/code/other/main.rs\", # read once by cat; nothing opens it",
            "\"~/data\", # 4 paths in it, read 4 times by cat; nothing opens it",
            "\"~/notes.txt\", # read 3 times by cat; nothing opens it",
        ];
        assert_eq!(opened, expected, "{user}");
    });
}

/// Promise: learned-policy
#[test]
fn deliberate_denials_are_named_and_never_proposed() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        project.write_at(&home.join("plain/.env"), SECRET);
        project.write_at(&home.join("plain/x"), "");
        project.write_at(&home.join(".bashrc"), "");
        project.write_at(&home.join("code/other/.git/HEAD"), "");
        symlink(home.join(".ssh/id_rsa"), home.join("plain/link")).unwrap();
        let line = "cat ~/.ssh/id_rsa .env ~/plain/.env ~/plain/link; echo x >> ~/.bashrc; echo x > .mcp.json; touch ~/new; \
                    ls ~/code/other ~/.config ~/..; unshare -m true; cat ~/plain/x";
        let (policy, _) = learn(&project, line);
        let (opened, left) = parts(&policy);
        assert!(opened.len() == 1 && opened[0].starts_with("\"~/plain/x\","), "{user}: {policy}");
        for (what, why) in [
            ("~/.ssh/id_rsa", "denied on purpose, not proposed: denied by `~/.ssh` (built in)"),
            ("./.env", "denied on purpose, not proposed: denied by `**/.env` (built in)"),
            ("~/plain/.env", "denied on purpose, not proposed: denied by `**/.env` (built in)"),
            ("~/.bashrc", "protected on purpose, not proposed: protected by `.bashrc` (built in)"),
            (
                "./.mcp.json",
                "protected on purpose, not proposed: protected by `.mcp.json` (built in)",
            ),
            ("~/new", "not proposed: it needs a grant for all of ~;"),
            ("~/code/other", "not proposed: it would allow another project, ~/code/other;"),
            ("unshare", "not proposed: no command needs this syscall"),
        ] {
            let start = format!("# {what}: {why}");
            assert!(
                left.iter().any(|line| line.starts_with(&start)),
                "{user}: {start} is not in {left:#?}"
            );
        }
        let (said, denied) = refused(&project, line);
        assert!(
            denied.contains(&"~/.ssh/id_rsa".into()) && denied.contains(&"~/plain/.env".into()),
            "{denied:?}"
        );
        assert!(!said["stdout"].as_str().unwrap().contains(SECRET), "{said}");
    });
}

/// Promise: learned-policy
#[test]
fn learning_continues_in_rounds_until_nothing_is_added() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for name in ["one/x", "two/x", "three/x"] {
            project.write_at(&project.home().join(name), "");
        }
        let line = "cat ~/one/x && cat ~/two/x && cat ~/three/x && cp README ~/three/";
        let (policy, rounds) = learn(&project, line);
        assert!((4..=6).contains(&rounds), "{rounds} rounds: {policy}");
        let (said, denied) = refused(&project, line);
        assert_eq!((&said["exitCode"], denied), (&0.into(), vec![]), "{user}: {policy}");
        // Existing lines are kept and reported as used.
        assert!(policy.contains("\"~/one/x\", # kept: used once by cat"), "{policy}");
    });
}

#[test]
fn flags_of_the_run_become_policy_lines() {
    each_user(|user| {
        let project = project(user);
        let learned = ringfence(
            &project,
            &[
                "learn",
                "--read",
                "~/notes.txt",
                "--write",
                "~/.config",
                "-c",
                "cat ~/notes.txt > /dev/null",
            ],
        )
        .ok();
        let (opened, _) = parts(&learned);
        let expected = [
            "\"~/notes.txt\", # given as `--read ~/notes.txt`: used once by cat",
            "\"~/.config\", # given as `--write ~/.config`: no use seen",
        ];
        assert_eq!(opened, expected, "{user}");
    });
}

#[test]
fn standard_output_has_only_the_policy() {
    each_user(|user| {
        let project = project(user);
        let ran =
            ringfence(&project, &["learn", "-c", "echo from the command; echo more >&2; exit 7"]);
        let text = ran.ok();
        assert!(
            text.starts_with("# Proposed by `ringfence learn` for: /bin/sh -c")
                && !text.lines().any(|line| line == "from the command")
        );
        assert!(text.contains("Exit status 7; nothing was denied."), "{text}");
        assert!(ran.stderr_text().contains("from the command\nmore\n"), "{}", ran.stderr_text());
        ringfence(&project, &["learn", "--mode", "full-access", "--", "true"]).expect_status(125);
        ringfence(&project, &["learn", "--", "no-such-program"]).expect_status(127);
    });
}

/// Promise: learn-output
#[test]
fn policy_is_not_written_to_foreign_files_or_through_links() {
    each_user(|user| {
        let project = project(user);
        let mine = "version = 1 # written by hand, and not by ringfence\n";
        project.write("mine.toml", mine);
        let ran = ringfence(&project, &["learn", "--output", "mine.toml", "--", "touch", "ran"]);
        ran.expect_status(125);
        assert!(
            ran.stderr_text().contains("did not write it") && !project.has("ran"),
            "{}",
            ran.stderr_text()
        );
        assert_eq!(project.read("mine.toml").unwrap(), mine);
        // The command puts a symlink at the policy's path.
        let victim = project.home().join("victim");
        project.write_at(&victim, "# Proposed by `ringfence learn`, and precious");
        let line = format!("ln -sf {} new.toml", victim.display());
        ringfence(&project, &["learn", "--output", "new.toml", "-c", &line]).expect_status(125);
        assert_eq!(
            fs::read_to_string(&victim).unwrap(),
            "# Proposed by `ringfence learn`, and precious"
        );
        // Or replaces the directory by a symlink.
        project.make_directories(&project.at("d"));
        let line = format!("mv d e; ln -s {} d", project.home().display());
        ringfence(&project, &["learn", "--output", "d/new.toml", "-c", &line]).ok();
        assert!(project.has("e/new.toml") && !project.home().join("new.toml").exists());
    });
}

/// Promise: learned-policy
#[test]
fn hostile_names_cannot_add_policy_lines() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        for name in
            ["odd/a\nb = [\"/\"]", "odd/\u{202e}x", "odd/$HOME", "odd/*", "odd/q\"q", "odd/é"]
        {
            project.write_at(&project.home().join(name), "");
        }
        let line = "for f in \"$HOME/odd/a\nb = [\\\"/\\\"]\" $HOME/odd/\u{202e}x $HOME/odd/\\$HOME \"$HOME/odd/*\" $HOME/odd/q\\\"q; do cat \"$f\"; done; cat $HOME/odd/é";
        let (policy, _) = learn(&project, line);
        let (opened, left) = parts(&policy);
        let texts: Vec<&str> =
            opened.iter().map(|line| line.split(", #").next().unwrap()).collect();
        assert_eq!(texts, ["\"~/odd/q\\\"q\"", "\"~/odd/é\""], "{user}: {policy}");
        assert_eq!(
            left.iter().filter(|line| line.contains("a policy cannot contain its name")).count(),
            4,
            "{left:?}"
        );
        assert!(
            !policy.contains('\u{202e}') && !policy.lines().any(|line| line.starts_with("b = ")),
            "{policy}"
        );
    });
}

#[test]
fn learn_works_without_fuse() {
    if !needs(&["unshare"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let mounts = "mount --bind README /dev/fuse; mount -o remount,bind,ro /dev/fuse";
        let line = format!(
            "unshare -Urm sh -ec '{mounts}; exec {} learn -- cat ~/notes.txt ~/.ssh/id_rsa'",
            project.binary().display()
        );
        let (opened, left) = parts(&project.sh_bare(&line).ok());
        assert!(
            opened.len() == 1 && opened[0].starts_with("\"~/notes.txt\", # read once by cat"),
            "{user}: {opened:?}"
        );
        assert!(
            left.len() == 1 && left[0].starts_with("# ~/.ssh/id_rsa: denied on purpose"),
            "{user}: {left:?}"
        );
    });
}

#[test]
fn network_use_is_mentioned() {
    each_user(|user| {
        let project = project(user);
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let code =
            "import socket; s = socket.socket(); s.settimeout(2); s.connect_ex(('192.0.2.1', 443))";
        let text = ringfence(&project, &["learn", "--", python, "-c", code]).ok();
        let (opened, left) = parts(&text);
        assert!(opened.is_empty() && !text.contains("[network]"), "{text}");
        assert!(
            left.iter()
                .any(|line| line.starts_with("# 192.0.2.1:443: not proposed: the network is off")),
            "{user}: {text}"
        );
    });
}

#[test]
fn contacted_hosts_are_proposed_unless_local_or_denied() {
    each_user(|user| {
        let project = project(user);
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let code = "
import socket
for name in ['wanted.example', 'denied.example']:
    try: socket.getaddrinfo(name, 443)
    except OSError: pass
for address in ['8.8.8.8', '10.0.0.1']:
    s = socket.socket(); s.settimeout(2); s.connect_ex((address, 4433))";
        let flags = [
            "--net",
            "allow-list",
            "--allow-host",
            "given.example:443",
            "--deny-host",
            "denied.example",
            "--allow-localhost",
            "3000",
        ];
        let text =
            ringfence(&project, &[&["learn"], &flags[..], &["--", python, "-c", code]].concat())
                .ok();
        let (opened, left) = parts(&text);
        let opens = |start: &str| opened.iter().any(|line| line.starts_with(start));
        assert!(
            opens("\"given.example:443\", # given as `--allow-host given.example:443`"),
            "{user}: {text}"
        );
        assert!(
            opens("\"wanted.example\", # needed; ") && opens("\"8.8.8.8:4433\", # needed; "),
            "{user}: {text}"
        );
        assert!(
            opens("\"denied.example\", # given as `--deny-host") && !text.contains("\"10.0.0.1"),
            "{user}: {text}"
        );
        assert!(text.contains("localhost = [3000]"), "{user}: {text}");
        for start in [
            "# denied.example: not proposed: deny denied.example",
            "# 10.0.0.1:4433: not proposed: it is private",
        ] {
            assert!(
                left.iter().any(|line| line.starts_with(start)),
                "{user}: {start} is not in {text}"
            );
        }
        let file = project.home().join("learned.toml");
        project.write_at(&file, &text);
        ringfence(&project, &["policy", "check", "--as", "user", &file.to_string_lossy()]).ok();
    });
}
