//! Ends of commands and of the service: by signal, cancelled, killed.

use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestUser, becomes_true, each_user, processes_with};
use serde_json::{Value, json};

use crate::archives::zip;
use crate::client::HttpTestClient;
use crate::stage::{SKILL, Service};

const AT: &str = "/v1/skills/alice/helper/tool/execute";

fn tool(service: &Service) {
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
}

fn sleeps(seconds: u32) -> Value {
    json!({ "command": format!("echo begun; python3 -c 'import time; time.sleep({seconds})'") })
}

fn state(client: &HttpTestClient, id: &str) -> String {
    client.get(&format!("/v1/executions/{id}")).is(200)["state"]
        .as_str()
        .expect("a state")
        .to_owned()
}

/// Promise: idempotency
#[test]
fn async_execution_has_a_result_later() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let begun = service.post(&format!("{AT}?async=true"), &json!({ "command": "echo later" }));
        let id = begun.is(202)["id"].as_str().unwrap().to_owned();
        assert_eq!(begun.header("location"), Some(format!("/v1/executions/{id}").as_str()));
        assert!(becomes_true(Duration::from_secs(10), || state(&service, &id) == "ended"));
        let status = service.get(&format!("/v1/executions/{id}")).is(200);
        assert_eq!(status["result"]["stdout"], "later\n");
        // Also from another service with the same data.
        let service = Service::start_in(service.end().0, &[]);
        let status = service.get(&format!("/v1/executions/{id}")).is(200);
        assert_eq!(
            (status["state"].as_str(), status["result"]["stdout"].as_str()),
            (Some("ended"), Some("later\n"))
        );
    });
}

/// Promise: idempotency
#[test]
fn same_idempotency_key_is_the_same_execution() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let with = |key: &str, line: &str| {
            let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
            service.send("POST", AT, &headers, json!({ "command": line }).to_string().as_bytes())
        };
        let first = with("k1", "echo x >> counted; cat counted");
        let again = with("k1", "echo x >> counted; cat counted");
        assert_eq!(
            (first.is(200)["stdout"].clone(), again.is(200)["stdout"].clone()),
            (json!("x\n"), json!("x\n"))
        );
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(first.header("x-execution-id"), again.header("x-execution-id"));
        with("k1", "echo other").fails(422, "idempotency-mismatch");
        with("", "ls").fails(400, "idempotency-key");
        assert_eq!(with("k2", "cat counted").is(200)["stdout"], "x\n");
        // Also for concurrent requests.
        let outputs: Vec<Value> = thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        with("k3", "echo y >> twice; cat twice").is(200)["stdout"].clone()
                    })
                })
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(outputs.iter().all(|output| output == "y\n"), "{outputs:?}");
        let service = Service::start_in(service.end().0, &[]);
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "k1")];
        let body = json!({ "command": "echo x >> counted; cat counted" }).to_string();
        let later = service.send("POST", AT, &headers, body.as_bytes());
        assert_eq!(
            (later.is(200)["stdout"].as_str(), later.header("idempotency-replayed")),
            (Some("x\n"), Some("true"))
        );
    });
}

#[test]
fn kept_results_outlive_listed_ones() {
    let service = Service::start(TestUser::all()[0]);
    tool(&service);
    let id = service.post(&format!("{AT}?async=true"), &json!({ "command": "echo kept" })).is(202)
        ["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(becomes_true(Duration::from_secs(10), || state(&service, &id) == "ended"));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                (0..30)
                    .for_each(|_| drop(service.execute("alice/helper/tool", "cat /etc/x").is(200)))
            });
        }
    });
    let listed = service.get("/v1/executions?limit=1000").is(200)["executions"]
        .as_array()
        .map_or(0, Vec::len);
    assert!((150..=210).contains(&listed), "{listed}");
    assert_eq!(service.get(&format!("/v1/executions/{id}")).is(200)["result"]["stdout"], "kept\n");
    let events = service.get(&format!("/v1/executions/{id}/events")).text();
    assert!(events.contains("event: result") && events.contains("kept"), "{events}");
}

/// Promise: idempotency
#[test]
fn output_is_streamed_as_events() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let line = "echo 1; python3 -c 'import time; time.sleep(1)'; echo 2; cat nothing";
        let body = json!({ "command": line }).to_string();
        let mut stream = service.begin("POST", AT, &headers, body.as_bytes()).unwrap();
        let begun = Instant::now();
        let mut seen = String::new();
        while !seen.contains("\"1\\n\"") {
            assert!(stream.read_line(&mut seen).unwrap() > 0, "{seen}");
        }
        assert!(begun.elapsed() < Duration::from_millis(900), "{seen}");
        stream.read_to_string(&mut seen).unwrap();
        let at = |text: &str| seen.find(text).unwrap_or_else(|| panic!("{text}: {seen}"));
        assert!(
            at("event: begun") < at("\"1\\n\"")
                && at("\"1\\n\"") < at("\"2\\n\"")
                && at("\"2\\n\"") < at("event: result"),
            "{seen}"
        );
        assert!(at("event: stderr") < at("event: result"), "{seen}");
    });
}

/// Promise: idempotency
#[test]
fn command_is_cancelled_by_disconnect_or_request() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let headers = [("Content-Type", "application/json")];
        let stream =
            service.begin("POST", AT, &headers, sleeps(177).to_string().as_bytes()).unwrap();
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(177)").is_empty())
        );
        drop(stream);
        assert!(
            becomes_true(Duration::from_secs(10), || processes_with("time.sleep(177)").is_empty())
        );
        let id = service.post(&format!("{AT}?async=true"), &sleeps(178)).is(202)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(178)").is_empty())
        );
        service.delete(&format!("/v1/executions/{id}")).is(202);
        assert!(becomes_true(Duration::from_secs(10), || state(&service, &id) == "ended"));
        assert!(processes_with("time.sleep(178)").is_empty());
        let result = service.get(&format!("/v1/executions/{id}")).is(200)["result"].clone();
        assert_eq!(result["stdout"], "begun\n", "{result}");
        assert_ne!(result["exitCode"], 0, "{result}");
    });
}

/// Promise: service-crash
#[test]
fn sigterm_ends_running_commands_and_records_it() {
    each_user(|user| {
        let service = Service::start(user).end().0;
        let service = Service::start_in(service, &["--grace", "1s"]);
        tool(&service);
        let id = service.post(&format!("{AT}?async=true"), &sleeps(179)).is(202)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(179)").is_empty())
        );
        let (project, _) = service.end();
        assert!(processes_with("time.sleep(179)").is_empty());
        let service = Service::start_in(project, &[]);
        assert_eq!(state(&service, &id), "ended");
        let records = service.audit("alice", &format!("&session={id}"));
        assert!(records.iter().any(|record| record["operation"] == "exit"), "{records:?}");
        assert_eq!(service.get("/v1/audit/verify?userId=alice").is(200)["intact"], true);
    });
}

/// Promise: service-crash
#[test]
fn killed_service_leaves_no_processes_and_the_next_reports_it() {
    each_user(|user| {
        let service = Service::start(user);
        tool(&service);
        let id = service.post(&format!("{AT}?async=true"), &sleeps(180)).is(202)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(180)").is_empty())
        );
        let project = service.kill();
        assert!(
            becomes_true(Duration::from_secs(10), || processes_with("time.sleep(180)").is_empty())
        );
        let service = Service::start_in(project, &[]);
        let status = service.get(&format!("/v1/executions/{id}")).is(200);
        assert_eq!(
            (status["state"].as_str(), status["error"]["code"].as_str()),
            (Some("lost"), Some("lost")),
            "{status}"
        );
        let records = service.audit("alice", &format!("&session={id}"));
        let exit = records
            .iter()
            .find(|record| record["operation"] == "exit")
            .unwrap_or_else(|| panic!("{records:?}"));
        assert_eq!(
            (exit["result"].as_str(), exit["error"].as_str()),
            (Some("failed"), Some("lost")),
            "{exit}"
        );
        assert_eq!(service.get("/v1/audit/verify?userId=alice").is(200)["intact"], true);
    });
}

/// A skill in which every file holds the same number.
fn version(skill: &str, number: usize) -> Vec<u8> {
    let text = format!("{number}\n");
    let names: Vec<String> = (0..30).map(|file| format!("{skill}/part-{file}")).collect();
    let head = format!("{skill}/SKILL.md");
    let mut files: Vec<(&str, &[u8])> = vec![(head.as_str(), SKILL.as_bytes())];
    files.extend(names.iter().map(|name| (name.as_str(), text.as_bytes())));
    zip(&files)
}

/// Checks that all files of each skill are of one version.
fn check_skills_are_whole(service: &Service, data: &std::path::Path, round: u64) {
    let listed = service.get("/v1/skills/alice/helper/list").is(200);
    for skill in listed["skills"].as_array().unwrap() {
        let directory = data.join("skills/alice/helper").join(skill["skillId"].as_str().unwrap());
        let first = std::fs::read(directory.join("part-0")).expect("it is whole");
        for part in 0..30 {
            let name = directory.join(format!("part-{part}"));
            assert_eq!(
                std::fs::read(&name).ok().as_ref(),
                Some(&first),
                "round {round}: {}",
                name.display()
            );
        }
    }
}

/// Promise: service-crash
#[test]
fn skills_stay_whole_when_the_service_is_killed() {
    let mut project = Some(Service::start(TestUser::all()[0]).end().0);
    let number = AtomicUsize::new(0);
    for round in 0..20u64 {
        let service = Service::start_in(project.take().expect("the one before"), &[]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for skill in ["a", "b", "c", "d"] {
                let (client, is_over, number) = ((*service).clone(), &is_over, &number);
                scope.spawn(move || {
                    for _ in 0..25 {
                        if is_over.load(Ordering::SeqCst) {
                            return;
                        }
                        let _ = client.try_upload("alice", "helper", &version(skill, number.fetch_add(1, Ordering::SeqCst)));
                        let body =
                            json!({ "command": "cat part-*; echo mark-of-these-runs > made; python3 -c 'import time; time.sleep(0.05)'" });
                        let at = format!("/v1/skills/alice/helper/{skill}/execute");
                        let _ = client.try_send("POST", &at, &[("Content-Type", "application/json")], body.to_string().as_bytes());
                    }
                });
            }
            thread::sleep(Duration::from_millis(60 + round * 29 % 400));
            is_over.store(true, Ordering::SeqCst);
            ringfence_testkit::signal(service.pid(), 9);
        });
        let killed = service.kill();
        let data = killed.home().join("data");
        assert!(
            becomes_true(Duration::from_secs(10), || processes_with("mark-of-these-runs")
                .is_empty()),
            "round {round}"
        );
        let service = Service::start_in(killed, &[]);
        for left in ["staging", "trash"] {
            assert_eq!(
                std::fs::read_dir(data.join(left)).unwrap().count(),
                0,
                "round {round}: {left}"
            );
        }
        check_skills_are_whole(&service, &data, round);
        let running = service.get("/v1/executions?running=true").is(200);
        assert_eq!(running["executions"].as_array().map(Vec::len), Some(0), "{running}");
        if service.get("/v1/tenants").is(200)["tenants"]
            .as_array()
            .is_some_and(|tenants| !tenants.is_empty())
        {
            assert_eq!(
                service.get("/v1/audit/verify?userId=alice").is(200)["intact"],
                true,
                "round {round}"
            );
            let records = service.audit("alice", "");
            let of = |operation: &str| {
                records.iter().filter(|record| record["operation"] == operation).count()
            };
            assert!(
                of("execute") <= of("exit"),
                "round {round}: {} begun, {} ended",
                of("execute"),
                of("exit")
            );
        }
        project = Some(service.end().0);
    }
}

/// The next service runs queued commands; interrupted ones get a final state that says so.
///
/// Promise: accepted-once
#[test]
fn accepted_commands_survive_a_restart() {
    each_user(|user| {
        for is_killed in [false, true] {
            let service = Service::start(user).end().0;
            let service = Service::start_in(service, &["--grace", "1s"]);
            tool(&service);
            service.put("/v1/tenants/alice/quotas", &json!({ "executions": 1 })).is(200);
            let begin = |body: &Value| {
                service.post(&format!("{AT}?async=true"), body).is(202)["id"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            let first = begin(&sleeps(181));
            assert!(becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(181)")
                .is_empty()));
            let waiting: Vec<String> = (0..5)
                .map(|number| {
                    begin(
                        &json!({ "command": format!("echo waited {number} >> order; cat order") }),
                    )
                })
                .collect();
            let unwanted = begin(&json!({ "command": "echo never > never" }));
            service.delete(&format!("/v1/executions/{unwanted}")).is(202);
            assert!(
                becomes_true(Duration::from_secs(10), || state(&service, &unwanted) == "failed")
            );
            let project = if is_killed { service.kill() } else { service.end().0 };
            let service = Service::start_in(project, &[]);
            let of_first = state(&service, &first);
            assert_eq!(of_first, if is_killed { "lost" } else { "ended" });
            for (number, id) in waiting.iter().enumerate() {
                assert!(
                    becomes_true(Duration::from_secs(20), || state(&service, id) == "ended"),
                    "{}",
                    state(&service, id)
                );
                let status = service.get(&format!("/v1/executions/{id}")).is(200);
                let wrote = status["result"]["stdout"].as_str().unwrap().to_owned();
                assert_eq!(
                    wrote.lines().last(),
                    Some(format!("waited {number}").as_str()),
                    "{status}"
                );
                assert_eq!(wrote.lines().count(), number + 1, "in order, and each once: {wrote}");
                assert!(status.get("request").is_none_or(Value::is_null), "{status}");
            }
            let status = service.get(&format!("/v1/executions/{unwanted}")).is(200);
            assert_eq!(
                (status["state"].as_str(), status["error"]["code"].as_str()),
                (Some("failed"), Some("cancelled")),
                "{status}"
            );
            // A third service runs nothing again.
            let service = Service::start_in(service.end().0, &[]);
            assert!(waiting.iter().all(|id| state(&service, id) == "ended"));
            let wrote = service.execute("alice/helper/tool", "cat order").is(200)["stdout"]
                .as_str()
                .unwrap()
                .to_owned();
            assert_eq!(wrote.lines().count(), waiting.len(), "{wrote}");
        }
    });
}

#[test]
fn accepted_command_runs_after_its_caller_disconnects() {
    let service = Service::start(TestUser::all()[0]);
    tool(&service);
    let (at, body) = (format!("{AT}?async=true"), json!({ "command": "echo done" }).to_string());
    // The disconnect rarely hits the moment in which the command is stored: once in forty.
    let keys: Vec<String> = (0..120).map(|number| format!("left-{number}")).collect();
    for key in &keys {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key.as_str())];
        drop(service.begin("POST", &at, &headers, body.as_bytes()).unwrap());
    }
    for key in &keys {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key.as_str())];
        let id = service.send("POST", &at, &headers, body.as_bytes()).is(202)["id"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            becomes_true(Duration::from_secs(20), || state(&service, &id) == "ended"),
            "{key}: {}",
            state(&service, &id)
        );
    }
}

/// A service in which one command sleeps for `running` seconds while these are queued behind it.
fn with_waiting(commands: &[Value], running: u32) -> (Service, Vec<String>) {
    let service = Service::start(TestUser::all()[0]);
    tool(&service);
    service.put("/v1/tenants/alice/quotas", &json!({ "executions": 1 })).is(200);
    let begin = |body: &Value| {
        service.post(&format!("{AT}?async=true"), body).is(202)["id"].as_str().unwrap().to_owned()
    };
    begin(&sleeps(running));
    let name = format!("time.sleep({running})");
    assert!(becomes_true(Duration::from_secs(10), || !processes_with(&name).is_empty()));
    let waiting = commands.iter().map(begin).collect();
    (service, waiting)
}

#[test]
fn queued_command_can_be_cancelled_after_a_restart() {
    let commands = [
        sleeps(186),
        json!({ "command": "echo waited; ls" }),
        json!({ "command": "echo never > never" }),
    ];
    let (service, waiting) = with_waiting(&commands, 185);
    let service = Service::start_in(service.kill(), &[]);
    assert!(becomes_true(Duration::from_secs(10), || !processes_with("time.sleep(186)").is_empty()));
    service.delete(&format!("/v1/executions/{}", waiting[2])).is(202);
    assert!(
        becomes_true(Duration::from_secs(10), || state(&service, &waiting[2]) == "failed"),
        "{}",
        state(&service, &waiting[2])
    );
    let status = service.get(&format!("/v1/executions/{}", waiting[2])).is(200);
    assert_eq!(status["error"]["code"], "cancelled", "{status}");
    assert_eq!(
        (state(&service, &waiting[0]), state(&service, &waiting[1])),
        ("running".into(), "waiting".into())
    );
    service.delete(&format!("/v1/executions/{}", waiting[0])).is(202);
    assert!(
        becomes_true(Duration::from_secs(10), || state(&service, &waiting[1]) == "ended"),
        "{}",
        state(&service, &waiting[1])
    );
    let wrote =
        service.get(&format!("/v1/executions/{}", waiting[1])).is(200)["result"]["stdout"].clone();
    assert_eq!(wrote, "waited\nSKILL.md\n");
}

#[test]
fn queued_command_ends_after_a_restart_if_the_quota_is_0() {
    let (service, waiting) = with_waiting(&[json!({ "command": "echo never" })], 187);
    service.put("/v1/tenants/alice/quotas", &json!({ "executions": 0 })).is(200);
    let service = Service::start_in(service.kill(), &[]);
    assert!(
        becomes_true(Duration::from_secs(10), || state(&service, &waiting[0]) == "failed"),
        "{}",
        state(&service, &waiting[0])
    );
    let status = service.get(&format!("/v1/executions/{}", waiting[0])).is(200);
    assert_eq!(status["error"]["code"], "quota", "{status}");
}
