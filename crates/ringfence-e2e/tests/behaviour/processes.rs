//! Processes inside communicate with each other as they would bare.

use ringfence_testkit::{TestOutput, each_user, needs};

use crate::project;

/// Promise: tools-work
#[test]
fn asyncio_with_children_and_sockets_works() {
    each_user(|user| {
        let project = project(user);
        let code = "
import asyncio
async def main():
    async def serve(reader, writer):
        writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()
    for start, connect in [(asyncio.start_server(serve, '127.0.0.1', 0), None), (asyncio.start_unix_server(serve, '/tmp/s'), '/tmp/s'), (asyncio.start_unix_server(serve, 's'), 's')]:
        server = await start
        reader, writer = await (asyncio.open_unix_connection(connect) if connect else asyncio.open_connection(*server.sockets[0].getsockname()))
        writer.write(b'hello\\n'); print((await reader.readline()).decode().strip()); writer.close(); server.close()
    child = await asyncio.create_subprocess_exec('cat', stdin=-1, stdout=-1)
    print((await child.communicate(b'child'))[0].decode())
    print(sum(await asyncio.gather(*[asyncio.to_thread(lambda i=i: i) for i in range(20)])))
asyncio.run(main())
";
        assert_eq!(project.python(code).ok(), "HELLO\nHELLO\nHELLO\nchild\n190");
    });
}

#[test]
fn socket_pairs_shared_memory_and_queues_work() {
    each_user(|user| {
        let project = project(user);
        let code = "
import multiprocessing, multiprocessing.shared_memory as shm
one, two = socket.socketpair(); one.send(b'x'); print(two.recv(1))
for kind in [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]: a, b = socket.socketpair(socket.AF_UNIX, kind); a.send(b'y'); print(b.recv(1))
memory = shm.SharedMemory(create=True, size=10); memory.buf[0] = 7; again = shm.SharedMemory(memory.name); print(again.buf[0]); again.close(); memory.unlink(); memory.close()
with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2]))
lock = multiprocessing.Lock(); lock.acquire(); lock.release(); print('lock')
print(call('shmget', 0, 4096, 0o1600) >= 0, call('memfd_create', b'x', 0) > 0)
";
        assert_eq!(project.python(code).ok(), "b'x'\nb'y'\nb'y'\n7\n[1, 2]\nlock\nTrue True");
    });
}

#[test]
fn program_can_trace_its_own_child() {
    each_user(|user| {
        let project = project(user);
        if !needs(&["strace"]) {
            return;
        }
        let said = project.sh("strace -f -o trace.txt true && grep -c exit_group trace.txt").ok();
        assert_eq!(said, "1");
    });
}

#[test]
fn threads_and_pipes_and_signals_work() {
    each_user(|user| {
        let project = project(user);
        project.sh("seq 1 2000 | xargs -P 8 -n 50 echo | wc -w | grep -q 2000").ok();
        project.sh("sleep 30 & kill $!; wait $!; test $? = 143").ok();
        project.sh("sh -c 'trap \"exit 5\" USR1; kill -USR1 $$; sleep 5'; test $? = 5").ok();
        let code = "
import threading, signal
counter = []
threads = [threading.Thread(target=lambda: counter.append(1)) for _ in range(64)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(counter), os.sched_getaffinity(0) != set(), os.cpu_count() > 0)
os.setpgid(0, 0) if os.getpgid(0) != os.getpid() else None
signal.signal(signal.SIGUSR1, lambda *a: print('got it')); os.kill(0, signal.SIGUSR1)
";
        assert_eq!(project.python(code).ok(), "64 True True\ngot it");
    });
}

/// Promise: two-runs
#[test]
fn concurrent_runs_in_one_project_work() {
    each_user(|user| {
        let project = project(user);
        project.write(".mcp.json", "{}");
        let line = format!(
            "{} run -c 'sleep 0.4; echo x > .mcp.json' & {} run -- true; {} run -c 'echo y > .mcp.json; cat .env'; wait",
            project.binary().display(),
            project.binary().display(),
            project.binary().display()
        );
        project.sh_bare(&line);
        assert_eq!(project.read(".mcp.json").as_deref(), Some("{}"));
        project.tries("read('.env')").inside(&["EACCES"]);
    });
}

#[test]
fn nested_ringfence_fails_with_an_error() {
    each_user(|user| {
        let project = project(user);
        let copy = project.at("rf");
        std::fs::copy(project.binary(), &copy).expect("the binary can be copied");
        user.chown(&copy);
        let ran = project.sh("./rf run -c 'touch ran-inside'; echo status $?");
        assert_eq!(ran.ok(), "status 125", "{}", ran.stderr_text());
        assert!(!project.has("ran-inside"));
    });
}

#[test]
fn cpu_affinity_is_unchanged() {
    each_user(|user| {
        let project = project(user);
        let line = "grep Cpus_allowed_list /proc/self/status";
        let bare = project.sh_bare(line).ok();
        assert_eq!(project.sh(line).ok(), bare);
        if needs(&["taskset"]) {
            let ran = project
                .sh_bare(&format!("taskset -c 0 {} run -- {line}", project.binary().display()));
            assert_eq!(ran.ok().split_whitespace().last(), Some("0"));
        }
    });
}

/// Promise: no-zombie
#[test]
fn run_leaves_no_zombie_where_pid_1_reaps_none() {
    each_user(|user| {
        if !needs(&["unshare"]) {
            return;
        }
        let project = project(user);
        let code = "
import os, subprocess, sys, time
for words in (['true'], ['sleep', '0.2'], ['bash', '-c', 'sleep 50 & exit 3']):
    print(subprocess.run([sys.argv[1], 'run', '--'] + words).returncode)
def is_child(pid):
    try: return open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[1] == '1'
    except OSError: return False
deadline = time.monotonic() + 5
def children(): return [pid for pid in os.listdir('/proc') if pid.isdigit() and is_child(pid)]
def running(): return [pid for pid in children() if open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z']
while running() and time.monotonic() < deadline: time.sleep(0.01)
print(len(children()))
";
        let mut command = project.command("unshare");
        command.args([
            "--user",
            "--map-current-user",
            "--pid",
            "--fork",
            "--mount-proc",
            "/usr/bin/python3",
            "-c",
            code,
        ]);
        assert_eq!(TestOutput::run(command.arg(project.binary()), b"").ok(), "0\n0\n3\n0");
    });
}
