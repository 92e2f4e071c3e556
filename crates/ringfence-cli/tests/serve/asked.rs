//! Questions of commands, and who answers them.

use std::thread;
use std::time::Duration;

use ringfence_testkit::{each_user, soon};
use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::{SKILL, Service};

/// Runs a line that asks, and answers its first question by `say`.
fn asked(service: &Service, line: &str, say: impl FnOnce(&Value)) -> Value {
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let body = json!({ "command": line, "ask": true });
            service.post("/v1/skills/alice/helper/tool/execute", &body).is(200)
        });
        let first = || service.get("/v1/asks").is(200)["asks"].get(0).cloned();
        assert!(soon(Duration::from_secs(10), || first().is_some()), "nobody asks");
        say(&first().expect("it waits"));
        runs.join().expect("it ends")
    })
}

fn answer(client: &Client, ask: &Value, word: &str) -> crate::client::Reply {
    client.post(
        &format!("/v1/asks/{}", ask["id"].as_str().expect("an id")),
        &json!({ "answer": word }),
    )
}

#[test]
fn a_command_waits_for_an_answer_and_goes_on() {
    each_user(|user| {
        let service = Service::start_open(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        let wanted = service.project().home().join("shared.txt");
        service.project().write_at(&wanted, "shared with alice");
        let line = format!("cat {}", wanted.display());
        let result = asked(&service, &line, |ask| {
            assert_eq!(
                (ask["userId"].as_str(), ask["resource"].as_str()),
                (Some("alice"), wanted.to_str()),
                "{ask}"
            );
            answer(&service, ask, "allow_once").is(204);
            answer(&service, ask, "allow_once").fails(404, "no-such-ask");
        });
        assert_eq!(
            (result["stdout"].as_str(), result["exitCode"].as_i64()),
            (Some("shared with alice"), Some(0)),
            "{result}"
        );
        let result = asked(&service, &line, |ask| drop(answer(&service, ask, "deny").is(204)));
        assert_ne!(result["exitCode"], 0, "{result}");
        // For good is for the tenant, and for nobody else.
        asked(&service, &line, |ask| drop(answer(&service, ask, "allow_permanent").is(204)));
        assert_eq!(
            service.execute("alice/helper/tool", &line).is(200)["stdout"],
            "shared with alice"
        );
        let policy = service.get("/v1/tenants/alice/policy").is(200);
        assert!(policy["policy"].as_str().unwrap().contains("shared.txt"), "{policy}");
        service.upload("bob", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        assert_ne!(service.execute("bob/helper/tool", &line).is(200)["exitCode"], 0);
        let asks = service.audit("alice", "&operation=ask");
        assert!(asks.len() >= 3, "{asks:?}");
    });
}

/// Promise: P114
#[test]
fn a_tenant_opens_nothing_by_its_own_answer() {
    each_user(|user| {
        let service = Service::start_open(user);
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        let wanted = service.project().home().join("operators.txt");
        service.project().write_at(&wanted, "not for tenants");
        let (alice, bob) =
            (service.token("alice", &["execute", "asks"]), service.token("bob", &["asks"]));
        let result = asked(&service, &format!("cat {}", wanted.display()), |ask| {
            assert_eq!(alice.get("/v1/asks").is(200)["asks"].as_array().map(Vec::len), Some(1));
            assert_eq!(bob.get("/v1/asks").is(200)["asks"].as_array().map(Vec::len), Some(0));
            answer(&bob, ask, "deny").fails(404, "no-such-ask");
            for word in ["allow_once", "allow_session", "allow_permanent"] {
                answer(&alice, ask, word).fails(403, "ceiling");
            }
            answer(&alice, ask, "deny").is(204);
        });
        assert_ne!(result["exitCode"], 0, "{result}");
        assert!(!result.to_string().contains("not for tenants"), "{result}");
    });
}
