//! The MCP frontend, used by third-party clients: the Python package `mcp`, and the inspector's
//! command line.

mod asked;
mod clients;
mod ends;
mod http;
mod inspector;
mod wire;
mod wrapped;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ringfence_testkit::{TestProject, TestUser, fuse_for_all, skip};
use serde_json::{Value, json};

/// The two protocol modes: with a handshake, and without.
const MODES: &[&str] = &["legacy", "auto"];

/// A fresh project with the binary under test.
fn project(user: TestUser) -> TestProject {
    fuse_for_all();
    TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"))
}

/// The path of a tool that `.ci/clients` installed; skips the test if it is absent.
fn installed(name: &str) -> Option<PathBuf> {
    let place =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/mcp-clients").join(name);
    if !place.exists() {
        skip(&format!("{} is not there; `.ci/clients` installs it", place.display()));
        return None;
    }
    Some(place.canonicalize().expect("it is there"))
}

/// The command line that runs `ringfence` as the project's user when the test runner starts it.
fn words(project: &TestProject, words: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    if project.user == TestUser::User && TestUser::runner_is_root() {
        let (uid, gid) = project.user.ids();
        all.extend([
            "setpriv".to_owned(),
            format!("--reuid={uid}"),
            format!("--regid={gid}"),
            "--clear-groups".to_owned(),
        ]);
    }
    all.push(project.binary().display().to_string());
    all.extend(words.iter().map(|word| (*word).to_owned()));
    all
}

fn variables(project: &TestProject) -> Value {
    let of = project.ringfence();
    let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
    of.get_envs()
        .filter_map(|(name, value)| Some((text(name), json!(text(value?)))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// A server that the client starts.
fn stdio(project: &TestProject, words: &[&str]) -> Value {
    let all = self::words(project, words);
    json!({ "program": all[0], "arguments": all[1..], "variables": variables(project), "cwd": project.root() })
}

/// A command at another terminal while a client works.
fn host(project: &TestProject, words: &[&str]) -> Value {
    json!({ "host": self::words(project, words), "variables": variables(project), "cwd": project.root() })
}

/// A tool call.
fn call(tool: &str, arguments: Value) -> Value {
    json!({ "call": tool, "arguments": arguments })
}

fn shell(command: &str) -> Value {
    call("shell", json!({ "command": command }))
}

/// Runs these steps in the Python client; returns the result of each.
#[track_caller]
fn drive(plan: &Value) -> Option<Value> {
    let python = installed("venv")?.join("bin/python");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/client.py");
    let mut client = Command::new(python);
    client.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = client.spawn().expect("the client starts");
    client
        .stdin
        .take()
        .expect("it is piped")
        .write_all(plan.to_string().as_bytes())
        .expect("the client reads");
    let ended = client.wait_with_output().expect("the client ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let report = serde_json::from_slice(&ended.stdout);
    Some(report.unwrap_or_else(|error| {
        panic!("{error}: {}\n{said}", String::from_utf8_lossy(&ended.stdout))
    }))
}

/// The results of steps with a server that the client starts.
#[track_caller]
fn drive_stdio(
    project: &TestProject,
    flags: &[&str],
    mode: &str,
    answer: Option<&str>,
    steps: &[Value],
) -> Option<Value> {
    let words: Vec<&str> = ["mcp"].iter().chain(flags).copied().collect();
    drive(
        &json!({ "server": stdio(project, &words), "mode": mode, "answer": answer, "steps": steps }),
    )
}

/// A server over HTTP, until this is dropped.
struct HttpServer {
    child: Child,
    url: String,
    token: String,
}

impl HttpServer {
    #[track_caller]
    fn open(project: &TestProject, flags: &[&str]) -> HttpServer {
        let mut command = project.ringfence();
        let mut child = command
            .arg("mcp")
            .arg("--http")
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines =
            BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut after = |before: &str| loop {
            let line =
                lines.next().unwrap_or_else(|| panic!("the server says nothing of {before}"));
            if let Some((_, rest)) = line.split_once(before) {
                break rest.trim_end_matches('`').to_owned();
            }
        };
        let token = after("Bearer ");
        let url = format!("http{}", after("serving at http"));
        // The rest of the output is drained, so that a full pipe does not stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        HttpServer { child, url, token }
    }

    fn server(&self) -> Value {
        json!({ "url": self.url, "token": self.token })
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_end_matches("/mcp")
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
