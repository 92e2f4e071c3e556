//! Permission requests of commands, and their answers.

use std::thread;
use std::time::Duration;

use ringfence_testkit::{becomes_true, each_user};
use serde_json::{Value, json};

use crate::client::HttpTestClient;
use crate::stage::{SKILL, Service};

/// Runs a command that causes a permission request, and answers the first one by `say`.
fn asked(service: &Service, line: &str, say: impl FnOnce(&Value)) -> Value {
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let body = json!({ "command": line, "ask": true });
            service.post("/v1/skills/alice/helper/tool/execute", &body).is(200)
        });
        let first = || service.get("/v1/asks").is(200)["asks"].get(0).cloned();
        assert!(
            becomes_true(Duration::from_secs(10), || first().is_some()),
            "no permission request appeared"
        );
        say(&first().expect("it waits"));
        runs.join().expect("it ends")
    })
}

fn answer(client: &HttpTestClient, ask: &Value, word: &str) -> crate::client::Reply {
    client.post(
        &format!("/v1/asks/{}", ask["id"].as_str().expect("an id")),
        &json!({ "answer": word }),
    )
}

#[test]
fn command_waits_for_an_answer_and_continues() {
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
        // A permanent grant holds for this tenant only.
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

/// Promise: tenant-ceiling
#[test]
fn tenant_cannot_grant_itself_access() {
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
