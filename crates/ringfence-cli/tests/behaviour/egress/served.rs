//! Ports of the host's loopback with somebody behind them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ringfence_testkit::{TestOutput, TestProject};

/// Two ports of the host: at one somebody answers, at the other nobody ever does. Ends with its
/// standard input.
const SERVED: &str = "import socket, sys, threading
answers, silent = socket.socket(), socket.socket()
for server, room in (answers, 8), (silent, 0): server.bind(('127.0.0.1', 0)); server.listen(room)
kept = []
for _ in range(4):
    client = socket.socket(); client.setblocking(False); client.connect_ex(silent.getsockname()); kept.append(client)
def serve():
    while True: kept.append(answers.accept()[0]); kept[-1].send(b'hello')
threading.Thread(target=serve, daemon=True).start()
print(answers.getsockname()[1], silent.getsockname()[1], flush=True)
sys.stdin.read()
";

/// That program. Ends when dropped.
pub(super) struct Served {
    program: Child,
    ports: String,
}

impl Served {
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

    /// The one where somebody answers, and the other.
    pub(super) fn ports(&self) -> (&str, &str) {
        self.ports.trim().split_once(' ').expect("two ports")
    }

    /// Runs a script of the project, which may reach both and is given them.
    #[track_caller]
    pub(super) fn run(&self, project: &TestProject, python: &str, script: &str) -> TestOutput {
        let (answers, silent) = self.ports();
        let flags = [format!("--allow-localhost={answers}"), format!("--allow-localhost={silent}")];
        project.run([&flags[0], &flags[1], "--", python, script, answers, silent])
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        let _ = self.program.wait();
    }
}
