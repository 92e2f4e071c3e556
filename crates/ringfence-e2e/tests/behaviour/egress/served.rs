//! Servers on the host's loopback.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ringfence_testkit::{TestOutput, TestProject};

/// Two ports of the host: one with a server, one that never accepts. Ends with its standard input.
const SERVED: &str = "import socket, sys, threading
answers, silent = socket.socket(), socket.socket()
for server, backlog in (answers, 8), (silent, 0): server.bind(('127.0.0.1', 0)); server.listen(backlog)
kept = []
for _ in range(4):
    client = socket.socket(); client.setblocking(False); client.connect_ex(silent.getsockname()); kept.append(client)
def serve():
    while True: kept.append(answers.accept()[0]); kept[-1].send(b'hello')
threading.Thread(target=serve, daemon=True).start()
print(answers.getsockname()[1], silent.getsockname()[1], flush=True)
sys.stdin.read()
";

/// The running program. Ends when dropped.
pub(super) struct HttpOrigin {
    program: Child,
    ports: String,
}

impl HttpOrigin {
    #[track_caller]
    pub(super) fn start(python: &str) -> Self {
        let mut program = Command::new(python);
        let mut program = program
            .args(["-c", SERVED])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("Python starts");
        let mut ports = String::new();
        BufReader::new(program.stdout.take().expect("piped just above"))
            .read_line(&mut ports)
            .expect("it says its ports");
        Self { program, ports }
    }

    /// The port with a server, and the other.
    pub(super) fn ports(&self) -> (&str, &str) {
        self.ports.trim().split_once(' ').expect("two ports")
    }

    /// Runs a script in the project with both ports allowed and as arguments.
    #[track_caller]
    pub(super) fn run(&self, project: &TestProject, python: &str, script: &str) -> TestOutput {
        let (answers, silent) = self.ports();
        let flags = [format!("--allow-localhost={answers}"), format!("--allow-localhost={silent}")];
        project.run([&flags[0], &flags[1], "--", python, script, answers, silent])
    }
}

impl Drop for HttpOrigin {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}
