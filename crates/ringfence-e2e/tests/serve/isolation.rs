//! Attempts of one tenant to reach another, or the service itself. Rules on command lines are
//! switched off: the sandbox alone must hold.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringfence_testkit::each_user;

use crate::archives::{TestArchiveEntry, zip_of};
use crate::stage::{ADMIN, SKILL, Service};

/// A value that only its own tenant may see.
const SECRET: &str = "bobs-own-secret-41c7";

/// Attempts, as lines for bash. `BOB` is the directory of the other tenant's skill, `DATA` that of
/// the service, `PORT` its port, `PID` its pid, `RUNS` the pid of a process of the other tenant.
const WAYS: &[(&str, &str)] = &[
    ("by its path", "cat BOB/gold.txt"),
    ("up from here", "cat ../../../bob/helper/vault/gold.txt"),
    ("by another path to the same", "cat /proc/self/cwd/../../../bob/helper/vault/gold.txt"),
    ("by the root of this process", "cat /proc/self/root/BOB/gold.txt"),
    ("by the root of process 1", "cat /proc/1/root/BOB/gold.txt"),
    ("by the root of the service", "cat /proc/PID/root/BOB/gold.txt"),
    ("by the directory of the service", "cat /proc/PID/cwd/gold.txt; ls /proc/PID/fd/"),
    (
        "by the other tenant's process",
        "cat /proc/RUNS/root/BOB/gold.txt; cat /proc/RUNS/cwd/gold.txt",
    ),
    ("by every process there is", "cat /proc/[0-9]*/cwd/gold.txt /proc/[0-9]*/root/BOB/gold.txt"),
    (
        "by every descriptor there is",
        "for f in /proc/[0-9]*/fd/*; do cat $f/gold.txt $f/bob/helper/vault/gold.txt; done",
    ),
    ("by a link made now", "ln -s BOB/gold.txt link-a; cat link-a"),
    ("by a link to a directory", "ln -s DATA/skills link-b; cat link-b/bob/helper/vault/gold.txt"),
    ("by a link that is relative", "ln -s ../../../bob link-c; cat link-c/helper/vault/gold.txt"),
    ("by a hard link", "ln BOB/gold.txt hard-a; cat hard-a"),
    (
        "by a hard link from here",
        "ln -L /proc/self/cwd/../../../bob/helper/vault/gold.txt hard-b; cat hard-b",
    ),
    (
        "python's os.open",
        "python3 -c \"import os; print(os.read(os.open('BOB/gold.txt', os.O_RDONLY), 99))\"",
    ),
    (
        "openat from the root",
        "python3 -c \"import os; d=os.open('/', os.O_RDONLY); print(os.read(os.open('BOB/gold.txt'[1:], os.O_RDONLY, dir_fd=d), 99))\"",
    ),
    (
        "a directory that is held while it goes up",
        "python3 -c \"import os; os.chdir('..'); os.chdir('..'); os.chdir('..'); print(os.listdir('.')); print(open('bob/helper/vault/gold.txt').read())\"",
    ),
    (
        "by listing",
        "ls -la DATA DATA/skills DATA/skills/bob; find DATA/skills/bob -type f -exec cat {} +; find / -name gold.txt -exec cat {} + 2>/dev/null",
    ),
    ("a mount", "mkdir -p m; mount --bind BOB m; cat m/gold.txt; unshare -Urm cat BOB/gold.txt"),
    (
        "a new root",
        "python3 -c \"import os; os.chroot('DATA'); print(open('/skills/bob/helper/vault/gold.txt').read())\"",
    ),
    (
        "writing there",
        "echo SPOILT > BOB/gold.txt; echo SPOILT > BOB/new.txt; mkdir DATA/skills/bob/x; rm -rf BOB; mv BOB here; touch DATA/skills/bob/helper/x",
    ),
    (
        "replacing by rename",
        "mkdir evil; mv -T evil BOB; mv evil DATA/skills/bob/helper/vault2; cp -r . DATA/skills/bob/helper/vault3",
    ),
    ("the service's tokens", "cat DATA/tokens.json DATA/key DATA/policy.toml DATA/lock"),
    (
        "the other tenant's log and policy",
        "cat DATA/tenants/bob/audit/00000001.jsonl DATA/tenants/bob/ringfence/policy.toml; ls DATA/tenants",
    ),
    (
        "its own log and policy",
        "cat DATA/tenants/alice/audit/00000001.jsonl; echo 'version = 1' > DATA/tenants/alice/ringfence/policy.toml; echo SPOILT >> DATA/tenants/alice/audit/00000001.jsonl",
    ),
    (
        "what is on its way in",
        "ls DATA/staging DATA/trash; cat DATA/staging/*/*/gold.txt DATA/trash/*/gold.txt",
    ),
    (
        "the variables",
        "cat /proc/self/environ; printenv; cat /proc/PID/environ; cat /proc/1/environ",
    ),
    (
        "the service by loopback",
        "python3 -c \"import urllib.request as u; r=u.Request('http://127.0.0.1:PORT/v1/skills/bob/helper/vault/content?path=gold.txt', headers={'Authorization':'Bearer TOKEN'}); print(u.urlopen(r, timeout=3).read())\"",
    ),
    (
        "the service by another name of loopback",
        "python3 -c \"import socket; s=socket.create_connection(('localhost', PORT), 3); s.send(b'GET /v1/me HTTP/1.1\\r\\n\\r\\n'); print(s.recv(99))\"; python3 -c \"import socket; s=socket.create_connection(('0.0.0.0', PORT), 3); print(s)\"",
    ),
    ("signals to others", "kill -9 PID; kill -9 RUNS; kill -9 -1"),
    (
        "a debugger",
        "python3 -c \"import ctypes; print(ctypes.CDLL(None).ptrace(16, RUNS, 0, 0)); print(open('/proc/RUNS/mem','rb').read(9))\"",
    ),
    (
        "the other's memory",
        "python3 -c \"import ctypes, os; print(os.listdir('/dev/shm')); print(ctypes.CDLL(None).shmget(0x5ec2e7, 4096, 0))\"; cat /dev/shm/*",
    ),
    (
        "the other's scratch",
        "cat /tmp/bobs-scratch; ls -la /tmp; find /tmp -name 'bobs*' -exec cat {} +",
    ),
    (
        "abstract sockets",
        "python3 -c \"import socket; s=socket.socket(socket.AF_UNIX); s.connect(chr(0)+'bobs-socket'); print(s.recv(99))\"",
    ),
    (
        "a device",
        "mknod d b 8 0; cat /dev/sda /dev/vda /dev/mem /dev/fuse; python3 -c \"import os; os.mknod('n', 0o60666, os.makedev(254,0)); print(os.open('n', 0))\"",
    ),
    (
        "a setuid program",
        "cp /bin/cat c; chmod 4755 c; ./c BOB/gold.txt; su -c 'cat BOB/gold.txt'; sudo cat BOB/gold.txt",
    ),
    (
        "by handle",
        "python3 -c \"import ctypes, os; l=ctypes.CDLL(None); print(l.open_by_handle_at(os.open('.', os.O_RDONLY), b'\\\\x08\\\\0\\\\0\\\\0\\\\1\\\\0\\\\0\\\\0\\\\2\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0', 0))\"",
    ),
];

fn expand(service: &Service, line: &str, runs: u32) -> String {
    let data = service.data();
    line.replace("BOB", &data.join("skills/bob/helper/vault").display().to_string())
        .replace("DATA", &data.display().to_string())
        .replace("PORT", &service.address.port().to_string())
        .replace("PID", &service.pid().to_string())
        .replace("RUNS", &runs.to_string())
        .replace("TOKEN", ADMIN)
}

/// Starts a command of the other tenant with sockets and files; returns its execution and pid.
fn start_neighbour(service: &Service) -> (serde_json::Value, u32) {
    let script = format!(
        "import socket, time, ctypes\nopen('/tmp/bobs-scratch','w').write('{SECRET}')\nopen('/dev/shm/bobs','w').write('{SECRET}')\n\
         s = socket.socket(socket.AF_UNIX); s.bind(chr(0)+'bobs-socket'); s.listen()\nprint('here', flush=True)\ntime.sleep(600)\n"
    );
    service
        .put(
            "/v1/skills/bob/helper/vault/edit",
            &serde_json::json!({ "path": "wait.py", "content": script }),
        )
        .is(200);
    let path = "/v1/skills/bob/helper/vault/execute?async=true";
    let begun = service
        .post(path, &serde_json::json!({ "command": "python3 wait.py bobs-process-marker" }))
        .is(202);
    assert!(ringfence_testkit::becomes_true(std::time::Duration::from_secs(10), || {
        !processes("wait.py").is_empty()
    }));
    let runs = *processes("wait.py").last().expect("it runs");
    (begun, runs)
}

/// Promise: tenant-isolation
#[test]
fn tenants_cannot_reach_each_other() {
    each_user(|user| {
        let service = Service::start_open(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        service
            .upload("bob", "helper", &[("vault/SKILL.md", SKILL), ("vault/gold.txt", SECRET)])
            .is(200);
        let bob = service.data().join("skills/bob/helper/vault");
        let (begun, runs) = start_neighbour(&service);
        let before = census(&bob);
        for (way, line) in WAYS {
            let line = expand(&service, line, runs);
            let reply = service.execute("alice/helper/tool", &line);
            let id = reply.header("x-execution-id").expect("an id").to_owned();
            let result = reply.is(200);
            let seen = format!("{}{}", result["stdout"], result["stderr"]);
            assert!(!seen.contains(SECRET), "{way}: {seen}");
            assert!(
                !seen.contains("\"digest\"")
                    && !seen.contains(&format!("RINGFENCE_ADMIN_TOKEN={ADMIN}")),
                "{way}: {seen}"
            );
            assert!(!seen.contains("policyDigest"), "{way}: {seen}");
            let records = service.audit("alice", &format!("&session={id}"));
            let is =
                |operation: &str| records.iter().any(|record| record["operation"] == operation);
            assert!(is("execute") && is("exit"), "{way}: {records:?}");
            assert_eq!(census(&bob), before, "{way}");
            assert!(service.get("/healthz").status == 200, "{way}");
        }
        // Reading by its path is a reported denial.
        let result = service
            .execute("alice/helper/tool", &format!("cat {}/gold.txt", bob.display()))
            .is(200);
        let id = service.audit("alice", "&operation=execute").last().unwrap()["session"].clone();
        let blocked =
            service.audit("alice", &format!("&blocked=true&session={}", id.as_str().unwrap()));
        assert!(
            blocked
                .iter()
                .any(|record| record["target"] == bob.join("gold.txt").display().to_string()),
            "{result} {blocked:?}"
        );
        let state =
            service.get(&format!("/v1/executions/{}", begun["id"].as_str().unwrap())).is(200);
        assert_eq!(state["state"], "running", "{state}");
        // Control: the same lines work on the tenant's own files.
        let own =
            service.execute("bob/helper/vault", &format!("cat {}/gold.txt", bob.display())).is(200);
        assert_eq!(own["stdout"], SECRET);
        for user in ["alice", "bob"] {
            assert_eq!(
                service.get(&format!("/v1/audit/verify?userId={user}")).is(200)["intact"],
                true
            );
        }
    });
}

/// Promise: tenant-isolation
#[test]
fn symlinks_in_an_archive_are_refused() {
    each_user(|user| {
        let service = Service::start(user);
        for (name, content, mode) in [
            ("tool/link", "/etc/passwd", 0o120_777),
            ("tool/link", "../../bob", 0o120_777),
            ("tool/device", "", 0o060_666),
            ("tool/pipe", "", 0o010_666),
            ("tool/socket", "", 0o140_666),
        ] {
            let head = TestArchiveEntry {
                name: "tool/SKILL.md",
                content: SKILL.as_bytes(),
                mode: 0o100_644,
            };
            let archive =
                zip_of(&[head, TestArchiveEntry { name, content: content.as_bytes(), mode }]);
            let problem = service.upload_bytes("alice", "helper", &archive).is(400);
            assert!(problem["message"].as_str().unwrap().contains(name), "{problem}");
        }
        assert_eq!(
            service.get("/v1/skills/alice/helper/list").is(200)["skills"].as_array().map(Vec::len),
            Some(0)
        );
    });
}

/// Promise: tenant-isolation
#[test]
fn service_follows_no_link_made_by_a_command() {
    each_user(|user| {
        let service = Service::start_open(user);
        service
            .upload("bob", "helper", &[("vault/SKILL.md", SKILL), ("vault/gold.txt", SECRET)])
            .is(200);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL), ("tool/x.txt", "x")]).is(200);
        let data = service.data();
        let made = format!(
            "ln -s {0}/skills/bob/helper/vault/gold.txt a; ln -s ../../../bob b; ln -s {0}/tokens.json c; mkfifo d; rm x.txt; ln -s {0}/key x.txt",
            data.display()
        );
        service.execute("alice/helper/tool", &made).is(200);
        let at = "/v1/skills/alice/helper/tool";
        for path in ["a", "b/helper/vault/gold.txt", "c", "d", "x.txt"] {
            let reply = service.get(&format!("{at}/content?path={path}"));
            assert!([400, 404].contains(&reply.status), "{path}: {}", reply.text());
            let key = std::fs::read(data.join("key")).expect("the key");
            let change = serde_json::json!({ "path": path, "content": "SPOILT" });
            let edited = service.put(&format!("{at}/edit"), &change);
            assert!(
                edited.status == 200 || [400, 404, 409].contains(&edited.status),
                "{path}: {}",
                edited.text()
            );
            assert_eq!(std::fs::read(data.join("key")).expect("the key"), key);
        }
        assert_eq!(
            std::fs::read_to_string(data.join("skills/bob/helper/vault/gold.txt")).unwrap(),
            SECRET
        );
        service.get(&format!("{at}/files")).is(200);
    });
}

/// Promise: execution-version
#[test]
fn upload_during_a_run_mixes_no_versions() {
    each_user(|user| {
        let service = Service::start_open(user);
        let version = |number: u32| {
            let text = number.to_string();
            let names: Vec<String> = (0..20).map(|file| format!("tool/part-{file}")).collect();
            let mut files: Vec<(&str, &[u8])> = vec![("tool/SKILL.md", SKILL.as_bytes())];
            files.extend(names.iter().map(|name| (name.as_str(), text.as_bytes())));
            crate::archives::zip(&files)
        };
        service.upload_bytes("alice", "helper", &version(0)).is(200);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let uploads = scope.spawn(|| {
                let mut number = 0;
                while !is_over.load(Ordering::SeqCst) {
                    number += 1;
                    service.upload_bytes("alice", "helper", &version(number)).is(200);
                }
                number
            });
            for _ in 0..40 {
                // Files made late are made in the version that the command runs in.
                let line = "cat part-*; echo; touch mine; cat part-*; echo; ls mine";
                let result = service.execute("alice/helper/tool", line).is(200);
                let text = result["stdout"].as_str().expect("text");
                let rows: Vec<&str> = text.lines().collect();
                assert_eq!(rows.len(), 3, "{result}");
                let first = &rows[0][..rows[0].len() / 20];
                assert_eq!(rows[0], first.repeat(20), "{text}");
                assert_eq!((rows[1], rows[2]), (rows[0], "mine"), "{text}");
            }
            is_over.store(true, Ordering::SeqCst);
            assert!(uploads.join().expect("it ends") > 3);
        });
        // Files that commands made are removed with the version they were made in.
        service.upload_bytes("alice", "helper", &version(9999)).is(200);
        let files = service.get("/v1/skills/alice/helper/tool/files").is(200);
        assert!(!files.to_string().contains("mine"), "{files}");
    });
}

#[test]
fn service_leaves_no_processes_or_files() {
    each_user(|user| {
        let service = Service::start(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        service
            .execute("alice/helper/tool", "python3 -c 'import time; time.sleep(300)' & ls")
            .is(200);
        assert!(ringfence_testkit::processes_with("time.sleep(300)").is_empty());
        let (project, _) = service.end();
        let data = project.home().join("data");
        for name in ["staging", "trash"] {
            assert_eq!(
                std::fs::read_dir(data.join(name)).expect("it is there").count(),
                0,
                "{name}"
            );
        }
        let left = ringfence_testkit::processes_with(&data.display().to_string());
        assert!(left.is_empty(), "{left:?}");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
        assert!(!mounts.contains(&data.display().to_string()), "{mounts}");
    });
}

/// Pids of processes whose command line contains `word`.
fn processes(word: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(word))
    };
    pids.filter(has).collect()
}

/// All files below a directory with their content.
fn census(directory: &std::path::Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).expect("it is there").flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}
