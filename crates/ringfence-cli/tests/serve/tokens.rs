//! Who may do what.

use ringfence_testkit::{As, each_user};
use serde_json::json;

use crate::stage::{ADMIN, SKILL, Service};

#[test]
fn nobody_comes_in_without_a_token() {
    each_user(|user| {
        let service = Service::start(user);
        for path in
            ["/v1/me", "/v1/tenants", "/v1/executions", "/v1/skills/alice/helper/list", "/metrics", "/v1/events", "/v1/audit", "/nothing"]
        {
            let reply = service.without().get(path);
            reply.fails(401, "token");
            assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
            service.with("wrong-0123456789abcdef").get(path).fails(401, "token");
        }
        for path in ["/healthz", "/readyz", "/openapi.json"] {
            assert_eq!(service.without().get(path).status, 200, "{path}");
        }
        let twice = [("Authorization", "Bearer x")];
        service.send("GET", "/v1/me", &twice, b"").fails(401, "token");
    });
}

#[test]
fn a_tenants_token_is_for_that_tenant_and_what_it_was_made_for() {
    each_user(|user| {
        let service = Service::start(user);
        for tenant in ["alice", "bob"] {
            service.upload(tenant, "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        }
        let alice = service.token("alice", &["skills:read", "execute", "audit"]);
        alice.get("/v1/skills/alice/helper/list").is(200);
        alice.execute("alice/helper/tool", "ls").is(200);
        alice.get("/v1/skills/bob/helper/list").fails(403, "other-tenant");
        alice.execute("bob/helper/tool", "ls").fails(403, "other-tenant");
        alice.get("/v1/audit?userId=bob").fails(403, "other-tenant");
        alice.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).fails(403, "scope");
        alice.delete("/v1/skills/alice/helper/tool").fails(403, "scope");
        alice.get("/v1/tokens").fails(403, "scope");
        alice.put("/v1/tenants/alice/policy", &json!({ "policy": "version = 1\n" })).fails(403, "scope");
        alice.get("/metrics").fails(403, "tenant");
        // What others run is not there.
        let run = service.execute("bob/helper/tool", "ls");
        let id = run.header("x-execution-id").expect("its id");
        alice.get(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
        alice.delete(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
        let seen = alice.get("/v1/executions").is(200);
        assert!(seen["executions"].as_array().unwrap().iter().all(|one| one["userId"] == "alice"), "{seen}");
        assert_eq!(alice.get("/v1/tenants").is(200)["tenants"].as_array().map(Vec::len), Some(1));
        // Each attempt is on record.
        let refused = service.audit("alice", "&operation=request&blocked=true");
        assert_eq!(refused.len(), 8, "{refused:#?}");
    });
}

#[test]
fn a_token_ends() {
    let service = Service::start(As::all()[0]);
    let made = service.post("/v1/tokens", &json!({ "userId": "alice", "scopes": ["skills:read"], "label": "a label" })).is(201);
    let alice = service.with(made["token"].as_str().unwrap());
    alice.get("/v1/me").is(200);
    let listed = service.get("/v1/tokens").is(200);
    assert!(!listed.to_string().contains(made["token"].as_str().unwrap()), "{listed}");
    service.delete(&format!("/v1/tokens/{}", made["id"].as_str().unwrap())).is(204);
    alice.get("/v1/me").fails(401, "token");
    let short = service.post("/v1/tokens", &json!({ "userId": "alice", "scopes": ["skills:read"], "expiresIn": 0 })).is(201);
    service.with(short["token"].as_str().unwrap()).get("/v1/me").fails(401, "token");
    // Nobody makes one that may do more than their own.
    let admin = service.token("alice", &["admin", "skills:read"]);
    admin.post("/v1/tokens", &json!({ "scopes": ["execute"] })).fails(403, "scope");
    admin.post("/v1/tokens", &json!({ "userId": "bob", "scopes": ["skills:read"] })).fails(403, "other-tenant");
    let child = admin.post("/v1/tokens", &json!({ "scopes": ["skills:read"] })).is(201);
    assert_eq!(child["userId"], "alice");
    service.delete("/v1/tokens/admin").fails(409, "admin-token");
}

#[test]
fn the_first_start_makes_a_token_and_keeps_only_what_it_is_known_by() {
    each_user(|user| {
        ringfence_testkit::fuse_for_all();
        let project = ringfence_testkit::Project::new(user, env!("CARGO_BIN_EXE_ringfence"));
        let data = project.home().join("data");
        let mut command = project.ringfence();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        command.env_remove("RINGFENCE_ADMIN_TOKEN").stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let address = lines.next().unwrap().unwrap().split("://").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
        let token = lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
        let client = crate::client::Client { address, token: Some(token.clone()) };
        let me = client.get("/v1/me").is(200);
        assert_eq!(me["token"], "admin");
        child.kill().unwrap();
        child.wait().unwrap();
        let kept = std::fs::read_to_string(data.join("tokens.json")).unwrap();
        assert!(!kept.contains(&token), "{kept}");
        // Told once.
        let service = Service::start_with(project, &[], &[]);
        service.with(&token).get("/v1/me").is(200);
        let (_, said) = service.end();
        assert!(!said.contains("administrator's token"), "{said}");
        assert!(!said.contains(&token), "{said}");
    });
}

#[test]
fn pages_of_others_do_not_reach_it() {
    let service = Service::start(As::all()[0]);
    let port = service.address.port();
    let with = |headers: &[(&str, &str)]| service.send("GET", "/v1/me", headers, b"");
    with(&[("Host", &format!("evil.example:{port}"))]).fails(421, "host");
    with(&[("Host", "evil.example")]).fails(421, "host");
    assert_eq!(with(&[("Host", &format!("localhost:{port}"))]).status, 200);
    with(&[("Origin", "http://evil.example")]).fails(403, "origin");
    with(&[("Origin", "null")]).fails(403, "origin");
    assert_eq!(with(&[("Origin", &format!("http://127.0.0.1:{port}"))]).status, 200);
    let (_, said) = service.end();
    assert!(!said.contains(ADMIN), "{said}");
}

#[test]
fn quotas_and_rates_hold() {
    let service = Service::start(As::all()[0]);
    let quotas = json!({ "executions": 2, "sandboxes": 1, "storageBytes": 2000, "requestsPerSecond": 5 });
    service.put("/v1/tenants/alice/quotas", &quotas).is(200);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let big = "x".repeat(3000);
    service.upload("alice", "helper", &[("big/SKILL.md", SKILL), ("big/x", &big)]).fails(507, "quota");
    service.put("/v1/skills/alice/helper/tool/edit", &json!({ "path": "x", "content": big })).fails(507, "quota");
    let alice = service.token("alice", &["skills:read"]);
    let answers: Vec<u16> = (0..30).map(|_| alice.get("/v1/me").status).collect();
    assert!(answers.contains(&429) && answers[0] == 200, "{answers:?}");
    let slow = alice.get("/v1/me");
    if slow.status == 429 {
        slow.fails(429, "rate");
        assert!(slow.header("retry-after").is_some());
    }
    // Others do not wait for them.
    assert!((0..30).all(|_| service.get("/v1/me").status == 200));
}
