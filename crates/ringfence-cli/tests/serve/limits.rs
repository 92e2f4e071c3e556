//! What one tenant uses up is not missed by another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::each_user;
use serde_json::json;

use crate::stage::{SKILL, Service};

/// A line, the limit that ends it.
const GREEDY: &[(&str, &str)] = &[
    ("python3 -c 'import os\nwhile True: os.fork()'", "processes"),
    ("python3 -c 'x = bytearray(10 << 30)'", "memory"),
    ("yes", "output"),
    ("cat /dev/zero > full", "file-size"),
    ("python3 -c 'n = 0\nwhile True:\n  open(str(n), \"wb\").write(bytes(1 << 22)); n += 1'", "disk"),
];

#[test]
fn whoever_takes_too_much_ends_alone() {
    each_user(|user| {
        let service = Service::start(user);
        let policy = std::fs::read_to_string(service.data().join("policy.toml")).expect("it was written");
        let limits = policy.split("[limits]").nth(1).expect("limits");
        service.set_policy(&format!("version = 1\n[environment]\nprofile = \"clean\"\n[limits]{limits}"));
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
                        assert_eq!(service.execute("bob/helper/tool", "true").is(200)["exitCode"], 0);
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
            let breaches: Vec<&str> = result["breaches"].as_array().unwrap().iter().filter_map(|breach| breach["limit"].as_str()).collect();
            eprintln!("{user}, {limit}: {took:?}, neighbour at most {:?} of {}", neighbours.iter().max(), neighbours.len());
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
