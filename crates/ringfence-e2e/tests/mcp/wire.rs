//! Raw protocol messages over stdio, malformed ones included.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use ringfence_testkit::{TestProject, TestUser};
use serde_json::{Value, json};

use crate::project;

/// A server and the client's end of its streams.
pub(crate) struct Wire {
    pub(crate) server: Child,
    pub(crate) to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    passed: Vec<Value>,
}

impl Wire {
    /// Starts a server and does the handshake, as a client without elicitation.
    pub(crate) fn open(project: &TestProject) -> Wire {
        Wire::open_with(project, json!({}))
    }

    fn open_with(project: &TestProject, capabilities: Value) -> Wire {
        let mut server = project.ringfence();
        server.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().expect("the server starts");
        let (to, from) =
            (server.stdin.take(), BufReader::new(server.stdout.take().expect("it is piped")));
        let mut wire = Wire { server, to, from, passed: Vec::new() };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": { "name": "wire", "version": "1" } });
        wire.ask(0, "initialize", hello);
        wire.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        wire
    }

    pub(crate) fn say(&mut self, line: &str) {
        let to = self.to.as_mut().expect("it is open");
        to.write_all(line.as_bytes()).and_then(|()| to.write_all(b"\n")).expect("the server reads");
    }

    pub(crate) fn call(&mut self, id: u64, command: &str) {
        let params = json!({ "name": "shell", "arguments": { "command": command } });
        self.say(
            &json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
                .to_string(),
        );
    }

    /// Reads until the response to this id; keeps other messages in `passed`.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.until(|said| said["id"] == id && said.get("method").is_none())
    }

    /// Reads until a message matches; keeps other messages in `passed`.
    fn until(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(
                self.from.read_line(&mut line).expect("the server writes text") > 0,
                "the server has ended before it answered"
            );
            let said: Value =
                serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is_so(&said) {
                return said;
            }
            self.passed.push(said);
        }
    }

    /// The response to this id among the messages in `passed`.
    fn passed_by(&self, id: u64) -> &Value {
        let found =
            self.passed.iter().find(|said| said["id"] == id && said.get("method").is_none());
        found.unwrap_or_else(|| panic!("{id} was not answered: {:?}", self.passed))
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.say(
            &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
        );
        self.answer(id)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Promise: mcp-robust
#[test]
fn malformed_lines_do_not_end_the_server() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    let large = "x".repeat(20 << 20);
    for line in [
        "",
        "no JSON at all",
        "{",
        "[]",
        "null",
        "7",
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":3,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}"#,
        "\u{0}\u{1b}[2J\u{202e}",
        &large,
    ] {
        wire.say(line);
    }
    let unknown = wire.ask(5, "tools/nonsense", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    let wrong = wire.ask(6, "tools/call", json!({ "arguments": {} }));
    assert!(wrong["error"]["code"].is_i64(), "{wrong}");
    wire.call(7, "echo alive");
    assert_eq!(wire.answer(7)["result"]["structuredContent"]["stdout"], "alive\n");
}

/// Promise: mcp-robust
#[test]
fn cancelled_queued_call_never_starts() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    wire.call(1, "sleep 1; echo one");
    wire.call(2, "touch two");
    wire.call(3, "touch three");
    wire.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } }).to_string());
    assert_eq!(wire.answer(1)["result"]["structuredContent"]["stdout"], "one\n");
    wire.answer(3);
    assert!(project.has("three") && !project.has("two"));
}

#[test]
fn shell_lines_run_in_order_of_arrival() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    for round in 0..5 {
        for number in 1..=12 {
            wire.call(round * 100 + number, &format!("echo {} >> order", round * 100 + number));
        }
        wire.answer(round * 100 + 12);
    }
    let expected: Vec<String> = (0..5)
        .flat_map(|round| (1..=12).map(move |number| (round * 100 + number).to_string()))
        .collect();
    assert_eq!(project.read("order").expect("it is there").lines().collect::<Vec<_>>(), expected);
}

/// Calls that wait for an answer do not block others, and the oldest request is dropped for the
/// newest.
#[test]
fn unanswered_permission_requests_do_not_block_calls() {
    const ASKED: u64 = 150;
    let project = project(TestUser::User);
    let mut wire = Wire::open_with(&project, json!({ "elicitation": {} }));
    let file = |number: u64| project.home().join(format!("x{number}"));
    for number in 1..=ASKED {
        let arguments = json!({ "access": "read", "resource": file(number), "reason": "to see" });
        let params = json!({ "name": "request_permission", "arguments": arguments });
        wire.say(
            &json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params })
                .to_string(),
        );
        // Wait for each request before the next call, so that all are pending at once.
        let said =
            wire.until(|said| said["method"] == "elicitation/create" || said["id"] == number);
        assert!(
            said["params"]["message"]
                .as_str()
                .is_some_and(|text| text.contains(&format!("x{number}\u{201d}"))),
            "{said}"
        );
    }
    assert_eq!(
        wire.passed_by(1)["result"]["structuredContent"]["status"],
        "denied",
        "the oldest is given up"
    );
    wire.call(ASKED + 1, "echo alive");
    let answer = wire.answer(ASKED + 1);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "alive\n", "{answer}");
}

#[test]
fn malformed_messages_get_an_error_response() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    let is_error = |said: &Value| said["error"]["code"].is_i64();
    for line in ["no JSON at all", "{", "\u{0}\u{1b}[2J"] {
        wire.say(line);
        let said = wire.until(is_error);
        assert_eq!(
            (said["error"]["code"].as_i64(), said.get("id").is_none_or(Value::is_null)),
            (Some(-32700), true),
            "{said}"
        );
    }
    // The client waits for the response to its id, which may be at either end of the line.
    let content = "x".repeat(17 << 20);
    let params =
        format!(r#"{{"name":"write_file","arguments":{{"path":"large","content":"{content}"}}}}"#);
    for line in [
        format!(r#"{{"jsonrpc":"2.0","id":41,"method":"tools/call","params":{params}}}"#),
        format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":41}}"#),
    ] {
        wire.say(&line);
        let said = wire.answer(41);
        assert!(
            said["error"]["message"].as_str().is_some_and(|message| message.contains("16777216")),
            "{said}"
        );
    }
    wire.call(7, "echo alive");
    assert_eq!(wire.answer(7)["result"]["structuredContent"]["stdout"], "alive\n");
}

#[test]
fn long_output_is_cut_and_the_rest_is_a_resource() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    wire.call(1, "python3 -c \"import sys; sys.stdout.write('begin\\n' + 'x' * 700000 + '\\nend\\n'); sys.stderr.write('e' * 100)\"");
    let answer = wire.answer(1);
    assert!(answer.to_string().len() < 160 << 10, "{}", answer.to_string().len());
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.len() <= 66 << 10 && text.starts_with("begin\n") && text.contains("\nend\n"),
        "{} bytes",
        text.len()
    );
    let uri = text
        .split_whitespace()
        .find(|word| word.starts_with("ringfence://"))
        .expect("the text names it")
        .to_owned();
    let dropped = result["structuredContent"]["stdoutDropped"].as_u64().unwrap();
    assert!((600_000..700_012).contains(&dropped), "{dropped}");
    let read = wire.ask(2, "resources/read", json!({ "uri": uri }));
    assert_eq!(
        read["result"]["contents"][0]["text"].as_str().map(str::len),
        Some(700_011),
        "{}",
        read["error"]
    );
    let listed = wire.ask(3, "resources/list", json!({}));
    assert_eq!(listed["result"]["resources"][0]["uri"], uri.as_str(), "{listed}");
    let absent = wire.ask(4, "resources/read", json!({ "uri": "ringfence://output/99/stdout" }));
    assert!(absent["error"]["code"].is_i64(), "{absent}");
    // The same for a file.
    project.write("large", "y".repeat(500_000));
    let read =
        wire.ask(5, "tools/call", json!({ "name": "read_file", "arguments": { "path": "large" } }));
    assert!(read.to_string().len() < 160 << 10, "{}", read.to_string().len());
    assert_eq!(
        (
            &read["result"]["structuredContent"]["truncated"],
            &read["result"]["structuredContent"]["size"]
        ),
        (&json!(true), &json!(500_000))
    );
    assert!(
        read["result"]["content"][0]["text"].as_str().unwrap().contains("of 500000 bytes shown")
    );
}

#[test]
fn list_of_tools_is_short() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    let listed = wire.ask(1, "tools/list", json!({}));
    let length = listed.to_string().len();
    assert!(length < 14 << 10, "{length} bytes: {listed}");
    assert_eq!(listed["result"]["tools"].as_array().map(Vec::len), Some(8));
}

#[test]
fn write_file_makes_missing_directories() {
    let project = project(TestUser::User);
    let mut wire = Wire::open(&project);
    let arguments = json!({ "path": "a/new/place/file.txt", "content": "there\n" });
    let written =
        wire.ask(1, "tools/call", json!({ "name": "write_file", "arguments": arguments }));
    assert_eq!(written["result"]["structuredContent"]["created"], true, "{written}");
    assert_eq!(project.read("a/new/place/file.txt").as_deref(), Some("there\n"));
    let arguments = json!({ "path": "b/none/file.txt", "content": "", "createParents": false });
    let refused =
        wire.ask(2, "tools/call", json!({ "name": "write_file", "arguments": arguments }));
    let error = &refused["result"]["structuredContent"]["error"];
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("createParents")), "{refused}");
}
