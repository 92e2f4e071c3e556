//! The session protocol on standard input and output, for programs that embed ringfence.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use ringfence_api::session_protocol::{
    ExecRequest, SessionMessage, SessionRequest, protocol_schema,
};
use ringfence_api::{OutputStream, Signal};
use ringfence_client::{ChildSession, CommandEvent};
use ringfence_testkit::{
    TestOutput, TestProject, TestUser, becomes_true, each_user, processes_with, signal,
    wait_at_most,
};

use crate::project;

const KILL: i32 = 9;
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.schema.json");
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");

/// A started `session serve --stdio`, with a background process that has `marker` in its name.
fn started(project: &TestProject, marker: &str) -> Child {
    let server = project
        .ringfence()
        .args(["session", "serve", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.as_ref().unwrap();
    let line = format!("sleep {marker} & sleep {marker}");
    write!(
        input,
        "{{\"ask\":\"hello\",\"version\":1}}\n{{\"ask\":\"exec\",\"line\":\"{line}\"}}\n"
    )
    .unwrap();
    assert!(becomes_true(Duration::from_secs(10), || processes_with(marker).len() >= 2));
    server
}

/// Checks that each line is in the schema, if the Python of this machine has a validator.
fn check_schema(lines: &str, user: TestUser) {
    let Some(python) = ringfence_testkit::python() else { return };
    let code = "import json, sys
try: from jsonschema import Draft202012Validator
except ImportError: sys.exit('none')
validator = Draft202012Validator(json.load(open(sys.argv[1])))
for line in sys.stdin:
    expect = not line.startswith('!')
    if validator.is_valid(json.loads(line.lstrip('!'))) != expect:
        sys.exit('expected %s: %s' % (expect, line))";
    let project = project(user);
    project.write("schema.json", std::fs::read(SCHEMA).unwrap());
    let mut command = project.command(python);
    command.args(["-Bc", code]).arg(project.at("schema.json"));
    let checked = TestOutput::run(&mut command, lines.as_bytes());
    if checked.stderr_text().trim() == "none" {
        ringfence_testkit::skip("python3 has no module jsonschema: only the types were checked");
    } else {
        checked.ok();
    }
}

/// Checks that the types hold everything in each line.
fn check_types(lines: &str) {
    for line in lines.lines() {
        let message: SessionMessage =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let written = serde_json::to_value(&message).unwrap();
        let read: serde_json::Value = serde_json::from_str(line).unwrap();
        for (key, value) in read.as_object().unwrap() {
            assert_eq!(&written[key], value, "{key} in {line}");
        }
    }
}

/// Promise: session-state
#[test]
fn embedding_program_drives_a_session_over_stdio() {
    let Some(python) = ringfence_testkit::python() else { return };
    each_user(|user| {
        let project = project(user);
        let run = project.home().join("run");
        std::fs::create_dir(&run).unwrap();
        std::fs::set_permissions(&run, std::fs::Permissions::from_mode(0o700)).unwrap();
        user.chown(&run);
        let code = include_str!("protocol.py");
        let said = TestOutput::run(
            project
                .command(python)
                .env("XDG_RUNTIME_DIR", &run)
                .args(["-Bc", code])
                .arg(project.binary()),
            b"",
        )
        .ok();
        // The client's deliberate mistakes are not part of the protocol.
        let lines: Vec<&str> = said.lines().filter(|line| !line.contains("\"timeout\"")).collect();
        assert!(lines.len() > 30, "{said}");
        let lines = lines.join("\n");
        check_types(&lines);
        check_schema(&lines, user);
        assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
    });
}

#[test]
fn documented_lines_are_in_the_protocol() {
    let text = std::fs::read_to_string(DOCUMENT).unwrap();
    let blocks = text.split("```jsonl\n").skip(1);
    let lines: Vec<&str> =
        blocks.flat_map(|block| block.split("```").next().unwrap().lines()).collect();
    assert!(lines.len() > 10);
    check_types(&lines.join("\n"));
    let wrong = "!{\"ask\":\"exec\"}\n!{\"ask\":\"inspect\",\"all\":1}\n!{\"reply\":\"x\"}";
    check_schema(&format!("{}\n{wrong}", lines.join("\n")), TestUser::all()[0]);
}

#[test]
fn schema_document_is_current() {
    let written: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(SCHEMA).unwrap()).unwrap();
    assert_eq!(written, *protocol_schema().as_value());
}

/// Promise: session-ends
#[test]
fn stdio_session_ends_with_its_input_and_leaves_nothing() {
    each_user(|user| {
        let project = project(user);
        let marker = format!("81{}.{}", std::process::id(), user.ids().0);
        let mut server = started(&project, &marker);
        drop(server.stdin.take());
        let status = wait_at_most(&mut server, Duration::from_secs(5)).expect("it ends");
        assert!(status.success());
        assert!(processes_with(&marker).is_empty());
    });
}

/// Promise: session-ends
#[test]
fn killed_stdio_session_leaves_nothing() {
    each_user(|user| {
        let project = project(user);
        let marker = format!("82{}.{}", std::process::id(), user.ids().0);
        let mut server = started(&project, &marker);
        let mut hello = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut hello).unwrap();
        assert!(hello.starts_with("{\"reply\":\"hello\",\"version\":1,"), "{hello}");
        signal(server.id(), KILL);
        server.wait().unwrap();
        assert!(becomes_true(Duration::from_secs(2), || processes_with(&marker).is_empty()));
    });
}

/// A line whose output is streamed.
fn streamed(line: &str) -> SessionRequest {
    let line = line.as_bytes().into();
    SessionRequest::Exec(ExecRequest { line, stream: true, ..ExecRequest::default() })
}

#[test]
fn client_library_drives_a_session_in_a_child_process() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        let mut session =
            ChildSession::spawn(command.args(["session", "serve", "--stdio"])).unwrap();
        let client = session.client();
        let [mut out, mut err] = [Vec::new(), Vec::new()];
        client.send(&streamed("cd src; echo out; cat ../.env")).unwrap();
        let result = client.result(|stream, data| match stream {
            OutputStream::Out => out.write_all(data),
            OutputStream::Err => err.write_all(data),
        });
        let result = result.unwrap();
        assert!(result.blocked && result.cwd.is_some_and(|cwd| cwd.ends_with("src")));
        // The streams have no order between them, and may come in pieces.
        assert_eq!(out, b"out\n");
        assert!(String::from_utf8(err).unwrap().contains("Permission denied"));
        // While a command runs.
        client.send(&streamed("sleep 30 & echo started; wait $!")).unwrap();
        assert!(matches!(client.next_event().unwrap(), CommandEvent::Output { .. }));
        assert!(client.inspect().unwrap().busy);
        assert_eq!(client.signal(Signal::Terminate).unwrap(), 1);
        assert_eq!(client.result(|_, _| Ok(())).unwrap().exit_code, 143);
        assert_eq!(session.stop().unwrap(), []);
    });
}

/// Promise: session-ends
#[test]
fn dropped_child_session_leaves_nothing() {
    each_user(|user| {
        let project = project(user);
        let marker = format!("83{}.{}", std::process::id(), user.ids().0);
        let mut command = project.ringfence();
        let mut session =
            ChildSession::spawn(command.args(["session", "serve", "--stdio"])).unwrap();
        let line = format!("sleep {marker} & echo started");
        session.client().send(&streamed(&line)).unwrap();
        session.client().result(|_, _| Ok(())).unwrap();
        assert!(becomes_true(Duration::from_secs(10), || !processes_with(&marker).is_empty()));
        let pid = session.client().inspect().unwrap().pid;
        drop(session);
        // Not even a zombie.
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(becomes_true(Duration::from_secs(2), || processes_with(&marker).is_empty()));
    });
}

#[test]
fn child_that_serves_no_session_is_an_error_with_its_status() {
    let user = TestUser::all()[0];
    let project = project(user);
    let mut command = project.ringfence();
    let words = ["session", "serve", "--stdio", "-C", "/does/not/exist"];
    let error = ChildSession::spawn(command.args(words).stderr(Stdio::null())).unwrap_err();
    let text = ringfence_api::error_chain(&error);
    assert!(text.starts_with("cannot start session of `/") && text.ends_with(": 125"), "{text}");
}
