//! `connect` to a host ends as the kernel's own syscall would.

use ringfence_testkit::{each_user, python};

use super::served::HttpOrigin;
use crate::project;

/// Checks the output of a Python program that gets two ports of the host: one with a server, and
/// one that never accepts.
#[track_caller]
fn says(code: &str, expected: &str) {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("try.py", code);
        let ran = HttpOrigin::start(python).run(&project, python, "try.py");
        assert_eq!(ran.ok(), expected, "{}", ran.stderr_text());
    });
}

/// A signal to the process interrupts at most one thread, and no thread sees the kernel's internal
/// errno 512.
#[test]
fn connect_interrupted_by_a_signal_returns_a_known_errno() {
    says(
        "import ctypes, errno, os, signal, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
ended = []
def connect(name):
    client = socket.socket()
    address = struct.pack('=HH4s8x', 2, socket.htons(int(sys.argv[2])), socket.inet_aton('127.0.0.1'))
    came = libc.connect(client.fileno(), address, 16)
    ended.append((name, came, ctypes.get_errno()))
signal.signal(signal.SIGALRM, lambda *_: None)
threads = [threading.Thread(target=connect, args=(n,), daemon=True) for n in range(3)]
for thread in threads: thread.start()
time.sleep(0.3)
signal.setitimer(signal.ITIMER_REAL, 0.3)
connect('main')
time.sleep(0.5)
print([one for one in ended if one[2] != errno.EINTR], [one for one in ended if one[0] == 'main'] == [('main', -1, errno.EINTR)], flush=True)
os._exit(0)
",
        "[] True",
    );
}

#[test]
fn socket_in_use_keeps_its_state() {
    says(
        "import errno, select, socket, sys
host = ('127.0.0.1', int(sys.argv[1]))
server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
client = socket.create_connection(server.getsockname()); peer, _ = server.accept()
print(errno.errorcode[client.connect_ex(host)], errno.errorcode[server.connect_ex(host)])
peer.send(b'from inside'); print(client.recv(50), client.getpeername() == server.getsockname())
other = socket.create_connection(server.getsockname()); print(server.accept()[1] == other.getsockname())
# One of the host's, and one that is carried.
handed = socket.create_connection(host); print(handed.recv(5), errno.errorcode[handed.connect_ex(host)])
carried = socket.socket(); carried.setblocking(False)
events = select.epoll(); events.register(carried.fileno(), select.EPOLLOUT); carried.connect_ex(host); events.poll(5)
carried.setblocking(True); print(carried.recv(5), errno.errorcode[carried.connect_ex(host)])
",
        "EISCONN EISCONN\nb'from inside' True\nTrue\nb'hello' EISCONN\nb'hello' EISCONN",
    );
}

#[test]
fn socket_timeout_applies_to_connect() {
    says(
        "import errno, socket, struct, sys
client = socket.socket(); client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('2l', 0, 300000))
print(errno.errorcode[client.connect_ex(('127.0.0.1', int(sys.argv[2])))])
client = socket.socket(); client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('2l', 30, 0))
print(client.connect_ex(('127.0.0.1', int(sys.argv[1]))), client.recv(5))
",
        "EINPROGRESS\n0 b'hello'",
    );
}
