//! Tokens, scopes, quotas and rate limits.

use ringfence_testkit::{TestOutput, TestUser, each_user};
use serde_json::json;

use crate::stage::{ADMIN, SKILL, Service};

/// Promise: token-scope
#[test]
fn requests_without_a_valid_token_are_refused() {
    each_user(|user| {
        let service = Service::start(user);
        for path in [
            "/v1/me",
            "/v1/tenants",
            "/v1/executions",
            "/v1/skills/alice/helper/list",
            "/metrics",
            "/v1/events",
            "/v1/audit",
            "/nothing",
        ] {
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

/// Promise: token-scope
#[test]
fn token_is_limited_to_its_tenant_and_scopes() {
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
        alice
            .put("/v1/tenants/alice/policy", &json!({ "policy": "version = 1\n" }))
            .fails(403, "scope");
        alice.get("/metrics").fails(403, "tenant");
        // Executions of other tenants are not listed.
        let run = service.execute("bob/helper/tool", "ls");
        let id = run.header("x-execution-id").expect("its id");
        alice.get(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
        alice.delete(&format!("/v1/executions/{id}")).fails(404, "no-such-execution");
        let seen = alice.get("/v1/executions").is(200);
        assert!(
            seen["executions"].as_array().unwrap().iter().all(|one| one["userId"] == "alice"),
            "{seen}"
        );
        assert_eq!(alice.get("/v1/tenants").is(200)["tenants"].as_array().map(Vec::len), Some(1));
        // Each attempt is in the audit log.
        let refused = service.audit("alice", "&operation=request&blocked=true");
        assert_eq!(refused.len(), 8, "{refused:#?}");
    });
}

/// Promise: token-scope
#[test]
fn token_expires_and_can_be_revoked() {
    let service = Service::start(TestUser::all()[0]);
    let made = service
        .post(
            "/v1/tokens",
            &json!({ "userId": "alice", "scopes": ["skills:read"], "label": "a label" }),
        )
        .is(201);
    let alice = service.with(made["token"].as_str().unwrap());
    alice.get("/v1/me").is(200);
    let listed = service.get("/v1/tokens").is(200);
    assert!(!listed.to_string().contains(made["token"].as_str().unwrap()), "{listed}");
    service.delete(&format!("/v1/tokens/{}", made["id"].as_str().unwrap())).is(204);
    alice.get("/v1/me").fails(401, "token");
    let short = service
        .post(
            "/v1/tokens",
            &json!({ "userId": "alice", "scopes": ["skills:read"], "expiresIn": 0 }),
        )
        .is(201);
    service.with(short["token"].as_str().unwrap()).get("/v1/me").fails(401, "token");
    // A token cannot create one with more rights than its own.
    let admin = service.token("alice", &["admin", "skills:read"]);
    admin.post("/v1/tokens", &json!({ "scopes": ["execute"] })).fails(403, "scope");
    admin
        .post("/v1/tokens", &json!({ "userId": "bob", "scopes": ["skills:read"] }))
        .fails(403, "other-tenant");
    let child = admin.post("/v1/tokens", &json!({ "scopes": ["skills:read"] })).is(201);
    assert_eq!(child["userId"], "alice");
    service.delete("/v1/tokens/admin").fails(409, "admin-token");
}

/// Promise: token-scope
#[test]
fn first_start_makes_a_token_and_stores_only_its_hash() {
    each_user(|user| {
        ringfence_testkit::fuse_for_all();
        let project =
            ringfence_testkit::TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"));
        let data = project.home().join("data");
        let mut command = project.ringfence();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--profile", "filesecbox", "--data"])
            .arg(&data);
        command.env_remove("RINGFENCE_ADMIN_TOKEN").stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut lines =
            std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        let address = lines
            .next()
            .unwrap()
            .unwrap()
            .split("://")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let token = lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
        let client = crate::client::HttpTestClient { address, token: Some(token.clone()) };
        let me = client.get("/v1/me").is(200);
        assert_eq!(me["token"], "admin");
        child.kill().unwrap();
        child.wait().unwrap();
        let kept = std::fs::read_to_string(data.join("tokens.json")).unwrap();
        assert!(!kept.contains(&token), "{kept}");
        // The token is printed once.
        let service = Service::start_with(project, &[], &[]);
        service.with(&token).get("/v1/me").is(200);
        let (_, said) = service.end();
        assert!(!said.contains("administrator's token"), "{said}");
        assert!(!said.contains(&token), "{said}");
    });
}

/// Promise: token-scope
#[test]
fn foreign_hosts_and_origins_are_refused() {
    let service = Service::start(TestUser::all()[0]);
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

/// Promise: tenant-limits
#[test]
fn quotas_and_rate_limits_hold() {
    let service = Service::start(TestUser::all()[0]);
    let quotas =
        json!({ "executions": 2, "sandboxes": 1, "storageBytes": 2000, "requestsPerSecond": 5 });
    service.put("/v1/tenants/alice/quotas", &quotas).is(200);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let big = "x".repeat(3000);
    service
        .upload("alice", "helper", &[("big/SKILL.md", SKILL), ("big/x", &big)])
        .fails(507, "quota");
    service
        .put("/v1/skills/alice/helper/tool/edit", &json!({ "path": "x", "content": big }))
        .fails(507, "quota");
    let alice = service.token("alice", &["skills:read"]);
    let answers: Vec<u16> = (0..30).map(|_| alice.get("/v1/me").status).collect();
    assert!(answers.contains(&429) && answers[0] == 200, "{answers:?}");
    let slow = alice.get("/v1/me");
    if slow.status == 429 {
        slow.fails(429, "rate");
        assert!(slow.header("retry-after").is_some());
    }
    // Other tenants are not delayed.
    assert!((0..30).all(|_| service.get("/v1/me").status == 200));
}

#[test]
fn missing_token_key_is_an_error() {
    each_user(|user| {
        let service = Service::start(user);
        service.token("alice", &["skills:read"]);
        let (project, _) = service.end();
        let data = project.home().join("data");
        std::fs::remove_file(data.join("key")).expect("the key is there");
        let serve = || {
            let mut command = project.ringfence();
            command
                .args(["serve", "--listen", "127.0.0.1:0", "--data"])
                .arg(&data)
                .env("RINGFENCE_ADMIN_TOKEN", ADMIN);
            command
        };
        let ran = TestOutput::run(&mut serve(), b"");
        let said = ran.expect_status(125).stderr_text();
        assert!(
            said.contains("data/key is missing")
                && said.contains("hint: ")
                && !data.join("key").exists(),
            "{said}"
        );
        let said =
            TestOutput::run(serve().args(["--host", "a b"]), b"").expect_status(125).stderr_text();
        assert!(said.contains("not a host name"), "{said}");
    });
}

/// Promise: minted-tokens
#[test]
fn minted_token_never_outlives_its_minter() {
    let service = Service::start(TestUser::all()[0]);
    let short = json!({ "userId": "alice", "scopes": ["admin", "skills:read"], "expiresIn": 60 });
    let short = service.post("/v1/tokens", &short).is(201);
    let minter = service.with(short["token"].as_str().unwrap());
    let end = short["expiresMs"].as_u64().expect("it expires");
    for wanted in
        [json!({ "scopes": ["skills:read"] }), json!({ "scopes": ["admin"], "expiresIn": 86_400 })]
    {
        let minted = minter.post("/v1/tokens", &wanted).is(201);
        assert!(
            minted["expiresMs"].as_u64().is_some_and(|minted| minted <= end),
            "{wanted}: {minted}"
        );
    }
    let shorter =
        minter.post("/v1/tokens", &json!({ "scopes": ["skills:read"], "expiresIn": 5 })).is(201);
    assert!(shorter["expiresMs"].as_u64().is_some_and(|minted| minted + 30_000 < end), "{shorter}");
    // All descendants of a token end with it, and no other token does.
    let child = minter.post("/v1/tokens", &json!({ "scopes": ["admin", "skills:read"] })).is(201);
    let child = service.with(child["token"].as_str().unwrap());
    let grandchild = child.post("/v1/tokens", &json!({ "scopes": ["skills:read"] })).is(201);
    let grandchild = service.with(grandchild["token"].as_str().unwrap());
    let other = service.token("alice", &["skills:read"]);
    grandchild.get("/v1/me").is(200);
    service.delete(&format!("/v1/tokens/{}", short["id"].as_str().unwrap())).is(204);
    for gone in [&minter, &child, &grandchild] {
        gone.get("/v1/me").fails(401, "token");
    }
    other.get("/v1/me").is(200);
    let service = Service::start_in(service.end().0, &[]);
    service.with(grandchild.token.as_deref().unwrap()).get("/v1/me").fails(401, "token");
}

#[test]
fn rate_quota_is_shared_by_all_tokens_of_a_tenant() {
    let service = Service::start(TestUser::all()[0]);
    service.put("/v1/tenants/alice/quotas", &json!({ "requestsPerSecond": 1 })).is(200);
    let tokens: Vec<_> = (0..40).map(|_| service.token("alice", &["skills:read"])).collect();
    let bob = service.token("bob", &["skills:read"]);
    let answers: Vec<u16> = tokens.iter().map(|token| token.get("/v1/me").status).collect();
    // Two at once, and one more for each second that the forty requests take.
    assert!(answers.iter().filter(|status| **status == 429).count() >= 10, "{answers:?}");
    assert!((0..20).all(|_| bob.get("/v1/me").status == 200));
}

/// A comparison with each of 20,000 tokens would take tens of milliseconds.
#[test]
fn authentication_takes_no_longer_with_many_tokens() {
    let service = Service::start(TestUser::all()[0]);
    let median = |service: &Service| {
        let mut took: Vec<_> = (0..60)
            .map(|_| {
                let begun = std::time::Instant::now();
                service.get("/v1/me").is(200);
                begun.elapsed()
            })
            .collect();
        took.sort();
        took[took.len() / 2]
    };
    let few = median(&service);
    service.token("alice", &["skills:read"]);
    let (project, _) = service.end();
    let file = project.home().join("data/tokens.json");
    let mut tokens: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let model = tokens.last().expect("one was made").clone();
    tokens.extend((0..20_000u32).map(|number| {
        let mut token = model.clone();
        (token["id"], token["digest"]) =
            (json!(format!("{number:012x}")), json!(format!("{number:064x}")));
        token
    }));
    project.write_at(&file, serde_json::to_string(&tokens).unwrap());
    let service = Service::start_in(project, &[]);
    assert_eq!(service.get("/v1/tokens").is(200)["tokens"].as_array().map(Vec::len), Some(20_001));
    let many = median(&service);
    assert!(
        many < few * 4 + std::time::Duration::from_millis(4),
        "{few:?} with one token, {many:?} with 20,000"
    );
}
