//! Many connections at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ringfence_testkit::{TestNetwork, TestOutput, TestProject, python};

use super::on_a_lan;

/// Opens many connections to a port, and talks on each in turn, twice, before any closes.
const CODE: &str = "import socket, sys, threading
count, port = int(sys.argv[1]), int(sys.argv[2])
said = b'hello\\n' if port == 7 else b'GET /hello HTTP/1.1\\r\\nHost: app.test\\r\\n\\r\\n'
address = socket.getaddrinfo('app.test', port, type=socket.SOCK_STREAM)[0]
together, all, errors = threading.Barrier(count), [], []
def one():
    together.wait()
    try:
        link = socket.socket(*address[:2]); link.settimeout(60); link.connect(address[4]); all.append(link)
    except OSError as error:
        errors.append(repr(error))
threading.stack_size(65536)
threads = [threading.Thread(target=one) for _ in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for error in sorted(set(errors)): print(errors.count(error), error)
def hears(link, heard=b''):
    while not heard.endswith((b'HELLO\\n', b'http://app.test\\n')):
        if not (part := link.recv(4096)): return False
        heard += part
    return True
for _ in range(2):
    for link in all: link.sendall(said)
    print(sum(map(hears, all)))
";

/// `ringfence` with the usual open-file limit.
fn with_the_usual_limit(project: &TestProject, lan: &TestNetwork<'_>) -> Command {
    let mut command = lan.command();
    command.args(["sh", "-c", "ulimit -Sn 1024 && exec \"$@\"", "sh"]).arg(project.binary());
    command
}

/// Promise: allowed-hosts
#[test]
fn five_hundred_concurrent_connections_work() {
    let Some(python) = python() else { return };
    on_a_lan(&[], |project, lan| {
        project.write("try.py", CODE);
        for port in ["7", "80"] {
            let mut command = with_the_usual_limit(project, lan);
            let ran = TestOutput::run(
                command.args([
                    "run",
                    "--allow-host",
                    "app.test",
                    "--",
                    python,
                    "try.py",
                    "500",
                    port,
                ]),
                b"",
            );
            assert_eq!(ran.ok(), "500\n500", "port {port}\n{}", ran.stderr_text());
        }
    });
}

/// Promise: allowed-hosts
#[test]
fn open_file_limit_inside_is_unchanged() {
    on_a_lan(&[], |project, lan| {
        for network in [&["--allow-host", "app.test"][..], &["--net", "none"], &["--net", "full"]] {
            let mut command = with_the_usual_limit(project, lan);
            let ran =
                TestOutput::run(command.arg("run").args(network).args(["-c", "ulimit -Sn"]), b"");
            assert_eq!(ran.ok(), "1024", "{network:?}\n{}", ran.stderr_text());
        }
        let runtime = project.home().join("run");
        fs::create_dir(&runtime).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700)).unwrap();
        project.user.chown(&runtime);
        let session = |words: &[&str]| {
            let mut command = with_the_usual_limit(project, lan);
            TestOutput::run(
                command.arg("session").args(words).env("XDG_RUNTIME_DIR", &runtime),
                b"",
            )
            .ok()
        };
        session(&["start", "--name", "limited", "--allow-host", "app.test"]);
        let said = session(&["exec", "limited", "-c", "ulimit -Sn"]);
        session(&["stop", "limited"]);
        assert_eq!(said, "1024");
    });
}

/// One process with many threads, each in a waiting `connect`: more than there are slots. Prints
/// when all have started.
const FLOOD: &str = "import os, socket, sys, threading
def one():
    try: socket.create_connection((sys.argv[1], int(sys.argv[2])))
    except OSError: pass
threading.stack_size(65536)
for _ in range(1100): threading.Thread(target=one, daemon=True).start()
print('begun', flush=True)
sys.stdin.read()
os._exit(0)
";

/// Listens without accepting, with a full queue.
const DEAF: &str = "import socket
def deaf():
    server = socket.create_server(('127.0.0.1', 0)); server.listen(0)
    full = [socket.socket() for _ in range(8)]
    for one in full: one.setblocking(False); one.connect_ex(server.getsockname())
    return server, full
";

/// Tries for a while to get a response from a port of `app.test`.
const ANSWERED: &str = "import subprocess, sys, time
def answered(seconds):
    end = time.monotonic() + seconds
    while True:
        try:
            link = socket.create_connection(('app.test', 7), 5); link.sendall(b'hello\\n'); return link.recv(9)
        except OSError as error:
            if time.monotonic() > end: return error
            time.sleep(0.05)
def flood(*where):
    child = subprocess.Popen([sys.executable, 'flood.py', *map(str, where)], stdin=-1, stdout=-1)
    child.stdout.readline(); time.sleep(0.5)
    return child
";

/// Promise: host-network
#[test]
fn killed_connecting_process_frees_its_slot() {
    let Some(python) = python() else { return };
    on_a_lan(&[], |project, lan| {
        project.write("flood.py", FLOOD);
        let code = format!(
            "import socket\n{ANSWERED}
child = flood('11.22.33.1', 9999)
before = answered(0); child.kill(); child.wait()
print(isinstance(before, OSError), answered(10))
"
        );
        project.write("try.py", code);
        let ran = lan.run(&[
            "--allow-host",
            "app.test",
            "--allow-host",
            "11.22.33.1",
            "--",
            python,
            "try.py",
        ]);
        assert_eq!(ran.ok(), "True b'HELLO\\n'", "{}", ran.stderr_text());
    });
}

/// Promise: host-network
#[test]
fn connects_inside_do_not_block_connects_to_a_host() {
    let Some(python) = python() else { return };
    on_a_lan(&[], |project, lan| {
        project.write("flood.py", FLOOD);
        let code = format!(
            "{DEAF}{ANSWERED}
server, full = deaf()
child = flood(*server.getsockname())
print(answered(0)); child.kill(); child.wait()
end = time.monotonic() + 10
inner = socket.create_server(('127.0.0.1', 0))
while time.monotonic() < end:
    try: socket.create_connection(inner.getsockname()); print('within'); break
    except OSError: time.sleep(0.05)
"
        );
        project.write("try.py", code);
        let ran = lan.run(&["--allow-host", "app.test", "--", python, "try.py"]);
        assert_eq!(ran.ok(), "b'HELLO\\n'\nwithin", "{}", ran.stderr_text());
    });
}
