//! Resource use of one tenant does not affect another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::each_user;
use serde_json::json;

use crate::stage::{SKILL, Service};

/// Command lines, each with the limit that ends it.
const GREEDY: &[(&str, &str)] = &[
    ("python3 -c 'import os\nwhile True: os.fork()'", "processes"),
    ("python3 -c 'x = bytearray(10 << 30)'", "memory"),
    ("yes", "output"),
    ("cat /dev/zero > full", "file-size"),
    (
        "python3 -c 'n = 0\nwhile True:\n  open(str(n), \"wb\").write(bytes(1 << 22)); n += 1'",
        "disk",
    ),
];

/// Promise: tenant-limits
#[test]
fn command_over_its_limit_ends_alone() {
    each_user(|user| {
        let service = Service::start(user);
        let policy =
            std::fs::read_to_string(service.data().join("policy.toml")).expect("it was written");
        let limits = policy.split("[limits]").nth(1).expect("limits");
        service.set_policy(&format!(
            "version = 1\n[environment]\nprofile = \"clean\"\n[limits]{limits}"
        ));
        for tenant in ["alice", "bob"] {
            service.upload(tenant, "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        }
        for (line, limit) in GREEDY {
            let is_over = AtomicBool::new(false);
            let (result, took, neighbours) = thread::scope(|scope| {
                let neighbour = scope.spawn(|| {
                    let mut took = Vec::new();
                    while !is_over.load(Ordering::SeqCst) {
                        let begun = Instant::now();
                        assert_eq!(
                            service.execute("bob/helper/tool", "true").is(200)["exitCode"],
                            0
                        );
                        took.push(begun.elapsed());
                        thread::sleep(Duration::from_millis(20));
                    }
                    took
                });
                let begun = Instant::now();
                let result = service.execute("alice/helper/tool", line).is(200);
                let took = begun.elapsed();
                is_over.store(true, Ordering::SeqCst);
                (result, took, neighbour.join().expect("it goes on"))
            });
            let breaches: Vec<&str> = result["breaches"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|breach| breach["limit"].as_str())
                .collect();
            eprintln!(
                "{user}, {limit}: {took:?}, neighbour at most {:?} of {}",
                neighbours.iter().max(),
                neighbours.len()
            );
            assert!(
                breaches.contains(limit),
                "{line}: {breaches:?} {}",
                json!({ "exitCode": result["exitCode"], "stderr": result["stderr"] })
            );
            for breach in result["breaches"].as_array().unwrap() {
                assert!(breach["configured"].is_u64() && breach["observed"].is_u64(), "{breach}");
            }
            service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        }
    });
}

/// Promise: skill-replace
#[test]
fn tenant_with_directories_too_deep_to_count_can_replace_its_skill() {
    const DIG: &str =
        "import os\nfor _ in range(60):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\n";
    each_user(|user| {
        let service = Service::start_open(user);
        service
            .upload("alice", "helper", &[("tool/SKILL.md", SKILL), ("tool/dig.py", DIG)])
            .is(200);
        assert_eq!(service.execute("alice/helper/tool", "python3 dig.py").is(200)["exitCode"], 0);
        let is_over = || service.execute("alice/helper/tool", "true").status == 507;
        assert!(
            ringfence_testkit::becomes_true(Duration::from_secs(30), is_over),
            "what cannot be counted fits into no quota"
        );
        let error = service.execute("alice/helper/tool", "true").fails(507, "quota").to_string();
        assert!(
            error.contains("too deep to count") && !error.contains("18446744073709551615"),
            "{error}"
        );
        service.upload("alice", "helper", &[("other/SKILL.md", SKILL)]).fails(507, "quota");
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        assert_eq!(service.execute("alice/helper/tool", "true").is(200)["exitCode"], 0);
    });
}

/// Promise: time-limit
#[test]
fn execution_is_killed_at_its_time_limit() {
    each_user(|user| {
        let service = Service::start_open(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        let body = json!({ "command": "trap '' INT TERM; while :; do sleep 0.1; done", "timeoutMs": 1000 });
        let result = service.post("/v1/skills/alice/helper/tool/execute", &body).is(200);
        assert_eq!(
            (result["timedOut"].as_bool(), result["exitCode"].as_i64()),
            (Some(true), Some(124)),
            "{result}"
        );
        // It was five seconds before: each of three signals came two seconds after the other.
        assert!(
            (900..3000).contains(&result["durationMs"].as_u64().expect("a number")),
            "{result}"
        );
    });
}

/// Nice values of processes whose command line contains `marker`.
fn priorities(marker: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc")
        .expect("there is a /proc")
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let is_it = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    };
    let nice = |pid: String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(16)?.parse().ok()
    };
    pids.filter(is_it).filter_map(nice).collect()
}

#[test]
fn busy_tenant_does_not_slow_others() {
    const LOOPS: usize = 8;
    each_user(|user| {
        let service = Service::start_open(user);
        for tenant in ["alice", "bob"] {
            service.upload(tenant, "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        }
        let marker = format!("busy-{}-{}", std::process::id(), user.ids().0);
        let body = json!({ "command": format!(": {marker}; while :; do /bin/true; done"), "timeoutMs": 40_000 });
        thread::scope(|scope| {
            let loops: Vec<_> = (0..LOOPS)
                .map(|_| {
                    scope.spawn(|| service.post("/v1/skills/alice/helper/tool/execute", &body))
                })
                .collect();
            let lowered = || {
                let all = priorities(&marker);
                all.len() >= LOOPS && all.iter().all(|nice| *nice == 10)
            };
            let gives_way = ringfence_testkit::becomes_true(Duration::from_secs(30), lowered);
            let bob = service.execute("bob/helper/tool", "nice").is(200)["stdout"].clone();
            for running in service.get("/v1/executions?userId=alice").is(200)["executions"]
                .as_array()
                .into_iter()
                .flatten()
            {
                service.delete(&format!(
                    "/v1/executions/{}",
                    running["id"].as_str().unwrap_or_default()
                ));
            }
            loops.into_iter().for_each(|one| drop(one.join().expect("it ended")));
            assert!(gives_way, "{:?}", priorities(&marker));
            assert_eq!(bob, "0\n");
        });
    });
}
