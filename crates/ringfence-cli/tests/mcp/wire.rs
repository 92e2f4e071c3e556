//! What comes by the wire, whoever wrote it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use ringfence_testkit::{As, Project};
use serde_json::{Value, json};

use crate::project;

/// A server and our end of its streams.
pub(crate) struct Wire {
    pub(crate) server: Child,
    pub(crate) to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    passed: Vec<Value>,
}

impl Wire {
    /// With the handshake done, as a client that can ask nobody.
    pub(crate) fn open(project: &Project) -> Wire {
        Wire::open_with(project, json!({}))
    }

    fn open_with(project: &Project, capabilities: Value) -> Wire {
        let mut server = project.ringfence();
        server.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = server.spawn().expect("the server starts");
        let (to, from) = (server.stdin.take(), BufReader::new(server.stdout.take().expect("it is piped")));
        let mut wire = Wire { server, to, from, passed: Vec::new() };
        let hello =
            json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": { "name": "wire", "version": "1" } });
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
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string());
    }

    /// The answer to this id; whatever else comes is passed by.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.until(|said| said["id"] == id && said.get("method").is_none())
    }

    /// The first that is so; whatever else comes is passed by.
    fn until(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).expect("the server writes text") > 0, "the server has ended before it answered");
            let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is_so(&said) {
                return said;
            }
            self.passed.push(said);
        }
    }

    /// The answer to this id among what was passed by.
    fn passed_by(&self, id: u64) -> &Value {
        let found = self.passed.iter().find(|said| said["id"] == id && said.get("method").is_none());
        found.unwrap_or_else(|| panic!("{id} was not answered: {:?}", self.passed))
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        self.answer(id)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn lines_that_mean_nothing_end_nothing() {
    let project = project(As::User);
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

#[test]
fn a_call_that_waits_and_is_cancelled_is_not_begun() {
    let project = project(As::User);
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
fn lines_run_in_the_order_in_which_they_came() {
    let project = project(As::User);
    let mut wire = Wire::open(&project);
    for round in 0..5 {
        for number in 1..=12 {
            wire.call(round * 100 + number, &format!("echo {} >> order", round * 100 + number));
        }
        wire.answer(round * 100 + 12);
    }
    let expected: Vec<String> = (0..5).flat_map(|round| (1..=12).map(move |number| (round * 100 + number).to_string())).collect();
    assert_eq!(project.read("order").expect("it is there").lines().collect::<Vec<_>>(), expected);
}

/// Whoever asks and hears nothing takes no place away from the others, and the oldest question is
/// given up for the newest.
#[test]
fn questions_that_nobody_answers_leave_room_for_calls() {
    const ASKED: u64 = 150;
    let project = project(As::User);
    let mut wire = Wire::open_with(&project, json!({ "elicitation": {} }));
    let file = |number: u64| project.home().join(format!("x{number}"));
    for number in 1..=ASKED {
        let arguments = json!({ "access": "read", "resource": file(number), "reason": "to see" });
        let params = json!({ "name": "request_permission", "arguments": arguments });
        wire.say(&json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params }).to_string());
        // Asked before the next: each holds whatever it holds.
        let said = wire.until(|said| said["method"] == "elicitation/create" || said["id"] == number);
        assert!(said["params"]["message"].as_str().is_some_and(|text| text.contains(&format!("x{number}\u{201d}"))), "{said}");
    }
    assert_eq!(wire.passed_by(1)["result"]["structuredContent"]["status"], "denied", "the oldest is given up");
    wire.call(ASKED + 1, "echo alive");
    let answer = wire.answer(ASKED + 1);
    assert_eq!(answer["result"]["structuredContent"]["stdout"], "alive\n", "{answer}");
}
