//! Attacks by a tenant or by an unauthenticated client.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestUser, each_user};
use serde_json::{Value, json};

use crate::client::HttpTestClient;
use crate::stage::{SKILL, Service};

/// Reads the file that its first argument names, relative to the root.
const READ: &str = "import sys\ntry: print(open('/' + sys.argv[1]).read())\nexcept OSError as error: print(error)\n";

/// Runs a command and lets `who` allow every permission request; returns the result and the status
/// of each answer.
fn allowed_by(
    who: &HttpTestClient,
    runner: &HttpTestClient,
    line: &str,
) -> (Value, Vec<(Value, u16)>) {
    let (runner, body) =
        (runner.clone(), json!({ "command": line, "ask": true, "timeoutMs": 10_000 }));
    let runs =
        thread::spawn(move || runner.post("/v1/skills/alice/helper/tool/execute", &body).is(200));
    let mut heard = Vec::new();
    while !runs.is_finished() {
        for ask in who.get("/v1/asks").is(200)["asks"].as_array().unwrap() {
            let way = format!("/v1/asks/{}", ask["id"].as_str().unwrap());
            heard.push((ask.clone(), who.post(&way, &json!({ "answer": "allow_once" })).status));
            who.post(&way, &json!({ "answer": "deny" }));
        }
        thread::sleep(Duration::from_millis(50));
    }
    (runs.join().unwrap(), heard)
}

/// Promise: tenant-ceiling
#[test]
fn tenant_cannot_open_host_files_by_its_own_answer() {
    each_user(|user| {
        let service = Service::start(user);
        let secret = service.project().home().join("note.txt");
        service.project().write_at(&secret, "of the host");
        let alice = service.token("alice", &["skills:read", "skills:write", "execute", "asks"]);
        alice
            .upload("alice", "helper", &[("tool/SKILL.md", SKILL), ("tool/read.py", READ)])
            .is(200);
        let line = format!("python3 read.py {}", secret.to_str().unwrap().trim_start_matches('/'));
        let (result, heard) = allowed_by(&alice, &alice, &line);
        assert!(!result["stdout"].as_str().unwrap().contains("of the host"), "{result}");
        assert!(
            heard.iter().all(|(ask, status)| *status == 403 && ask["isWithinPolicy"] == false),
            "{heard:?}"
        );
        // The operator may. The permission request shows that no other rule refused the read.
        let (result, heard) = allowed_by(&service, &alice, &line);
        assert!(result["stdout"].as_str().unwrap().contains("of the host"), "{result} {heard:?}");
        // No answer opens the service's own data.
        let key = service.data().join("policy.toml");
        let (result, heard) = allowed_by(
            &service,
            &alice,
            &format!("python3 read.py {}", key.to_str().unwrap().trim_start_matches('/')),
        );
        assert!(!result["stdout"].as_str().unwrap().contains("version"), "{result} {heard:?}");
    });
}

/// Promise: tenant-ceiling
#[test]
fn tenant_cannot_widen_its_own_policy() {
    let service = Service::start(TestUser::all()[0]);
    let alice = service.token("alice", &["admin", "skills:read", "execute"]);
    alice
        .put(
            "/v1/tenants/alice/policy",
            &json!({ "policy": "version = 1\nmode = \"full-access\"\n" }),
        )
        .fails(403, "tenant");
    let much = json!({ "executions": 9999, "sandboxes": 9999, "storageBytes": 1u64 << 50, "requestsPerSecond": 99_999 });
    alice.put("/v1/tenants/alice/quotas", &much).fails(403, "tenant");
    assert_eq!(alice.get("/v1/tenants/alice/policy").is(200)["policy"], "");
    service.put("/v1/tenants/alice/policy", &json!({ "policy": "version = 1\n" })).is(200);
}

/// Also not one set by the operator: a tenant's commands are confined or do not run.
///
/// Promise: tenant-ceiling
#[test]
fn tenant_policy_cannot_turn_the_sandbox_off() {
    let service = Service::start(TestUser::all()[0]);
    let text = "version = 1\non-gap = \"run\"\n[sandbox]\nprovider = \"process\"\n";
    service.put("/v1/tenants/alice/policy", &json!({ "policy": text })).fails(400, "policy");
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    service.execute("alice/helper/tool", "echo ran").is(200);
    // A file that did not come through the API.
    let file = service.data().join("tenants/alice/ringfence/policy.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    for text in
        [text, "version = 1\nmode = \"full-access\"\n", "version = 1\n[sandbox]\nenabled = false\n"]
    {
        std::fs::write(&file, text).unwrap();
        service.execute("alice/helper/tool", "echo ran").fails(503, "policy");
    }
}

/// Sends a request and leaves its response unread.
fn left_open(client: &HttpTestClient, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let token = client.token.as_deref().unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
        client.address
    )
    .unwrap();
    stream
}

/// The status line of a response that is still streaming.
fn status(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[test]
fn one_tenant_cannot_use_all_connections() {
    let service = Service::start(TestUser::all()[0]);
    let (alice, bob) = (service.token("alice", &["audit"]), service.token("bob", &["audit"]));
    let mut open: Vec<TcpStream> = (0..128).map(|_| left_open(&alice, "/v1/events")).collect();
    assert!(open.iter_mut().all(|stream| status(stream) == "200"));
    let refused = alice.get("/v1/me");
    refused.fails(429, "too-many-open");
    assert!(refused.header("retry-after").is_some());
    bob.get("/v1/me").is(200);
    // A closed connection frees its slot.
    open.truncate(100);
    let begun = Instant::now();
    while alice.get("/v1/me").status == 429 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the places of those who left stay taken"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn event_stream_ends_with_its_token() {
    let service = Service::start(TestUser::all()[0]);
    for (more, is_revoked) in [(json!({}), true), (json!({ "expiresIn": 2 }), false)] {
        let mut wanted = json!({ "userId": "alice", "scopes": ["audit"] });
        wanted.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let token = service.post("/v1/tokens", &wanted).is(201);
        let mut stream = left_open(&service.with(token["token"].as_str().unwrap()), "/v1/events");
        assert_eq!(status(&mut stream), "200");
        if is_revoked {
            service.delete(&format!("/v1/tokens/{}", token["id"].as_str().unwrap())).is(204);
        }
        thread::sleep(Duration::from_secs(4));
        service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
        let mut rest = String::new();
        let mut lines = std::io::BufReader::new(stream);
        while let Ok(1..) = lines.read_line(&mut rest) {
            if rest.ends_with("\n0\r\n") {
                break;
            }
        }
        assert!(rest.ends_with("0\r\n"), "the stream goes on: {rest}");
        assert!(!rest.contains("helper"), "{rest}");
    }
}

#[test]
fn unauthenticated_requests_leave_no_metrics_labels() {
    let service = Service::start(TestUser::all()[0]);
    let stranger = service.without();
    for number in 0..50 {
        stranger.send(&format!("METHOD{number}"), "/healthz", &[], b"");
    }
    let numbers = service.get("/metrics").text();
    assert!(!numbers.contains("METHOD") && numbers.contains("method=\"other\""), "{numbers}");
}

#[test]
fn foreign_host_in_header_or_uri_is_refused() {
    let service = Service::start(TestUser::all()[0]);
    let host = service.address.to_string();
    service.send("GET", "http://evil.example/v1/me", &[("Host", &host)], b"").fails(421, "host");
    service
        .send(
            "GET",
            &format!("http://{host}/v1/me"),
            &[("Host", "evil.example"), ("Host", "evil.example")],
            b"",
        )
        .fails(421, "host");
    assert_eq!(
        service.send("GET", &format!("http://{host}/v1/me"), &[("Host", &host)], b"").status,
        200
    );
    // A refused origin gets no CORS headers.
    let refused = service.send("GET", "/v1/me", &[("Origin", "http://evil.example")], b"");
    refused.fails(403, "origin");
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

#[test]
fn disk_quota_of_a_tenant_ends_its_writers() {
    let service = Service::start(TestUser::all()[0]);
    service.put("/v1/tenants/alice/quotas", &json!({ "storageBytes": 100_000 })).is(200);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let line = "python3 -c \"open('much', 'w').write('x' * 200000)\"";
    assert_eq!(service.execute("alice/helper/tool", line).is(200)["exitCode"], 0);
    let is_over = || service.execute("alice/helper/tool", "echo more").status == 507;
    assert!(
        ringfence_testkit::becomes_true(Duration::from_secs(20), is_over),
        "the command still writes"
    );
    service.execute("alice/helper/tool", "echo more").fails(507, "quota");
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    service.execute("alice/helper/tool", "echo more").is(200);
}
