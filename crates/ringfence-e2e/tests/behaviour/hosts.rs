//! `explain` for hosts: the deciding rule, its line, and invalid rules.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ringfence_testkit::{TestOutput, TestProject, each_user, needs};
use serde_json::Value;

use crate::project;

const POLICY: &str = "version = 1
[network]
allow = [
  \"*.example.org:443\", # ours
  \"10.0.0.0/8\",
]
deny = [\"evil.example.org\", \"10.6.6.0/24\"]
";

fn with_policy(project: &TestProject, text: &str) {
    project.write_at(&project.home().join(".config/ringfence/policy.toml"), text);
}

#[track_caller]
fn explain(project: &TestProject, words: &[&str]) -> TestOutput {
    TestOutput::run(project.ringfence().args(["explain", "connect"]).args(words), b"")
}

#[test]
fn host_denial_names_its_rule_in_every_spelling() {
    each_user(|user| {
        let project = project(user);
        with_policy(&project, POLICY);
        for spelling in [
            "evil.example.org:443",
            "EVIL.Example.ORG:443",
            "evil.example.org.:443",
            "evil.example.org",
        ] {
            let said = explain(&project, &[spelling]).expect_status(1).text();
            for expected in
                ["denied", "deny evil.example.org", ".config/ringfence/policy.toml:7 (user policy)"]
            {
                assert!(said.contains(expected), "{user} {spelling}: {expected} is not in {said}");
            }
        }
        for spelling in [
            "10.6.6.1:80",
            "10.394753:80",
            "0x0a060601:80",
            "168166913:80",
            "[::ffff:10.6.6.1]:80",
            "[64:ff9b::10.6.6.1]:80",
        ] {
            let said = explain(&project, &[spelling]).expect_status(1).text();
            assert!(said.contains("deny 10.6.6.0/24"), "{user} {spelling}: {said}");
        }
    });
}

#[test]
fn allowed_host_names_its_rule_and_route() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && git remote add origin https://git.example.net:8443/x").ok();
        with_policy(&project, &format!("{POLICY}git = true\n"));
        for (target, expected) in [
            (
                "a.b.example.org:443",
                &[
                    "allow *.example.org:443",
                    "policy.toml:4 (user policy)",
                    "TLS connection must name it",
                ][..],
            ),
            ("10.1.2.3:5432", &["allow 10.0.0.0/8", "policy.toml:5 (user policy)"]),
            (
                "git.example.net:8443",
                &["allow git.example.net:8443 (remote origin)", "policy.toml:8 (user policy)"],
            ),
            ("git.example.net:22", &["(remote origin)"]),
        ] {
            let said = explain(&project, &[target]).expect_status(0).text();
            for expected in expected {
                assert!(said.contains(expected), "{user} {target}: {expected} is not in {said}");
            }
        }
        explain(&project, &["git.example.net:80"]).expect_status(1);
    });
}

/// A command cannot open a host by naming it in a repository of its own.
#[test]
fn git_remote_added_by_a_command_is_not_open() {
    if !needs(&["git"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        with_policy(&project, &format!("{POLICY}git = true\n"));
        let line = "git init -q . && git remote add origin https://git.example.net/x";
        let mut running = project.ringfence();
        running
            .args(["run", "-c", &format!("{line}; echo ready; read x")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut running = running.spawn().expect("ringfence starts");
        BufReader::new(running.stdout.take().expect("piped just above"))
            .read_line(&mut String::new())
            .expect("it says something");
        explain(&project, &["git.example.net"]).expect_status(1);
        drop(running.stdin.take());
        assert!(running.wait().expect("it ends").code().is_some(), "{user}");
        explain(&project, &["git.example.net"]).expect_status(1);
        project.sh("git remote set-url origin https://other.example.net/x").ok();
        explain(&project, &["other.example.net"]).expect_status(1);
        // A remote that the user added is open.
        project.sh_bare("git remote set-url origin https://mine.example.net/x").ok();
        explain(&project, &["mine.example.net"]).expect_status(0);
        project.sh("git status >/dev/null").ok();
        explain(&project, &["mine.example.net"]).expect_status(0);
    });
}

#[test]
fn unlisted_host_gets_a_proposed_rule() {
    each_user(|user| {
        let project = project(user);
        with_policy(&project, POLICY);
        let change = |target: &str| {
            let ran = explain(&project, &["--json", target]);
            ran.expect_status(1);
            let said: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
            said["answers"][0]["change"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
        };
        assert!(
            change("example.org:443")
                .starts_with("ringfence run --allow-host example.org:443, or for good: ringfence allow host example.org:443")
        );
        assert!(change("a.example.org:80").contains("--allow-host a.example.org:80"));
        assert!(change("[2606:4700::1]:443").contains("--allow-host [2606:4700::1]:443"));
        assert!(change("169.254.169.254:80").contains("--allow-host 169.254.169.254:80"));
        assert!(change("localhost:5432").contains("--allow-localhost 5432"));
    });
}

#[test]
fn every_host_rule_is_shown_with_its_line() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && git remote add origin git@github.com:me/x.git").ok();
        with_policy(&project, &format!("{POLICY}localhost = [5432]\ngit = true\nsni = \"off\"\n"));
        let flags = [
            "--allow-host",
            "b.org:22",
            "--deny-host",
            "c.org",
            "--allow-localhost",
            "3000",
            "--bind",
            "8080",
        ];
        let shown = TestOutput::run(
            project.ringfence().args(["policy", "show", "--origin"]).args(flags),
            b"",
        )
        .ok();
        let line = |start: &str| {
            shown
                .lines()
                .find(|line| line.trim_start().starts_with(start))
                .unwrap_or_else(|| panic!("{start} in {shown}"))
        };
        for (entry, origin) in [
            ("mode = allow-list", "policy.toml:4 (user policy)"),
            ("allow *.example.org:443", "policy.toml:4 (user policy)"),
            ("allow 10.0.0.0/8", "policy.toml:5 (user policy)"),
            ("allow b.org:22", "a flag"),
            ("allow github.com:22 (remote origin)", "policy.toml:9 (user policy)"),
            ("deny c.org", "a flag"),
            ("localhost = [5432]", "policy.toml:8 (user policy)"),
            ("localhost = [3000]", "a flag"),
            ("bind = [8080]", "a flag"),
            ("sni = off", "policy.toml:10 (user policy)"),
        ] {
            assert!(line(entry).ends_with(origin), "{user}: {}", line(entry));
        }
    });
}

/// Promise: broken-policy, other-hosts
#[test]
fn invalid_host_is_refused_before_anything_runs() {
    each_user(|user| {
        let project = project(user);
        let check = |flags: &[&str], expected: &[&str]| {
            let ran = TestOutput::run(
                project.ringfence().arg("run").args(flags).args(["-c", "touch ran"]),
                b"",
            );
            ran.expect_status(125);
            for expected in expected {
                assert!(
                    ran.stderr_text().contains(expected),
                    "{user} {flags:?}: {expected} is not in {}",
                    ran.stderr_text()
                );
            }
            assert!(!project.at("ran").exists(), "{user} {flags:?}");
        };
        check(&["--allow-host", ""], &["`--allow-host ` is no host: it is empty", "hint: "]);
        check(&["--allow-host", "a.org:0"], &["`0` is no port", "65535"]);
        check(&["--allow-host", "a.org:65536"], &["`65536` is no port"]);
        check(&["--allow-host", "https://a.org/x"], &["it is a URL", "`a.org`"]);
        check(
            &["--allow-host", "127.1"],
            &["it is the address 127.0.0.1, not a name", "write `127.0.0.1`"],
        );
        check(&["--allow-host", "*"], &["it matches every host"]);
        check(&["--allow-host", "b\u{fc}cher.de"], &["it is not ASCII", "xn--"]);
        check(&["--deny-host", "fe80::1%eth0"], &["zone"]);
        check(&["--allow-localhost", "0"], &["0 is not in 1..=65535"]);
        check(&["--bind", "65536"], &["invalid value '65536'", "a number from 1 to 65535"]);
        for (text, expected) in [
            ("[network]\nalow = []", "policy.toml:3:1: unknown key `alow`"),
            ("[network]\nallow = [\"\"]", "policy.toml:3:10: `` is no host: it is empty"),
            (
                "[network]\nallow = [\"a.org\", \"b..org\"]",
                "policy.toml:3:22: `b..org` is no host: a label between two dots is empty",
            ),
            ("[network]\nsni = \"maybe\"", "policy.toml:3:7: unknown variant `maybe`"),
            (
                "[[secrets]]\nenv = \"T\"\nhosts = [\"a.org\"]\nheader = \"A B\"",
                "policy.toml:5:10: `A B` is not a value for `secrets.header`",
            ),
            (
                "[[secrets]]\nenv = \"LD_PRELOAD\"\nhosts = [\"a.org\"]\nheader = \"X\"",
                "policy.toml:3:7: `LD_PRELOAD` is not a value for `secrets.env`",
            ),
        ] {
            with_policy(&project, &format!("version = 1\n{text}\n"));
            check(&[], &[expected, "hint: "]);
        }
    });
}
