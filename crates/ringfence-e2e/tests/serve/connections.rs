//! Connections and requests: TLS, fragments, oversized requests, and idle clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use ringfence_testkit::{TestProject, TestUser, fuse_for_all, needs};
use serde_json::json;

use crate::stage::{ADMIN, SKILL, Service};

#[test]
fn tls_is_served_with_the_configured_certificate() {
    if !needs(&["openssl", "curl"]) {
        return;
    }
    fuse_for_all();
    let project = TestProject::new(TestUser::all()[0], env!("CARGO_BIN_EXE_ringfence-e2e"));
    let (cert, key) = (project.home().join("cert.pem"), project.home().join("key.txt"));
    let made = project
        .command("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ])
        .args([
            std::ffi::OsStr::new("-keyout"),
            key.as_os_str(),
            std::ffi::OsStr::new("-out"),
            cert.as_os_str(),
        ])
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{made:?}");
    let words = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let service = Service::start_in(project, &words);
    let url = format!("https://{}/v1/me", service.address);
    let header = format!("Authorization: Bearer {ADMIN}");
    let asked = Command::new("curl")
        .args(["-sS", "--cacert"])
        .arg(&cert)
        .args(["-H", &header, &url])
        .output()
        .expect("curl runs");
    assert!(String::from_utf8_lossy(&asked.stdout).contains("\"admin\""), "{asked:?}");
    // Plain HTTP is refused.
    assert!(service.try_send("GET", "/healthz", &[], b"").is_err());
}

#[test]
fn other_machines_need_tls() {
    let project = TestProject::new(TestUser::all()[0], env!("CARGO_BIN_EXE_ringfence-e2e"));
    let data = project.home().join("data");
    let ran = project
        .ringfence()
        .args(["serve", "--listen", "0.0.0.0:0", "--data"])
        .arg(&data)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert_eq!(ran.status.code(), Some(125), "{said}");
    assert!(said.contains("TLS") && said.contains("hint:"), "{said}");
    assert!(!data.exists(), "nothing was made");
}

#[test]
fn malformed_requests_get_the_usual_error_format() {
    let service = Service::start(TestUser::all()[0]);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    let at = "/v1/skills/alice/helper/tool/execute";
    let sent = |kind: &str, body: &[u8]| service.send("POST", at, &[("Content-Type", kind)], body);
    sent("application/json", b"{").fails(400, "body");
    sent("application/json", b"{}").fails(422, "body");
    sent("application/json", b"{\"command\": 5}").fails(422, "body");
    sent("application/json", b"{\"command\": \"ls\", \"sudo\": true}").fails(422, "body");
    sent("text/plain", b"ls").fails(415, "content-type");
    sent(
        "application/json",
        &[b"{\"command\": \"".as_slice(), &vec![b'x'; 17 << 20], b"\"}"].concat(),
    )
    .fails(413, "too-large");
    service.post(at, &json!({ "command": "" })).fails(400, "command");
    service.post(at, &json!({ "command": "a\0b" })).fails(400, "command");
    service.post(&format!("{at}?sync=1"), &json!({ "command": "ls" })).fails(400, "query");
    service.get("/v1/skills/al%2Fice/helper/list").fails(400, "name");
    service.get("/v1/skills/..%2f/helper/list").fails(400, "name");
    service.get("/v1/skills/.../helper/list").fails(400, "name");
    service.get("/v1/skills/a%00b/helper/list").fails(400, "name");
    service.get("/v1/nothing").fails(404, "no-such-path");
    service.send("PATCH", "/v1/me", &[], b"").fails(405, "method");
    service
        .send(
            "POST",
            "/v1/skills/alice/helper/upload",
            &[("Content-Type", "application/zip")],
            b"PK",
        )
        .fails(415, "content-type");
    service
        .send(
            "POST",
            "/v1/skills/alice/helper/upload",
            &[("Content-Type", "multipart/form-data; boundary=x")],
            b"--x--",
        )
        .fails(400, "form");
    service.upload_bytes("alice", "helper", b"no archive").is(400);
}

#[test]
fn idle_connections_are_closed() {
    let service = Service::start(TestUser::all()[0]);
    let mut silent = TcpStream::connect(service.address).unwrap();
    silent.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut said = Vec::new();
    // The server sends an error or just closes the connection.
    let _ = silent.read_to_end(&mut said);
    assert!(
        silent.write_all(b"x\r\n\r\n").and_then(|()| silent.write_all(b"x")).is_err()
            || !String::from_utf8_lossy(&said).contains("200")
    );
    assert_eq!(service.get("/healthz").status, 200);
}

#[test]
fn metrics_and_openapi_document_are_served() {
    let service = Service::start(TestUser::all()[0]);
    service.upload("alice", "helper", &[("tool/SKILL.md", SKILL)]).is(200);
    service.execute("alice/helper/tool", "ls").is(200);
    service.execute("alice/helper/tool", "cat /etc/passwd").is(200);
    let text = service.get("/metrics").text();
    for line in [
        "ringfence_executions_total{result=\"ended\"} 1",
        "ringfence_executions_total{result=\"blocked\"} 1",
        "ringfence_uploads_total 1",
        "ringfence_executions_running 0",
        "ringfence_execution_seconds_count 2",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let document = service.without().get("/openapi.json").is(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{document}");
    let paths = document["paths"].as_object().unwrap();
    for path in [
        "upload",
        "list",
        "{skillId}/files",
        "{skillId}/content",
        "{skillId}/edit",
        "{skillId}/execute",
    ] {
        assert!(paths.contains_key(&format!("/v1/skills/{{userId}}/{{agentId}}/{path}")), "{path}");
    }
}

#[test]
fn second_service_on_the_same_data_is_refused() {
    let service = Service::start(TestUser::all()[0]);
    let mut other = service.project().ringfence();
    other.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(service.data());
    let ran = other.output().expect("it runs");
    assert_eq!(ran.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("another service"), "{ran:?}");
}
