//! Connecting to a host ends as the kernel's own call would.

use ringfence_testkit::{each_user, python};

use super::served::Served;
use crate::project;

/// What a Python program says that knows two ports of the host: one where somebody answers, and
/// one where nobody ever does.
#[track_caller]
fn says(code: &str, expected: &str) {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("try.py", code);
        let ran = Served::start(python).run(&project, python, "try.py");
        assert_eq!(ran.ok(), expected, "{}", ran.talk());
    });
}

/// A signal of the whole process ends the call of one thread at most, and none sees a number that
/// is the kernel's own (512).
#[test]
fn a_signal_of_the_process_ends_calls_with_a_known_number() {
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
fn a_socket_that_is_in_use_stays_what_it_is() {
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
fn a_time_limit_of_the_socket_is_one_for_connecting() {
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
