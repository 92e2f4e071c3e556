//! MCP over HTTP: authentication, session limits and disconnects.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ringfence_testkit::{TestOutput, TestUser};
use serde_json::{Value, json};

use crate::{HttpServer, drive, project, shell};

/// Sends one request and returns its status, head and body.
fn send(
    http: &HttpServer,
    start: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String, String) {
    let mut stream = TcpStream::connect(http.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
    let mut head =
        format!("{start} HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    // The server may respond before the whole request was sent.
    let _ = stream.write_all(format!("{head}\r\n{body}").as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, head.to_owned(), body.to_owned())
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}"#;

/// The protocol version without sessions.
const NEWEST: &str = "2026-07-28";

/// The headers of a valid request.
fn right<'a>(host: &'a str, bearer: &'a str) -> Vec<(&'a str, &'a str)> {
    let accept = ("Accept", "application/json, text/event-stream");
    vec![("Host", host), ("Authorization", bearer), accept, ("Content-Type", "application/json")]
}

/// Promise: mcp-http
#[test]
fn requests_need_the_token_and_a_valid_host_and_origin() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
    let check = |start: &str, change: &[(&str, &str)], expect: u16| {
        let mut headers = right(&host, &bearer);
        headers.retain(|(name, _)| change.iter().all(|(changed, _)| changed != name));
        headers.extend(change.iter().filter(|(_, value)| !value.is_empty()));
        let (status, head, body) = send(&http, start, &headers, INITIALIZE);
        assert_eq!(status, expect, "{start} {change:?}: {head}\n{body}");
    };
    let port = host.rsplit(':').next().unwrap_or_default().to_owned();
    check("POST /mcp", &[], 200);
    check("POST /mcp", &[("Host", &format!("localhost:{port}"))], 200);
    check("POST /mcp", &[("Authorization", "")], 401);
    check("POST /mcp", &[("Authorization", "Bearer wrong")], 401);
    check("POST /mcp", &[("Authorization", &bearer[..bearer.len() - 1])], 401);
    check("GET /", &[("Authorization", "")], 401);
    check("POST /", &[], 404);
    check("POST /mcp/../x", &[], 404);
    // A page in a browser: by a foreign host name that resolves to us, and from another origin.
    check("POST /mcp", &[("Host", &format!("evil.example:{port}"))], 403);
    check("POST /mcp", &[("Host", "127.0.0.1:1")], 403);
    check("POST /mcp", &[("Origin", "https://evil.example")], 403);
    check("POST /mcp", &[("Origin", "null")], 403);
    check("POST /mcp", &[("Origin", &format!("http://localhost:{port}"))], 403);
    check("PUT /mcp", &[], 405);
    let (status, ..) = send(&http, "POST /mcp", &right(&host, &bearer), &" ".repeat(17 << 20));
    assert_eq!(status, 413);
}

#[test]
fn connection_closes_after_a_401() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let mut stream = TcpStream::connect(http.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("it is a socket");
    // A client that pipelines requests and reads nothing would occupy a slot for ever.
    let _ = stream.write_all("GET /mcp HTTP/1.1\r\nHost: x\r\n\r\n".repeat(3).as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert_eq!(answer.matches("HTTP/1.1 401").count(), 1, "{answer}");
}

#[test]
fn every_loopback_address_is_usable() {
    let project = project(TestUser::User);
    for address in ["127.0.0.2:0", "[::1]:0"] {
        let http = HttpServer::open(&project, &[address]);
        let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
        let (status, head, body) = send(&http, "POST /mcp", &right(&host, &bearer), INITIALIZE);
        assert_eq!(status, 200, "{address}: {head}\n{body}");
    }
}

/// Promise: mcp-http
#[test]
fn non_loopback_addresses_and_short_tokens_are_refused() {
    let project = project(TestUser::User);
    for (address, token) in [
        ("0.0.0.0:0", None),
        ("192.0.2.1:80", None),
        ("nonsense", None),
        ("127.0.0.1:0", Some("short")),
        ("127.0.0.1:0", Some("")),
    ] {
        let mut server = project.ringfence();
        server.args(["mcp", "--http", address]);
        server.envs(token.map(|token| ("RINGFENCE_MCP_TOKEN", token)));
        let ran = TestOutput::run(&mut server, b"");
        ran.expect_status(125);
        assert!(ran.stdout.is_empty(), "{address} {token:?}");
    }
}

/// Promise: mcp-http
#[test]
fn sessions_have_own_shells_and_sessionless_clients_share_one() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let ask = |mode: &str, line: &str| {
        let report =
            drive(&json!({ "server": http.server(), "mode": mode, "steps": [shell(line)] }))?;
        Some(report["results"][0]["structured"]["stdout"].clone())
    };
    let Some(first) = ask("legacy", "echo $X; X=old") else { return };
    assert_eq!((first, ask("legacy", "echo $X").unwrap_or_default()), (json!("\n"), json!("\n")));
    assert_eq!(ask("auto", "echo $X; X=new").unwrap_or_default(), "\n");
    assert_eq!(ask("auto", "echo $X").unwrap_or_default(), "new\n");
    assert_eq!(ask("legacy", "echo $X").unwrap_or_default(), "\n");
}

#[test]
fn session_header_is_ignored_in_the_sessionless_version() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
    let ask = |line: &str, more: &[(&str, &str)]| {
        let mut headers = right(&host, &bearer);
        headers.extend([
            ("MCP-Protocol-Version", NEWEST),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "shell"),
        ]);
        headers.extend(more);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": "shell", "arguments": { "command": line }, "_meta": meta });
        send(
            &http,
            "POST /mcp",
            &headers,
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
                .to_string(),
        )
        .2
    };
    ask("X=common", &[]);
    let body = ask("echo X=$X", &[("Mcp-Session-Id", "made-up")]);
    assert!(body.contains("X=common"), "{body}");
}

/// In the newest version a permission request is a response, and a client that does not call again
/// sends no cancellation.
#[test]
fn abandoned_permission_requests_do_not_block_calls() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
    let ask = |name: &str, arguments: Value, more: Value| {
        let mut headers = right(&host, &bearer);
        headers.extend([
            ("MCP-Protocol-Version", NEWEST),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", name),
        ]);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": NEWEST,
            "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "form": {} } },
        });
        let mut params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        if let (Some(params), Value::Object(more)) = (params.as_object_mut(), more) {
            params.extend(more);
        }
        send(
            &http,
            "POST /mcp",
            &headers,
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
                .to_string(),
        )
        .2
    };
    let wanted = |number: usize| json!({ "access": "read", "resource": format!("~/x{number}"), "reason": "to see" });
    let states: Vec<String> = (0..150)
        .map(|number| {
            let body = ask("request_permission", wanted(number), json!({}));
            let state =
                body.split_once("\"requestState\":\"").and_then(|(_, rest)| rest.split_once('"'));
            state.unwrap_or_else(|| panic!("{number} is not asked about: {body}")).0.to_owned()
        })
        .collect();
    let body = ask("shell", json!({ "command": "echo alive" }), json!({}));
    assert!(body.contains("alive\\n"), "{body}");
    let come_again = |number: usize| {
        let said = json!({ "permission": { "action": "accept", "content": { "answer": "allow_session" } } });
        ask(
            "request_permission",
            wanted(number),
            json!({ "requestState": states[number], "inputResponses": said }),
        )
    };
    let (first, last) = (come_again(0), come_again(149));
    assert!(first.contains("no call is waiting for this"), "{first}");
    assert!(last.contains("is allowed for this session"), "{last}");
}

#[test]
fn session_limit_holds_for_concurrent_handshakes() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
    // All connections are accepted before the first request is complete.
    let head: String =
        right(&host, &bearer).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nContent-Length: {}\r\nConnection: close\r\n{head}\r\n",
        INITIALIZE.len()
    );
    let mut streams: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(http.address()).expect("the server listens")).collect();
    streams
        .iter_mut()
        .for_each(|stream| stream.write_all(head.as_bytes()).expect("the server reads"));
    std::thread::sleep(Duration::from_millis(300));
    let made = streams.iter_mut().filter_map(|stream| {
        let mut answer = String::new();
        let _ = stream.write_all(INITIALIZE.as_bytes());
        let _ = stream.read_to_string(&mut answer);
        answer.starts_with("HTTP/1.1 200").then_some(())
    });
    assert_eq!(made.count(), 16);
    // A handshake opens a session even if it names a version without sessions.
    let mut headers = right(&host, &bearer);
    headers.push(("MCP-Protocol-Version", NEWEST));
    let (status, head, body) =
        send(&http, "POST /mcp", &headers, &INITIALIZE.replace("2025-06-18", NEWEST));
    assert_eq!(status, 503, "{head}\n{body}");
}

/// Opens a session and returns its id.
fn session(http: &HttpServer, headers: &[(&str, &str)]) -> Option<String> {
    let (status, head, _) = send(http, "POST /mcp", headers, INITIALIZE);
    let id = head.lines().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned)
    });
    (status == 200).then_some(id).flatten()
}

/// Promise: mcp-ends
#[test]
fn session_limit_holds_and_closing_a_session_ends_its_commands() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let (host, bearer) = (http.address().to_owned(), format!("Bearer {}", http.token));
    let headers = right(&host, &bearer);
    let ids: Vec<String> = (0..16).map_while(|_| session(&http, &headers)).collect();
    assert_eq!(ids.len(), 16);
    assert_eq!(send(&http, "POST /mcp", &headers, INITIALIZE).0, 503);
    // One of them runs a command.
    let with = |id: &'static str| {
        let mut headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        headers.push(("Mcp-Session-Id".into(), id.into()));
        headers
    };
    let id: &'static str = ids[0].clone().leak();
    let in_session = with(id);
    let in_session: Vec<(&str, &str)> =
        in_session.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let say = |message: Value| send(&http, "POST /mcp", &in_session, &message.to_string());
    say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let params = json!({ "name": "shell", "arguments": { "command": "touch begun; sleep 6543.21; touch ended" } });
            say(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }))
        });
        let waits = |what: &dyn Fn() -> bool| {
            (0..1000).any(|_| {
                what() || {
                    std::thread::sleep(Duration::from_millis(20));
                    false
                }
            })
        };
        assert!(waits(&|| project.has("begun")));
        let (status, ..) = send(&http, "DELETE /mcp", &in_session, "");
        assert!((200..300).contains(&status), "{status}");
        let runs = || {
            let lines = std::fs::read_dir("/proc")
                .expect("there are processes")
                .flatten()
                .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
            lines.into_iter().any(|line| line == b"sleep\x006543.21\x00")
        };
        assert!(waits(&|| !runs()), "its command has ended");
    });
    assert!(session(&http, &headers).is_some(), "a closed session frees its slot");
}

#[test]
fn refusal_of_a_large_body_arrives() {
    let project = project(TestUser::User);
    let http = HttpServer::open(&project, &[]);
    let large = vec![b'x'; 12 << 20];
    let mut stream = TcpStream::connect(http.address()).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("it is a socket");
    let head = format!(
        "POST /elsewhere HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
        http.address(),
        http.token,
        large.len()
    );
    stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&large))
        .expect("all of it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it is answered");
    assert!(
        answer.starts_with("HTTP/1.1 404")
            && answer.to_ascii_lowercase().contains("connection: close"),
        "{answer}"
    );
}
