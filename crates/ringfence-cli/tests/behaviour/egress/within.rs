//! What stays inside works, with the network shut and with a list.

use ringfence_testkit::{each_user, needs, python};

use crate::project;

const NETWORKS: [&[&str]; 3] = [&["--net", "none"], &["--allow-host", "app.test"], &["--net", "allow-list", "--allow-localhost", "1"]];

/// A Python program says the same with every network.
#[track_caller]
fn says(code: &str, expected: &str) {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("try.py", code);
        for network in NETWORKS {
            let ran = project.run([network, &["--", python, "try.py"]].concat());
            assert_eq!(ran.ok(), expected, "{network:?}\n{}", ran.talk());
        }
    });
}

#[test]
fn asyncio_talks_to_itself() {
    says(
        "import asyncio, socket
async def back(reader, writer):
    writer.write((await reader.readline()).upper()); writer.close()
async def ask(*where, **how):
    reader, writer = await (asyncio.open_unix_connection if 'path' in how else asyncio.open_connection)(*where, **how)
    writer.write(b'hello\\n')
    said = (await reader.readline()).decode().strip(); writer.close()
    return said
async def main():
    four = await asyncio.start_server(back, '127.0.0.1', 0)
    six = await asyncio.start_server(back, '::1', 0)
    unix = await asyncio.start_unix_server(back, path='/tmp/s')
    loop = asyncio.get_running_loop()
    print(await ask(*four.sockets[0].getsockname()))
    print(await ask('localhost', four.sockets[0].getsockname()[1]))
    print(await ask(*six.sockets[0].getsockname()[:2]))
    print(await ask(path='/tmp/s'))
    print(len([said for said in await asyncio.gather(*[ask(path='/tmp/s') for _ in range(50)]) if said == 'HELLO']))
    child = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    print((await child.communicate(b'piped'))[0].decode())
    print(await loop.run_in_executor(None, lambda: 'in a thread'))
asyncio.run(main())
",
        "HELLO\nHELLO\nHELLO\nHELLO\n50\npiped\nin a thread",
    );
}

#[test]
fn processes_talk_to_each_other() {
    says(
        "import multiprocessing, multiprocessing.connection, multiprocessing.managers
def double(n): return 2 * n
if __name__ == '__main__':
    for way in 'fork', 'spawn', 'forkserver':
        with multiprocessing.get_context(way).Pool(2) as pool:
            print(sum(pool.map(double, range(10))))
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a=1); shared['b'] = 2; print(dict(shared))
    for family in 'AF_UNIX', 'AF_INET':
        listener = multiprocessing.connection.Listener(family=family, authkey=b'k')
        def serve():
            with listener.accept() as peer: peer.send(peer.recv() + 1)
        server = multiprocessing.get_context('fork').Process(target=serve); server.start()
        with multiprocessing.connection.Client(listener.address, authkey=b'k') as client:
            client.send(41); print(client.recv())
        server.join()
",
        "90\n90\n90\n{'a': 1, 'b': 2}\n42\n42",
    );
}

#[test]
fn sockets_of_every_kind_reach_within() {
    says(
        "import os, socket, threading
a, b = socket.socketpair(); a.sendall(b'pair'); print(b.recv(9))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.send(b'packets'); print(b.recv(9))
os.chdir('/tmp')
for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
    for name in '/tmp/%d' % kind, 'relative%d' % kind, '\\0nowhere%d' % kind:
        server = socket.socket(socket.AF_UNIX, kind); server.bind(name); server.listen()
        client = socket.socket(socket.AF_UNIX, kind); client.connect(name); client.send(b'x')
        assert server.accept()[0].recv(1) == b'x', name
        client = socket.socket(socket.AF_UNIX, kind); client.setblocking(False); client.connect(name)
server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); server.bind('/tmp/datagrams')
client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
client.sendto(b'to', '/tmp/datagrams'); client.connect('/tmp/datagrams'); client.send(b'connected')
print(server.recv(99), server.recv(99))
for family, host in (socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1'):
    server = socket.socket(family, socket.SOCK_DGRAM); server.bind((host, 0))
    client = socket.socket(family, socket.SOCK_DGRAM)
    client.sendto(b'to', server.getsockname()); client.connect(server.getsockname()); client.send(b'connected')
    print(server.recv(99), server.recv(99))
    server = socket.socket(family); server.bind((host, 0)); server.listen()
    client = socket.create_connection(server.getsockname()[:2]); peer, _ = server.accept()
    client.sendall(b'stream'); print(peer.recv(99), client.getpeername() == server.getsockname())
",
        "b'pair'\nb'packets'\nb'to' b'connected'\nb'to' b'connected'\nb'stream' True\nb'to' b'connected'\nb'stream' True",
    );
}

/// Whoever serves a socket of the sandbox's files is told who has come, as far as that is known
/// where others connect; it takes no process, unless whoever connects has to wait.
#[test]
fn sockets_of_files_are_connected_as_the_caller() {
    says(
        "import os, socket, struct, threading, time
def next_process():
    child = os.fork()
    if child == 0: os._exit(0)
    os.waitpid(child, 0)
    return child
server = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen(64)
before = next_process()
for _ in range(50):
    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s')
    pid, uid, gid = struct.unpack('3i', server.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    assert (uid, gid) == (os.getuid(), os.getgid()) and pid in (0, os.getpid()), (pid, uid, gid)
print(next_process() - before)
server.listen(0)
clients = [socket.socket(socket.AF_UNIX) for _ in range(3)]
clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('2l', 60, 0))
def connect(client): client.connect('/tmp/s'); client.send(b'x')
threads = [threading.Thread(target=connect, args=(client,)) for client in clients]
for thread in threads: thread.start()
time.sleep(0.3); print(sum(thread.is_alive() for thread in threads))
print(*[server.accept()[0].recv(1) for _ in threads])
for thread in threads: thread.join()
print(struct.unpack('2l', clients[2].getsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, 16)))
",
        "1\n2\nb'x' b'x' b'x'\n(60, 0)",
    );
}

#[test]
fn a_server_of_the_project_is_asked_by_its_tests() {
    if !needs(&["node", "curl"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write(
            "try.mjs",
            "import http from 'http'; import { execFile } from 'child_process';
const server = http.createServer((_, answer) => answer.end('served')).listen(0, async () => {
  const { port } = server.address();
  for (const host of ['127.0.0.1', 'localhost', '[::1]'])
    console.log(await (await fetch(`http://${host}:${port}/`)).text());
  execFile('curl', ['-sS', `http://localhost:${port}/`], (error, said) => { console.log(error ?? said); process.exit(); });
});
",
        );
        for network in NETWORKS {
            let ran = project.run([network, &["--", "node", "try.mjs"]].concat());
            assert_eq!(ran.ok(), "served\nserved\nserved\nserved", "{network:?}\n{}", ran.talk());
        }
    });
}
