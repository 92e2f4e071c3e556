//! Many connections at once.

use std::process::Command;

use ringfence_testkit::{Lan, Project, Ran, python};

use super::on_a_lan;

/// Connects so many at once to a port, and speaks on all of them in turn, twice, before any ends.
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

/// `ringfence` with the limit of open files that most systems set.
fn with_the_usual_limit(project: &Project, lan: &Lan<'_>) -> Command {
    let mut command = lan.command();
    command.args(["sh", "-c", "ulimit -Sn 1024 && exec \"$@\"", "sh"]).arg(project.binary());
    command
}

#[test]
fn five_hundred_at_once_are_handed_over_and_looked_at() {
    let Some(python) = python() else { return };
    on_a_lan(&[], |project, lan| {
        project.write("try.py", CODE);
        for port in ["7", "80"] {
            let mut command = with_the_usual_limit(project, lan);
            let ran = Ran::of(command.args(["run", "--allow-host", "app.test", "--", python, "try.py", "500", port]), b"");
            assert_eq!(ran.ok(), "500\n500", "port {port}\n{}", ran.talk());
        }
    });
}

#[test]
fn what_runs_inside_may_open_as_many_files_as_before() {
    on_a_lan(&[], |project, lan| {
        for network in [&["--allow-host", "app.test"][..], &["--net", "none"], &["--net", "full"]] {
            let mut command = with_the_usual_limit(project, lan);
            let ran = Ran::of(command.arg("run").args(network).args(["-c", "ulimit -Sn"]), b"");
            assert_eq!(ran.ok(), "1024", "{network:?}\n{}", ran.talk());
        }
        let session = |words: &[&str]| Ran::of(with_the_usual_limit(project, lan).arg("session").args(words), b"").ok();
        session(&["start", "--name", "limited", "--allow-host", "app.test"]);
        let said = session(&["exec", "limited", "-c", "ulimit -Sn"]);
        session(&["stop", "limited"]);
        assert_eq!(said, "1024");
    });
}
