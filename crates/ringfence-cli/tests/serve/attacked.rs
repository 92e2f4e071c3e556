//! Ways in which a tenant, or a stranger, took what is not theirs.

use std::io::{BufRead, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestUser, each_user};
use serde_json::{Value, json};

use crate::client::Client;
use crate::stage::{SKILL, Service};

/// Reads the file that its first word names, from the root on.
const READ: &str = "import sys\ntry: print(open('/' + sys.argv[1]).read())\nexcept OSError as error: print(error)\n";

/// Runs a line that asks, and has `who` allow whatever comes; answers the result and what they
/// heard.
fn allowed_by(who: &Client, runner: &Client, line: &str) -> (Value, Vec<(Value, u16)>) {
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

/// Promise: P114
#[test]
fn no_tenant_opens_the_host_by_answering_its_own_question() {
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
        // Whoever runs the service may; and that there was a question shows that nothing else
        // refused it.
        let (result, heard) = allowed_by(&service, &alice, &line);
        assert!(result["stdout"].as_str().unwrap().contains("of the host"), "{result} {heard:?}");
        // What the service keeps is opened by nobody.
        let key = service.data().join("policy.toml");
        let (result, heard) = allowed_by(
            &service,
            &alice,
            &format!("python3 read.py {}", key.to_str().unwrap().trim_start_matches('/')),
        );
        assert!(!result["stdout"].as_str().unwrap().contains("version"), "{result} {heard:?}");
    });
}

/// Promise: P114
#[test]
fn no_tenant_says_what_it_may_do() {
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

/// A request whose answer is not read.
fn left_open(client: &Client, path: &str) -> TcpStream {
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

/// The status of an answer that goes on.
fn status(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    String::from_utf8_lossy(&head[9..]).into_owned()
}

#[test]
fn one_tenant_does_not_take_every_place() {
    let service = Service::start(TestUser::all()[0]);
    let (alice, bob) = (service.token("alice", &["audit"]), service.token("bob", &["audit"]));
    let mut open: Vec<TcpStream> = (0..128).map(|_| left_open(&alice, "/v1/events")).collect();
    assert!(open.iter_mut().all(|stream| status(stream) == "200"));
    let refused = alice.get("/v1/me");
    refused.fails(429, "too-many-open");
    assert!(refused.header("retry-after").is_some());
    bob.get("/v1/me").is(200);
    // Whoever leaves makes room.
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
fn whoever_watches_hears_nothing_after_their_token_has_ended() {
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
fn strangers_leave_nothing_in_the_numbers() {
    let service = Service::start(TestUser::all()[0]);
    let stranger = service.without();
    for number in 0..50 {
        stranger.send(&format!("METHOD{number}"), "/healthz", &[], b"");
    }
    let numbers = service.get("/metrics").text();
    assert!(!numbers.contains("METHOD") && numbers.contains("method=\"other\""), "{numbers}");
}

#[test]
fn a_name_that_leads_elsewhere_is_refused_wherever_it_stands() {
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
    // A page that is refused is not told that it may read the refusal.
    let refused = service.send("GET", "/v1/me", &[("Origin", "http://evil.example")], b"");
    refused.fails(403, "origin");
    assert_eq!(refused.header("access-control-allow-origin"), None);
}

#[test]
fn commands_do_not_write_beyond_what_their_tenant_may_have() {
    let service = Service::start(TestUser::all()[0]);
    service.put("/v1/tenants/alice/quotas", &json!({ "storageBytes": 100_000 })).is(200);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let line = "python3 -c \"open('much', 'w').write('x' * 200000)\"";
    assert_eq!(service.execute("alice/helper/tool", line).is(200)["exitCode"], 0);
    let is_over = || service.execute("alice/helper/tool", "echo more").status == 507;
    assert!(ringfence_testkit::soon(Duration::from_secs(20), is_over), "it writes on and on");
    service.execute("alice/helper/tool", "echo more").fails(507, "quota");
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    service.execute("alice/helper/tool", "echo more").is(200);
}
