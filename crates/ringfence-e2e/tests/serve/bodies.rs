//! Requests whose body is large, unfinished or refused before it was read.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ringfence_testkit::{TestUser, becomes_true, needs};
use serde_json::json;

use crate::client::{HttpTestClient, read};
use crate::stage::{SKILL, Service};

/// Resident memory of the service, in bytes.
fn resident(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS is reported");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number")
        * 1024
}

/// Sends the head of a request with `length` bytes of body, and none of the body.
fn begun(
    client: &HttpTestClient,
    method: &str,
    path: &str,
    kind: &str,
    length: usize,
) -> TcpStream {
    let mut stream = TcpStream::connect(client.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
    let token = client.token.as_deref().expect("a token");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n",
        client.address
    );
    stream.write_all(head.as_bytes()).expect("it is taken");
    stream
}

/// Promise: upload-memory
#[test]
fn unfinished_uploads_take_no_memory() {
    let service = Service::start(TestUser::all()[0]);
    let made = service.post("/v1/sandboxes", &json!({ "userId": "alice" })).is(201);
    let files = format!("/v1/sandboxes/{}/files?path=large", made["id"].as_str().unwrap());
    service.get("/v1/me").is(200);
    let before = resident(&service);
    let piece = vec![b'x'; 15 << 20];
    // With the administrator's token, which has no limit on open requests.
    let held: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = begun(&service, "PUT", &files, "application/octet-stream", 20 << 20);
            stream.write_all(&piece).expect("it is taken");
            stream
        })
        .collect();
    service.get("/v1/me").is(200);
    let after = resident(&service);
    assert!(
        after < before + (100 << 20),
        "{} MiB before, {} MiB with {} uploads",
        before >> 20,
        after >> 20,
        held.len()
    );
    drop(held);
    // Nothing of them stays on disk, and a complete upload works.
    assert!(becomes_true(Duration::from_secs(10), || fs::read_dir(service.data().join("staging"))
        .unwrap()
        .count()
        == 0));
    let whole = service
        .send("PUT", &files, &[("Content-Type", "application/octet-stream")], &vec![b'y'; 20 << 20])
        .is(200);
    assert_eq!(whole["size"], 20 << 20);
    service.send("PUT", &files, &[], &vec![b'y'; 33 << 20]).fails(413, "too-large");
}

/// Promise: upload-memory
#[test]
fn unfinished_bodies_of_one_tenant_are_bounded() {
    let service = Service::start(TestUser::all()[0]);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let alice = service.token("alice", &["skills:write", "skills:read", "sandboxes"]);
    let bob = service.token("bob", &["skills:read"]);
    let made = alice.post("/v1/sandboxes", &json!({})).is(201);
    let files = format!("/v1/sandboxes/{}/files?path=large", made["id"].as_str().unwrap());
    let edit = "/v1/skills/alice/helper/tool/edit";
    let before = resident(&service);
    for (method, path, kind) in
        [("PUT", edit, "application/json"), ("PUT", files.as_str(), "application/octet-stream")]
    {
        let mut held: Vec<TcpStream> = Vec::new();
        for _ in 0..30 {
            let mut stream = begun(&alice, method, path, kind, 15 << 20);
            // The service stops reading refused requests.
            let _ = stream.write_all(&vec![b' '; 14 << 20]);
            held.push(stream);
        }
        let after = resident(&service);
        assert!(
            after < before + (200 << 20),
            "{path}: {} MiB before, {} MiB after",
            before >> 20,
            after >> 20
        );
        let last = held.pop().expect("thirty");
        read(&mut BufReader::new(last)).expect("it is answered").fails(429, "too-many-open");
        // Other tenants are served, and so are smaller requests of this one.
        bob.get("/v1/me").is(200);
        alice.get("/v1/me").is(200);
    }
    assert!(becomes_true(Duration::from_secs(20), || alice
        .put(edit, &json!({ "path": "x", "content": "y".repeat(1 << 20) }))
        .status
        == 200));
}

#[test]
fn response_sent_before_the_body_was_read_arrives() {
    let service = Service::start(TestUser::all()[0]);
    let alice = service.token("alice", &["skills:write"]);
    let large = vec![b'x'; 24 << 20];
    let cases = [
        (&alice, "POST", "/v1/nothing", 404),
        (&alice, "PATCH", "/v1/me", 405),
        (&alice, "POST", "/v1/skills/bob/helper/upload", 403),
        (&alice, "POST", "/v1/skills/alice/helper/upload", 415),
        (&alice, "PUT", "/v1/sandboxes/none/files?path=x", 403),
    ];
    for (client, method, path, status) in cases {
        // Like Python's `requests`: the whole body first, then the response.
        let mut stream = begun(client, method, path, "application/octet-stream", large.len());
        stream.write_all(&large).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        let mut stream = BufReader::new(stream);
        let reply = read(&mut stream).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        assert_eq!(reply.status, status, "{method} {path}");
        // Without `Connection: close` the connection stays open.
        if reply.header("connection").is_none() {
            let token = client.token.as_deref().unwrap();
            let again = format!(
                "GET /v1/me HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
                client.address
            );
            stream.get_mut().write_all(again.as_bytes()).unwrap();
            assert_eq!(
                read(&mut stream)
                    .unwrap_or_else(|error| panic!("{method} {path}, again: {error}"))
                    .status,
                200
            );
        }
    }
}

#[test]
fn rate_limit_response_to_a_large_body_arrives() {
    let service = Service::start(TestUser::all()[0]);
    service.put("/v1/tenants/alice/quotas", &json!({ "requestsPerSecond": 1 })).is(200);
    let alice = service.token("alice", &["skills:write"]);
    let large = vec![b'x'; 8 << 20];
    let statuses: Vec<u16> = (0..8)
        .map(|_| {
            // Small requests use up the rate, whatever the speed of the large ones.
            assert!((0..100).any(|_| alice.get("/v1/me").status == 429));
            let mut stream = begun(
                &alice,
                "POST",
                "/v1/skills/alice/helper/upload",
                "application/octet-stream",
                large.len(),
            );
            stream.write_all(&large).expect("all of it is taken");
            read(&mut BufReader::new(stream)).expect("it is answered").status
        })
        .collect();
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[test]
fn missing_body_does_not_delay_a_refusal() {
    let service = Service::start(TestUser::all()[0]);
    let mut stream = begun(&service, "POST", "/v1/nothing", "application/json", 1 << 20);
    stream.write_all(b"{").unwrap();
    let begun = std::time::Instant::now();
    let mut said = String::new();
    BufReader::new(stream).read_to_string(&mut said).expect("it is answered, and closed");
    assert!(
        said.starts_with("HTTP/1.1 404") && said.to_ascii_lowercase().contains("connection: close"),
        "{said}"
    );
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn common_clients_get_the_response_to_a_large_body() {
    if !needs(&["curl", "python3"]) {
        return;
    }
    let service = Service::start(TestUser::all()[0]);
    let file = service.project().home().join("large");
    fs::write(&file, vec![b'x'; 24 << 20]).unwrap();
    let (url, token) =
        (format!("http://{}/v1/nothing", service.address), service.token.clone().unwrap());
    let header = format!("Authorization: Bearer {token}");
    for expect in ["Expect:", "Expect: 100-continue"] {
        let mut curl = std::process::Command::new("curl");
        curl.args([
            "-sS",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &header,
            "-H",
            expect,
            "--data-binary",
        ]);
        let asked = curl.arg(format!("@{}", file.display())).arg(&url).output().expect("curl runs");
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "404", "{expect} {asked:?}");
    }
    let script = "import http.client, sys\n\
        c = http.client.HTTPConnection(sys.argv[1])\n\
        c.request('POST', '/v1/nothing', open(sys.argv[3], 'rb').read(), {'Authorization': 'Bearer ' + sys.argv[2]})\n\
        print(c.getresponse().status)\n";
    let mut python = std::process::Command::new("python3");
    let asked = python
        .args(["-c", script, &service.address.to_string(), &token])
        .arg(&file)
        .output()
        .expect("python runs");
    assert_eq!(String::from_utf8_lossy(&asked.stdout), "404\n", "{asked:?}");
    if needs(&["node"]) {
        let script = "const [url, token, file] = process.argv.slice(1);\n\
            fetch(url, { method: 'POST', headers: { authorization: 'Bearer ' + token }, body: require('fs').readFileSync(file) })\n\
            .then(answer => console.log(answer.status), error => console.log(String(error.cause ?? error)));\n";
        let mut node = std::process::Command::new("node");
        let asked = node.args(["-e", script, &url, &token]).arg(&file).output().expect("node runs");
        assert_eq!(String::from_utf8_lossy(&asked.stdout), "404\n", "{asked:?}");
    }
}
