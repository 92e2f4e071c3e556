//! A connection of the host's network is used for something else.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::thread;

use ringfence_testkit::{TestOutput, compiled, each_user, python, repetitions};

use crate::project;

const CONNECTING: &str = include_str!("connecting.c");
const TRIES: usize = 800;
const TRIES_UNDER_STRESS: usize = 4_000;

/// Promise: P71
#[test]
fn a_socket_of_the_hosts_is_connected_to_another_port() {
    each_user(|user| {
        let project = project(user);
        let Some(_) = compiled(&project, "attack", CONNECTING) else { return };
        let (listed, other) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
        let (at, wanted, flag) =
            (port(&listed), port(&other), format!("--allow-localhost={}", port(&listed)));
        other.set_nonblocking(true).unwrap();
        // Those who come are kept, so that nothing ends by itself.
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
        assert_eq!(TestOutput::of(project.ringfence().args(words), b"").ok(), "tried often");
        assert_eq!(
            other.accept().map(drop).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "nobody came"
        );
    });
}

/// While somebody waits for room at a socket, the link that leads to it is bent to what the one
/// who waits in its place might have open. The socket that was judged is the one that is reached.
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
fn a_link_is_bent_to_what_the_usher_has_open() {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("bent.py", BENT);
        let ran = TestOutput::of(
            project.ringfence().args(["run", "--allow-host", "app.test", "--", python, "bent.py"]),
            b"",
        );
        assert_eq!(ran.ok(), "connected", "{}", ran.talk());
    });
}
