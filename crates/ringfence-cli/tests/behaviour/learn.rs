//! `ringfence learn`: the policy it proposes is good, gives the command what it wanted, and
//! opens nothing that is shut on purpose.

use std::fs;
use std::os::unix::fs::symlink;

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

#[track_caller]
fn ringfence(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::of(project.ringfence().args(words), b"")
}

/// The lines of a policy that open something, and the comments at its end.
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
        comments.into_iter().skip_while(|line| !line.contains("go on with")).skip(1).collect(),
    )
}

/// Learns from a line of shell until nothing is added; answers the policy and how many rounds
/// it took.
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

/// What is refused to a line of shell under the policy that was learnt.
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

/// Promise: P39
#[test]
fn what_is_proposed_gives_the_command_what_it_wanted() {
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
        // The directory is open, what is secret in it is not.
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
fn each_line_says_who_wanted_it_how_often_and_what_refused_it() {
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
            "\"~/data\", # 4 things in it, read 4 times by cat; nothing opens it",
            "\"~/notes.txt\", # read 3 times by cat; nothing opens it",
        ];
        assert_eq!(opened, expected, "{user}");
    });
}

/// Promise: P39
#[test]
fn what_is_shut_on_purpose_is_named_and_never_proposed() {
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
            ("~/new", "not proposed: it would take opening ~;"),
            ("~/code/other", "not proposed: it would open another project, ~/code/other;"),
            ("unshare", "not proposed: no command needs this call"),
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

/// Promise: P39
#[test]
fn a_command_that_gets_further_each_time_is_learnt_in_rounds() {
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
        // What is there already is kept, and said to be of use.
        assert!(policy.contains("\"~/one/x\", # kept: used once by cat"), "{policy}");
    });
}

#[test]
fn flags_of_the_run_become_lines() {
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
            "\"~/.config\", # given as `--write ~/.config`: not seen in use",
        ];
        assert_eq!(opened, expected, "{user}");
    });
}

#[test]
fn the_policy_alone_is_on_standard_output() {
    each_user(|user| {
        let project = project(user);
        let ran =
            ringfence(&project, &["learn", "-c", "echo from the command; echo more >&2; exit 7"]);
        let text = ran.ok();
        assert!(
            text.starts_with("# Proposed by `ringfence learn` for: /bin/sh -c")
                && !text.lines().any(|line| line == "from the command")
        );
        assert!(text.contains("It ended with status 7; nothing was refused."), "{text}");
        assert!(ran.talk().contains("from the command\nmore\n"), "{}", ran.talk());
        ringfence(&project, &["learn", "--mode", "full-access", "--", "true"]).ends(125);
        ringfence(&project, &["learn", "--", "no-such-program"]).ends(127);
    });
}

/// Promise: P40
#[test]
fn a_file_of_somebody_else_is_not_written_to_nor_one_that_the_command_leads_to() {
    each_user(|user| {
        let project = project(user);
        let mine = "version = 1 # written by hand, and not by ringfence\n";
        project.write("mine.toml", mine);
        let ran = ringfence(&project, &["learn", "--output", "mine.toml", "--", "touch", "ran"]);
        ran.ends(125);
        assert!(ran.talk().contains("did not write it") && !project.has("ran"), "{}", ran.talk());
        assert_eq!(project.read("mine.toml").unwrap(), mine);
        // The command puts a link where the policy is to be.
        let victim = project.home().join("victim");
        project.write_at(&victim, "# Proposed by `ringfence learn`, and precious");
        let line = format!("ln -sf {} new.toml", victim.display());
        ringfence(&project, &["learn", "--output", "new.toml", "-c", &line]).ends(125);
        assert_eq!(
            fs::read_to_string(&victim).unwrap(),
            "# Proposed by `ringfence learn`, and precious"
        );
        // Or takes the directory away, with a link in its place.
        project.make_directories(&project.at("d"));
        let line = format!("mv d e; ln -s {} d", project.home().display());
        ringfence(&project, &["learn", "--output", "d/new.toml", "-c", &line]).ok();
        assert!(project.has("e/new.toml") && !project.home().join("new.toml").exists());
    });
}

/// Promise: P39
#[test]
fn hostile_names_stay_in_their_lines() {
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
            left.iter().filter(|line| line.contains("cannot be written in a policy")).count(),
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
fn without_a_tripwire_it_learns_what_is_opened_all_the_same() {
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
fn a_network_that_is_wanted_is_mentioned() {
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
                .any(|line| line.starts_with("# 192.0.2.1:443: not proposed: the network is shut")),
            "{user}: {text}"
        );
    });
}

#[test]
fn hosts_that_are_wanted_are_proposed_and_those_that_are_near_or_denied_are_not() {
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
            opens("\"wanted.example\", # wanted; ") && opens("\"8.8.8.8:4433\", # wanted; "),
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
