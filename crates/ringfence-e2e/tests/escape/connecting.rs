//! Attempts to redirect a connection that was allowed to the host's network.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::thread;

use ringfence_testkit::{TestOutput, compile, each_user, python, repetitions};

use crate::project;

const CONNECTING: &str = include_str!("connecting.c");
const TRIES: usize = 800;
const TRIES_UNDER_STRESS: usize = 4_000;

/// Promise: host-network
#[test]
fn host_socket_connects_only_to_the_allowed_port() {
    each_user(|user| {
        let project = project(user);
        let Some(_) = compile(&project, "attack", CONNECTING) else { return };
        let (listed, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
        let (at, wanted, flag) =
            (port(&listed), port(&other), format!("--allow-localhost={}", port(&listed)));
        other.set_nonblocking(true).unwrap();
        // Accepted connections are kept, so that none ends by itself.
        thread::spawn(move || listed.incoming().collect::<Vec<_>>());
        let words = [
            "run",
            &flag,
            "--",
            "./attack",
            &at,
            &wanted,
            &repetitions(TRIES, TRIES_UNDER_STRESS).to_string(),
        ];
        assert_eq!(TestOutput::run(project.ringfence().args(words), b"").ok(), "tried often");
        assert_eq!(
            other.accept().map(drop).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "the port that is not allowed got a connection"
        );
    });
}

/// While a `connect` waits because the socket's queue is full, its symlink is replaced by one to an
/// fd of the notify handler. The socket that was checked is the one reached.
const BENT: &str = "import errno, os, socket, threading, time
came = set()
def bend(number, target):
    place, link = f'/tmp/s{number}', f'/tmp/l{number}'
    server = socket.socket(socket.AF_UNIX); server.bind(place); server.listen(0)
    full = []
    while True:
        full.append(socket.socket(socket.AF_UNIX)); full[-1].setblocking(False)
        if full[-1].connect_ex(place): break
    os.symlink(place, link)
    def connect(): came.add(socket.socket(socket.AF_UNIX).connect_ex(link))
    waits = threading.Thread(target=connect); waits.start(); time.sleep(0.1)
    os.symlink(target, link + 'x'); os.rename(link + 'x', link)
    server.accept(); waits.join()
places = [f'/proc/self/fd/{number}/{below}' for number in range(2, 24) for below in ('1/status', '.')]
threads = [threading.Thread(target=bend, args=one) for one in enumerate(places)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*sorted(errno.errorcode.get(one, 'connected') for one in came))
";

#[test]
fn symlink_swap_does_not_redirect_a_waiting_unix_connect() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("bent.py", BENT);
        let ran = TestOutput::run(
            project.ringfence().args(["run", "--allow-host", "app.test", "--", python, "bent.py"]),
            b"",
        );
        assert_eq!(ran.ok(), "connected", "{}", ran.stderr_text());
    });
}
