//! Connections within the sandbox work, without a network and with an allow list.

use ringfence_testkit::{compile, each_user, needs, python, skip};

use crate::project;

const NETWORKS: [&[&str]; 3] = [
    &["--net", "none"],
    &["--allow-host", "app.test"],
    &["--net", "allow-list", "--allow-localhost", "1"],
];

/// Checks that a Python program prints the same with every network mode.
#[track_caller]
fn says(code: &str, expected: &str) {
    let Some(python) = python() else { return };
    each_user(|user| {
        let project = project(user);
        project.write("try.py", code);
        for network in NETWORKS {
            let ran = project.run([network, &["--", python, "try.py"]].concat());
            assert_eq!(ran.ok(), expected, "{network:?}\n{}", ran.stderr_text());
        }
    });
}

/// Checks that a C program prints the same with every network mode.
#[track_caller]
fn program_says(source: &str, expected: &str) {
    each_user(|user| {
        let project = project(user);
        let Some(_) = compile(&project, "program", source) else { return };
        for network in NETWORKS {
            let ran = project.run([network, &["./program"]].concat());
            assert_eq!(ran.ok(), expected, "{network:?}\n{}", ran.stderr_text());
        }
    });
}

/// Promise: own-sockets
#[test]
fn asyncio_sockets_work_within_the_sandbox() {
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

/// Promise: own-sockets
#[test]
fn processes_talk_within_the_sandbox() {
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

/// Promise: own-sockets
#[test]
fn tokio_style_program_works_within_the_sandbox() {
    program_says(
        include_str!("programs/tokio.c"),
        "tcp: hello\ntcp6: hello\nunix: hello\nudp: datagram\nblocking: written\nchild: 0",
    );
}

/// Promise: own-sockets
#[test]
fn bun_style_program_works_within_the_sandbox() {
    program_says(
        include_str!("programs/bun.c"),
        "start: in memory\nspawn: through cat 0\nmessage: with a descriptor\nserve: GET\nunix: served",
    );
}

/// Promise: own-sockets
#[test]
fn shared_memory_queues_and_locks_work_within_the_sandbox() {
    says(
        "import multiprocessing, concurrent.futures
from multiprocessing import shared_memory, managers
def fill(name, lock, count, done):
    memory = shared_memory.SharedMemory(name)
    with lock: memory.buf[count.value] = 65 + count.value; count.value += 1
    memory.close(); done.put('x')
def double(n): return 2 * n
if __name__ == '__main__':
    for way in 'fork', 'spawn', 'forkserver':
        context = multiprocessing.get_context(way)
        memory = shared_memory.SharedMemory(create=True, size=16)
        lock, count, done = context.Lock(), context.Value('i', 0), context.Queue()
        workers = [context.Process(target=fill, args=(memory.name, lock, count, done)) for _ in range(3)]
        for worker in workers: worker.start()
        print(*[done.get() for _ in workers], bytes(memory.buf[:3]).decode())
        for worker in workers: worker.join()
        memory.close(); memory.unlink()
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool: print(sum(pool.map(double, range(10))))
    with managers.SharedMemoryManager() as manager:
        shared = manager.ShareableList([1, 'two', 3.0]); print(*shared)
",
        "x x x ABC\n90\nx x x ABC\n90\nx x x ABC\n90\n1 two 3.0",
    );
}

/// Cluster children share a listening port that their parent passes on; worker threads use message
/// ports; both also serve Unix sockets.
const CLUSTER: &str = "
const cluster = require('cluster'), net = require('net'), http = require('http');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const ask = where => new Promise((ended, failed) => {
  let said = '';
  net.connect(where).on('data', data => said += data).on('end', () => ended(said)).on('error', failed);
});
if (!isMainThread) {
  const server = net.createServer(socket => socket.end('worker ' + Atomics.add(workerData, 0, 1)));
  server.listen('/tmp/worker.sock', () => parentPort.postMessage('up'));
} else if (cluster.isPrimary) {
  const children = [cluster.fork(), cluster.fork()];
  cluster.on('message', (child, message) => child.said = message);
  let up = 0;
  cluster.on('listening', async (_, { port }) => {
    if (++up < 4) return;
    const seen = [];
    for (let i = 0; i < 4; i++) seen.push(await (await fetch(`http://127.0.0.1:${cluster.port ?? port}/`)).text());
    console.log(seen.join(' '), await ask('/tmp/cluster.sock'));
    const counter = new Int32Array(new SharedArrayBuffer(4));
    const worker = new Worker(__filename, { workerData: counter });
    worker.on('message', async () => {
      console.log(await ask('/tmp/worker.sock'), await ask('/tmp/worker.sock'), Atomics.load(counter, 0));
      await worker.terminate();
      for (const child of children) child.send('end');
    });
  });
  let ended = 0;
  cluster.on('exit', (_, status) => { if (++ended == 2) { console.log('ended', status); process.exit(); } });
  cluster.on('listening', (_, { port }) => { if (port > 0) cluster.port = port; });
} else {
  http.createServer((_, answer) => { answer.setHeader('Connection', 'close'); answer.end('served'); }).listen(0, '127.0.0.1');
  net.createServer(socket => socket.end('by a file')).listen('/tmp/cluster.sock');
  process.on('message', () => process.exit(0));
}
";

/// Promise: own-sockets
#[test]
fn node_clusters_and_worker_threads_work() {
    if !needs(&["node"]) {
        return;
    }
    each_user(|user| {
        let project = project(user);
        project.write("try.cjs", CLUSTER);
        for network in NETWORKS {
            let ran = project.run([network, &["--", "node", "try.cjs"]].concat());
            let expected = "served served served served by a file\nworker 0 worker 1 2\nended 0";
            assert_eq!(ran.ok(), expected, "{network:?}\n{}", ran.stderr_text());
        }
    });
}

/// Promise: own-sockets
#[test]
fn sockets_of_every_kind_work_within_the_sandbox() {
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

/// `SO_PEERCRED` at a Unix socket shows the caller, or pid 0 where a helper connects; a helper
/// process is used only if the `connect` has to wait.
///
/// Promise: own-sockets
#[test]
fn unix_socket_peer_is_the_caller() {
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

/// The main thread of a process may end before the others.
#[test]
fn threads_that_outlive_the_main_thread_can_connect() {
    if !has_thread_pidfds() {
        return;
    }
    says(
        "import ctypes, os, socket, threading, time
def talk():
    while 'Z' not in open('/proc/self/stat').read().rsplit(')')[1].split()[0]: time.sleep(0.01)
    server = socket.socket(); server.bind(('127.0.0.1', 0)); server.listen()
    client = socket.create_connection(server.getsockname()); client.send(b'x'); print(server.accept()[0].recv(1))
    server = socket.socket(socket.AF_UNIX); server.bind('/tmp/s'); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect('/tmp/s'); client.send(b'y'); print(server.accept()[0].recv(1), flush=True)
    os._exit(0)
threading.Thread(target=talk).start()
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)
",
        "b'x'\nb'y'",
    );
}

/// Returns true if the kernel has pidfds of threads (6.9); before, only the main thread works.
fn has_thread_pidfds() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel tells");
    let mut numbers =
        release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    let is_known = (numbers.next(), numbers.next()) >= (Some(6), Some(9));
    if !is_known {
        skip("this kernel knows no descriptors of threads (6.9)");
    }
    is_known
}

/// Promise: own-sockets
#[test]
fn project_tests_reach_their_own_server() {
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
            assert_eq!(
                ran.ok(),
                "served\nserved\nserved\nserved",
                "{network:?}\n{}",
                ran.stderr_text()
            );
        }
    });
}
