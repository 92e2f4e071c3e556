//! `observe = "all"` reports allowed accesses, and changes nothing else.

use ringfence_testkit::{TestOutput, TestProject, each_user, fuse_for_all, needs};
use serde_json::Value;

use crate::project;

fn outcome(ran: &TestOutput) -> Value {
    serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error} in `{}`\n{}", ran.text(), ran.stderr_text()))
}

/// The entries of a list, each as `operation target program count`.
fn entries(project: &TestProject, list: &Value) -> Vec<String> {
    let (home, root) = (
        project.home().to_string_lossy().into_owned(),
        project.root().to_string_lossy().into_owned(),
    );
    let entries =
        list.as_array().unwrap_or_else(|| panic!("no list: {list}")).iter().map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let program = text("program")
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .replace("dash", "sh")
                .replace("bash", "sh");
            format!(
                "{} {} {program} {}",
                text("operation"),
                text("target").replace(&root, "PROJECT").replace(&home, "~"),
                entry["count"]
            )
        });
    entries.collect()
}

/// The allowed accesses in the project while a shell line ran.
fn allowed_in_project(project: &TestProject, flags: &[&str], line: &str) -> (Value, Vec<String>) {
    let said = outcome(&project.run(flags.iter().copied().chain([
        "--json",
        "--observe",
        "all",
        "-c",
        line,
    ])));
    let mut allowed = entries(project, &said["allowed"]);
    allowed.retain(|entry| entry.contains(" PROJECT") || entry.contains(" ~"));
    (said, allowed)
}

/// Promise: observe-all
#[test]
fn opened_and_made_files_are_reported_once_with_a_count() {
    each_user(|user| {
        let project = project(user);
        let line = "cat README README; cat ./src/../README; echo x > new; echo y >> new; mkdir d; mv new d/moved; cat nowhere; ls -d src";
        let (said, allowed) = allowed_in_project(&project, &[], line);
        let expected = [
            "read PROJECT/README cat 3",
            "create PROJECT/new sh 1",
            "write PROJECT/new sh 1",
            "create PROJECT/d mkdir 1",
            "rename PROJECT/d/moved mv 1",
        ];
        assert_eq!(allowed, expected, "{user}: {}", said["stderr"]);
        assert_eq!(
            (&said["allowedDropped"], &said["denials"]),
            (&0.into(), &serde_json::json!([]))
        );
        let first = said["allowed"]
            .as_array()
            .unwrap()
            .iter()
            .find(|entry| entry["target"].as_str().unwrap().ends_with("/README"));
        let first = first.unwrap();
        assert_eq!(
            (&first["rule"], &first["origin"]),
            (&project.root().to_string_lossy().into(), &"the mode".into())
        );
    });
}

/// Promise: observe-all
#[test]
fn real_paths_and_started_programs_are_reported() {
    each_user(|user| {
        let project = project(user);
        project.write("tool", "#!/bin/sh\necho ran\n");
        project.executable("tool");
        std::os::unix::fs::symlink("README", project.at("link")).unwrap();
        let (said, allowed) = allowed_in_project(&project, &[], "cat link; ./tool");
        assert_eq!(said["stdout"], "hello\nran\n");
        // The interpreter of the script's first line opens the script.
        assert_eq!(
            allowed,
            ["read PROJECT/README cat 1", "execute PROJECT/tool sh 1", "read PROJECT/tool sh 1"],
            "{user}"
        );
        let all = entries(&project, &said["allowed"]);
        assert!(all.iter().any(|entry| entry.starts_with("execute /usr/bin/cat sh 1")), "{all:?}");
        assert!(
            !all.iter().any(|entry| entry.contains(" /proc")
                || entry.contains(" /tmp")
                || entry.contains(" /etc/passwd")),
            "{all:?}"
        );
    });
}

/// Promise: observe-all
#[test]
fn denials_are_reported_as_without_observe() {
    if !fuse_for_all() {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line = "cat ~/notes.txt .env; echo x > .mcp.json; cat ~/nowhere; ls ~/.ssh; true";
        let plain = outcome(&project.run(["--json", "-c", line]));
        let (observed, allowed) = allowed_in_project(&project, &[], line);
        assert_eq!(
            entries(&project, &observed["denials"]),
            entries(&project, &plain["denials"]),
            "{user}"
        );
        assert_eq!(entries(&project, &plain["denials"]).len(), 4, "{plain}");
        assert_eq!((allowed, plain.get("allowed")), (vec![], None));
        for key in ["exitCode", "stdout", "stderr", "blocked"] {
            assert_eq!(observed[key], plain[key], "{key}");
        }
    });
}

/// `ringfence` without a usable `/dev/fuse`.
fn unwired(project: &TestProject, words: &str) -> TestOutput {
    let line = format!(
        "unshare -Urm sh -ec 'mount --bind README /dev/fuse; mount -o remount,bind,ro /dev/fuse; exec {} {words}'",
        project.binary().display()
    );
    project.sh_bare(&line)
}

#[test]
fn denied_lookups_are_reported_without_fuse() {
    if !needs(&["unshare"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        let line =
            "cat ~/notes.txt .env ~/.ssh/id_rsa ~/nowhere /etc/passwd ~/.npmrc; ls ~ / > /dev/null";
        let said = outcome(&unwired(&project, &format!("run --json --observe all -c \"{line}\"")));
        let expected =
            ["read ~/notes.txt cat 1", "read PROJECT/.env cat 1", "read ~/.ssh/id_rsa cat 1"];
        assert_eq!(entries(&project, &said["denials"]), expected, "{user}: {}", said["stderr"]);
        let plain = outcome(&unwired(&project, &format!("run --json -c \"{line}\"")));
        assert_eq!(plain["denials"], serde_json::json!([]), "{user}");
    });
}

/// Promise: observe-all
#[test]
fn connections_are_reported_with_and_without_a_network() {
    each_user(|user| {
        let project = project(user);
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let here = server.local_addr().unwrap();
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let line = |address: &str| {
            format!(
                "import socket; s = socket.socket(); s.settimeout(2)\ntry: s.connect({address})\nexcept OSError as e: print(e.errno)"
            )
        };
        let connect = format!("('127.0.0.1', {})", here.port());
        let open = outcome(&project.run([
            "--json",
            "--observe",
            "all",
            "--net",
            "full",
            "--",
            python,
            "-c",
            &line(&connect),
        ]));
        let allowed = entries(&project, &open["allowed"]);
        let found = allowed
            .iter()
            .find(|entry| entry.starts_with("connect "))
            .unwrap_or_else(|| panic!("{allowed:?}"));
        assert!(found.starts_with(&format!("connect {here} ")), "{found}");
        // Addresses reserved for documentation, which are unreachable.
        let far = line("('192.0.2.1', 443)");
        let shut = outcome(&project.run([
            "--json",
            "--observe",
            "all",
            "--",
            python,
            "-c",
            &format!("{far}\n{}", line(&connect)),
        ]));
        let denials = entries(&project, &shut["denials"]);
        let local = format!("connect localhost:{} python3", here.port());
        assert!(
            denials.len() == 2
                && denials[0].starts_with("connect 192.0.2.1:443 python3")
                && denials[1].starts_with(&local),
            "{denials:?}"
        );
        assert_eq!(shut["denials"][0]["rule"], "network.mode = none");
        assert!(
            entries(&project, &shut["allowed"]).iter().all(|entry| !entry.starts_with("connect"))
        );
    });
}

/// Promise: observe-all
#[test]
fn observed_accesses_are_audited() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\nobserve = \"all\"\n");
        project.sh("cat README README").ok();
        let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
        let records: Vec<Value> =
            log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ours = project.root().join("README");
        let record = records
            .iter()
            .find(|record| record["target"] == ours.to_string_lossy().as_ref())
            .expect("it was opened");
        assert_eq!(
            (&record["operation"], &record["result"], &record["count"], record.get("reason")),
            (&"read".into(), &"allowed".into(), &2.into(), None)
        );
        let last = records.last().unwrap();
        assert_eq!((&last["operation"], last.get("allowedDropped")), (&"exit".into(), None));
        assert_eq!(last["allowed"].as_u64().unwrap() as usize, records.len() - 2);
        TestOutput::run(project.ringfence().args(["log", "--verify"]), b"").ok();
    });
}

/// Promise: observe-all
#[test]
fn kept_observations_are_bounded_and_the_rest_is_counted() {
    each_user(|user| {
        let project = project(user);
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let code = "import os\nfor n in range(10500): os.close(os.open('f%d' % n, os.O_CREAT | os.O_WRONLY))";
        let said = outcome(&project.run(["--json", "--observe", "all", "--", python, "-Sc", code]));
        assert_eq!(said["exitCode"], 0, "{}", said["stderr"]);
        let (kept, dropped) =
            (said["allowed"].as_array().unwrap().len(), said["allowedDropped"].as_u64().unwrap());
        assert!(kept == 10_000 && (500..2000).contains(&dropped), "{kept} {dropped}");
    });
}

#[test]
fn masks_and_denials_hold_in_a_read_only_project() {
    each_user(|user| {
        let project = project(user);
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let code = "import os
for mask in 0o27, 0, 0o77:
    os.umask(mask)
    os.mkdir('/tmp/%o' % mask)
    print('%o' % os.stat('/tmp/%o' % mask).st_mode)
open('README')
open('new', 'w')";
        let said = outcome(&project.run([
            "--json",
            "--observe",
            "all",
            "--mode",
            "read-only",
            "--",
            python,
            "-c",
            code,
        ]));
        assert_eq!(said["stdout"], "40750\n40777\n40700\n", "{user}: {}", said["stderr"]);
        assert!(!project.has("new") && said["exitCode"] == 1);
        let allowed = entries(&project, &said["allowed"]);
        assert!(
            allowed.iter().any(|entry| entry.starts_with("read PROJECT/README ")),
            "{allowed:?}"
        );
    });
}

#[test]
fn observe_setting_is_shown_with_its_origin() {
    each_user(|user| {
        let project = project(user);
        let show = |words: &[&str]| {
            TestOutput::run(
                project.ringfence().args(["policy", "show", "--origin"]).args(words),
                b"",
            )
            .ok()
        };
        assert!(show(&[]).contains("observe = denials"), "{}", show(&[]));
        project.write(".ringfence/policy.toml", "version = 1\n\nobserve = \"all\"\n");
        let line = show(&[])
            .lines()
            .find(|line| line.contains("observe = all"))
            .map(str::to_owned)
            .expect("it is shown");
        assert!(line.ends_with(".ringfence/policy.toml:3 (project policy)"), "{line}");
        let plan = TestOutput::run(project.ringfence().arg("plan"), b"").ok();
        assert!(plan.contains("observe every file opened"), "{plan}");
        project.write(".ringfence/policy.toml", "version = 1\nobserve = \"al\"\n");
        TestOutput::run(project.ringfence().args(["policy", "check"]), b"").expect_status(125);
    });
}
