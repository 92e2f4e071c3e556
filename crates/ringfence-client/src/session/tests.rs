use std::io::{PipeReader, PipeWriter, pipe};
use std::thread;

use ringfence_api::session_protocol::{ExecRequest, StartRequest};
use serde_json::{Value, json};

use super::*;

type PipeClient = SessionClient<PipeReader, PipeWriter>;

/// A session that answers the requests that it expects, in this order, and then leaves.
struct ScriptedServer {
    requests: LineStream<PipeReader>,
    replies: PipeWriter,
}

impl ScriptedServer {
    fn expect(&mut self, ask: &str) -> Value {
        let line = self.requests.next_line().unwrap().expect("a request");
        let request: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(request["ask"], ask);
        request
    }

    fn reply(&mut self, reply: Value) {
        write_line(&mut self.replies, &reply).unwrap();
    }

    fn greet(&mut self) {
        assert_eq!(self.expect("hello")["version"], PROTOCOL_VERSION);
        self.reply(json!({ "reply": "hello", "version": PROTOCOL_VERSION, "session": "s1" }));
    }

    fn output(&mut self, text: &str) {
        self.reply(json!({ "reply": "output", "stream": "stdout", "data": text }));
    }
}

/// Runs `client` against a session that acts as `server` says.
fn with_server<T>(
    server: impl FnOnce(&mut ScriptedServer) + Send,
    client: impl FnOnce(PipeClient) -> T,
) -> T {
    let (requests, to) = pipe().unwrap();
    let (from, replies) = pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            server(&mut ScriptedServer { requests: LineStream::new(requests), replies });
        });
        client(SessionClient::new("s0", from, to))
    })
}

fn result(stdout: &str, exit_code: i32) -> Value {
    let mut reply = serde_json::to_value(SessionReply::Result(Box::default())).unwrap();
    reply["stdout"] = stdout.into();
    reply["exitCode"] = exit_code.into();
    reply
}

fn refused(ask: Option<&str>, code: &str) -> Value {
    json!({ "reply": "error", "ask": ask, "error": { "code": code, "message": "no" } })
}

fn no_output(_: OutputStream, _: &[u8]) -> io::Result<()> {
    panic!("there is no output")
}

#[test]
fn command_runs_after_the_greeting() {
    let result = with_server(
        |server| {
            server.greet();
            assert_eq!(server.expect("exec")["line"], "make");
            server.reply(result("done\n", 3));
        },
        |mut client| {
            client.greet().unwrap();
            let request = ExecRequest { line: b"make"[..].into(), ..ExecRequest::default() };
            client.send(&SessionRequest::Exec(request)).unwrap();
            client.result(no_output).unwrap()
        },
    );
    assert_eq!((result.stdout.bytes.as_slice(), result.exit_code), (&b"done\n"[..], 3));
}

/// Greets a session that replies with these bytes; returns the error.
fn greeting_error(reply: &str) -> SessionClientError {
    let mut requests = Vec::new();
    SessionClient::new("s0", reply.as_bytes(), &mut requests).greet().unwrap_err()
}

#[test]
fn other_version_is_refused_with_a_hint() {
    let other = json!({ "reply": "hello", "version": PROTOCOL_VERSION + 1, "session": "s1" });
    let error = greeting_error(&format!("{other}\n"));
    assert_eq!(error.code(), "protocol-version");
    assert!(error.hint().is_some_and(|hint| hint.contains("ringfence session stop s0")));
    // The session's own words.
    let error = greeting_error(&format!("{}\n", refused(Some("hello"), "protocol-version")));
    assert_eq!((error.code(), error.to_string().as_str()), ("protocol-version", "no"));
    assert_eq!(greeting_error("{\"reply\":\"begun\"}\n").code(), "protocol-version");
}

#[test]
fn truncated_or_foreign_reply_is_an_error() {
    for reply in ["", "{\"reply\":\"hello\",\"version\":1,\"session\":\"s1\"}"] {
        let error = greeting_error(reply);
        assert!(matches!(error, SessionClientError::Connection { .. }), "{reply}: {error}");
        assert_eq!(error.to_string(), "cannot receive from session s0");
    }
    assert_eq!(greeting_error("SSH-2.0\n").code(), "protocol");
}

#[test]
fn events_between_other_replies_keep_their_order() {
    with_server(
        |server| {
            server.greet();
            server.expect("exec");
            server.output("a");
            server.expect("signal");
            server.output("b");
            server.reply(json!({ "reply": "signalled", "signalled": 1 }));
            server.output("c");
            server.expect("questions");
            server.reply(result("", 143));
            server.reply(json!({ "reply": "questions", "questions": [] }));
        },
        |mut client| {
            client.greet().unwrap();
            client.send(&SessionRequest::Exec(ExecRequest::default())).unwrap();
            assert_eq!(client.signal(Signal::Terminate).unwrap(), 1);
            assert_eq!(client.questions().unwrap(), []);
            let mut output = Vec::new();
            let report = client.result(|_, data| output.write_all(data)).unwrap();
            assert_eq!((output.as_slice(), report.exit_code), (&b"abc"[..], 143));
        },
    );
}

#[test]
fn error_of_the_command_is_not_the_error_of_another_request() {
    with_server(
        |server| {
            server.greet();
            server.expect("start");
            server.expect("answer");
            server.reply(refused(Some("start"), "gaps"));
            server.reply(refused(Some("answer"), "usage"));
        },
        |mut client| {
            client.greet().unwrap();
            client.send(&SessionRequest::Start(StartRequest::default())).unwrap();
            let error = client.answer(1, AskAnswer::Deny).unwrap_err();
            assert_eq!(error.code(), "usage");
            assert_eq!(client.result(no_output).unwrap_err().code(), "gaps");
        },
    );
}

#[test]
fn reader_that_leaves_interrupts_the_command() {
    with_server(
        |server| {
            server.expect("exec");
            server.output("a");
            server.expect("interrupt");
            server.reply(result("", 130));
        },
        |mut client| {
            let request = ExecRequest { stream: true, ..ExecRequest::default() };
            client.send(&SessionRequest::Exec(request)).unwrap();
            let report = client.result(|_, _| Err(io::ErrorKind::BrokenPipe.into()));
            assert_eq!(report.unwrap().exit_code, 130);
        },
    );
}

#[test]
fn input_is_forwarded_to_its_end() {
    let mut sent = Vec::new();
    let client = SessionClient::new("s0", io::empty(), &mut sent);
    client.sender().forward_input(&b"one\ntwo"[..]).unwrap();
    drop(client);
    let expect = "{\"ask\":\"input\",\"data\":\"one\\ntwo\"}\n{\"ask\":\"input\",\"data\":\"\"}\n";
    assert_eq!(String::from_utf8(sent).unwrap(), expect);
}
