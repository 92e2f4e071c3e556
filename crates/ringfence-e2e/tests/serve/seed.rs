//! The source document of the service, sentence by sentence; docs/service.md has the table.

use ringfence_testkit::each_user;
use serde_json::json;

use crate::archives::{TestArchiveEntry, zip, zip_of};
use crate::stage::{SKILL, Service};

/// A skill with a script and a subdirectory.
fn tool(service: &Service) {
    let files = [
        ("tool/SKILL.md", SKILL),
        ("tool/run.py", "print('ran')\n"),
        ("tool/data/lines.txt", "one\ntwo\nthree\n"),
        ("other/SKILL.md", SKILL),
    ];
    service.upload("alice", "helper", &files).is(200);
}

#[test]
fn all_six_endpoints_work() {
    each_user(|user| {
        let service = Service::start(user);
        let uploaded = service
            .upload(
                "alice",
                "helper",
                &[("tool/SKILL.md", SKILL), ("tool/run.py", "print('ran')\n")],
            )
            .is(200);
        assert_eq!(uploaded["skills"][0]["skillId"], "tool");
        let listed = service.get("/v1/skills/alice/helper/list").is(200);
        assert_eq!(listed["skills"][0]["description"], "does things");
        let files = service.get("/v1/skills/alice/helper/tool/files").is(200);
        let paths: Vec<&str> = files["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["path"].as_str())
            .collect();
        assert_eq!(paths, ["SKILL.md", "run.py"]);
        let content = service.get("/v1/skills/alice/helper/tool/content?path=run.py").is(200);
        assert_eq!(content["content"], "print('ran')\n");
        let change = json!({ "path": "run.py", "content": "print('changed')\n" });
        service.put("/v1/skills/alice/helper/tool/edit", &change).is(200);
        let result = service.execute("alice/helper/tool", "python3 run.py").is(200);
        assert_eq!(
            (result["stdout"].as_str(), result["exitCode"].as_i64()),
            (Some("changed\n"), Some(0)),
            "{result}"
        );
        for field in [
            "stderr",
            "blocked",
            "denials",
            "timedOut",
            "truncated",
            "durationMs",
            "usage",
            "enforced",
            "gaps",
            "breaches",
        ] {
            assert!(result.get(field).is_some(), "{field}: {result}");
        }
        service.delete("/v1/skills/alice/helper/tool").is(204);
        service.execute("alice/helper/tool", "ls").fails(404, "no-skill");
    });
}

#[test]
fn skills_are_kept_by_user_agent_and_name() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        assert!(service.data().join("skills/alice/helper/tool/run.py").is_file());
    });
}

#[test]
fn upload_replaces_exactly_the_skills_it_contains() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        service.execute("alice/helper/tool", "touch left-by-a-run").is(200);
        let uploaded = service
            .upload("alice", "helper", &[("tool/SKILL.md", SKILL), ("tool/new.py", "")])
            .is(200);
        assert_eq!(uploaded["skills"][0]["replaced"], true);
        let files = service.get("/v1/skills/alice/helper/tool/files").is(200);
        let paths: Vec<&str> = files["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["path"].as_str())
            .collect();
        assert_eq!(paths, ["SKILL.md", "new.py"]);
        let listed = service.get("/v1/skills/alice/helper/list").is(200);
        let names: Vec<&str> = listed["skills"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|skill| skill["skillId"].as_str())
            .collect();
        assert_eq!(names, ["other", "tool"]);
    });
}

#[test]
fn archive_with_paths_outside_is_refused() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        for name in
            ["../evil", "tool/../../evil", "/tmp/evil", "tool/a/../../../evil", "tool\\..\\evil"]
        {
            let archive = zip(&[("tool/SKILL.md", SKILL.as_bytes()), (name, b"evil")]);
            let problem = service.upload_bytes("alice", "helper", &archive).is(400);
            assert!(problem["message"].as_str().unwrap().contains("evil"), "{problem}");
        }
        let link = TestArchiveEntry { name: "tool/link", content: b"/etc/passwd", mode: 0o120_777 };
        let head =
            TestArchiveEntry { name: "tool/SKILL.md", content: SKILL.as_bytes(), mode: 0o100_644 };
        service.upload_bytes("alice", "helper", &zip_of(&[head, link])).is(400);
        // The earlier skill is unchanged.
        assert_eq!(
            service.execute("alice/helper/tool", "python3 run.py").is(200)["stdout"],
            "ran\n"
        );
        let refused = service.audit("alice", "&operation=upload&blocked=true");
        assert_eq!(refused.len(), 6, "{refused:?}");
    });
}

#[test]
fn only_the_seventeen_listed_programs_run() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let lines = [
            "python3 -c 'print(1)'",
            "bash -c 'echo 1'",
            "sh -c 'echo 1'",
            "ls",
            "cat run.py",
            "mkdir made",
            "touch made/x",
            "cp run.py made/y",
            "mv made/y made/z",
            "rm made/x",
            "echo 1 | tee made/t",
            "echo 1",
            "grep one data/lines.txt",
            "sed s/one/two/ data/lines.txt",
            "find . -name run.py",
            "chmod 600 run.py",
            "echo run.py | xargs ls",
        ];
        for line in lines {
            let result = service.execute("alice/helper/tool", line).is(200);
            assert_eq!(
                (result["exitCode"].as_i64(), result["blocked"].as_bool()),
                (Some(0), Some(false)),
                "{line}: {result}"
            );
        }
        let others = [
            "curl example.org",
            "perl -e 1",
            "wget x",
            "nc -l 1",
            "git status",
            "env",
            "chown 0 x",
            "ln -s a b",
            "./run.py",
            "/tmp/x",
            "dd",
        ];
        for line in others.into_iter().chain([
            "ls; id",
            "echo $(id)",
            "bash -c id",
            "xargs id",
            "find . -exec id ';'",
            "$(echo id)",
        ]) {
            let result = service.execute("alice/helper/tool", line).is(200);
            assert_eq!(
                (result["exitCode"].as_i64(), result["blocked"].as_bool()),
                (Some(126), Some(true)),
                "{line}: {result}"
            );
        }
    });
}

#[test]
fn arguments_with_paths_outside_are_refused() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let lines = [
            "cat ../other/SKILL.md",
            "ls ..",
            "cat /etc/passwd",
            "cat /root/x",
            "ls /proc/self",
            "cat /dev/sda",
            "ls /sys/",
            "ls /boot/",
            "ls --privileged",
            "echo eval",
            "echo exec",
            "cat '/e'tc/passwd",
            "ls /home",
            "cat --file=/var/lib/x",
            "rm -rf /",
            "chmod 777 /etc",
        ];
        for line in lines {
            let result = service.execute("alice/helper/tool", line).is(200);
            assert_eq!(
                (result["exitCode"].as_i64(), result["blocked"].as_bool()),
                (Some(126), Some(true)),
                "{line}: {result}"
            );
            assert!(
                result["blockedReason"].as_str().is_some_and(|reason| !reason.is_empty()),
                "{result}"
            );
        }
        let own = service.data().join("skills/alice/helper/tool/run.py");
        let result =
            service.execute("alice/helper/tool", &format!("cat {}", own.display())).is(200);
        assert_eq!(result["stdout"], "print('ran')\n", "{result}");
        assert!(service.audit("alice", "&blocked=true").len() >= lines.len());
    });
}

#[test]
fn environment_is_exactly_as_documented() {
    each_user(|user| {
        let project = Service::start(user).end().0;
        let variables = [
            ("RINGFENCE_ADMIN_TOKEN", crate::stage::ADMIN),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("DB_PASSWORD", "hunter2"),
            ("LC_ALL", "C.UTF-8"),
            ("LANG", "C.UTF-8"),
        ];
        let service = Service::start_with(project, &[], &variables);
        tool(&service);
        let line = "python3 -c 'import os, json; print(json.dumps(dict(os.environ)))'";
        let result = service.execute("alice/helper/tool", line).is(200);
        let seen: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(result["stdout"].as_str().unwrap()).expect("JSON");
        let mut names: Vec<&str> = seen.keys().map(String::as_str).collect();
        // Variables that bash sets by itself.
        names.retain(|name| !["SHLVL", "_", "OLDPWD", "LC_CTYPE"].contains(name));
        names.sort_unstable();
        assert_eq!(names, ["HOME", "LANG", "LC_ALL", "PATH", "PWD", "USER"]);
        assert_eq!(seen["PATH"], "/usr/local/bin:/usr/bin:/bin");
        assert_eq!(
            seen["PWD"],
            service.data().join("skills/alice/helper/tool").display().to_string()
        );
    });
}

#[test]
fn command_runs_in_the_directory_of_its_skill() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        service.execute("alice/helper/tool", "mkdir tmp && echo x > tmp/y").is(200);
        assert!(service.data().join("skills/alice/helper/tool/tmp/y").is_file());
    });
}

#[test]
fn timeout_kills_the_whole_process_tree() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let body = json!({ "command": "python3 -c 'import time; time.sleep(60)' & python3 -c 'import time; time.sleep(60)'", "timeoutMs": 500 });
        let result = service.post("/v1/skills/alice/helper/tool/execute", &body).is(200);
        assert_eq!(
            (result["timedOut"].as_bool(), result["exitCode"].as_i64()),
            (Some(true), Some(124)),
            "{result}"
        );
        assert_eq!(result["breaches"][0]["limit"], "wall", "{result}");
        assert!(ringfence_testkit::processes_with("time.sleep(60)").is_empty());
        let too_long = json!({ "command": "ls", "timeoutMs": 300_001 });
        service.post("/v1/skills/alice/helper/tool/execute", &too_long).fails(400, "timeout");
    });
}

#[test]
fn lines_are_read_and_replaced() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let at = "/v1/skills/alice/helper/tool";
        let content =
            service.get(&format!("{at}/content?path=data/lines.txt&start=2&end=3")).is(200);
        assert_eq!(
            (content["content"].as_str(), content["totalLines"].as_u64()),
            (Some("two\nthree\n"), Some(3))
        );
        let change = json!({ "path": "data/lines.txt", "start": 2, "end": 2, "content": "TWO\nmore\n", "expect": content["etag"] });
        let edited = service.put(&format!("{at}/edit"), &change).is(200);
        assert_eq!(edited["totalLines"], 4);
        let whole = service.get(&format!("{at}/content?path=data/lines.txt")).is(200);
        assert_eq!(whole["content"], "one\nTWO\nmore\nthree\n");
        // Another client changed the file first.
        service.put(&format!("{at}/edit"), &change).fails(409, "changed");
        for path in
            ["../other/SKILL.md", "/etc/passwd", "", "data", "nothing", "data/../../other/SKILL.md"]
        {
            let reply = service.get(&format!("{at}/content?path={path}"));
            assert!([400, 404].contains(&reply.status), "{path}: {}", reply.text());
        }
        service.get(&format!("{at}/content?path=data/lines.txt&start=3&end=2")).fails(400, "lines");
    });
}
