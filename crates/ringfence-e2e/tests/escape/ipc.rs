//! Attempts to talk to processes outside: shared memory, queues, sockets, pipes.

use ringfence_testkit::{TestOutput, compile, each_user, skip};

use crate::project;

/// Promise: no-host-ipc
#[test]
fn shared_memory_of_the_host_is_unreachable() {
    each_user(|user| {
        let project = project(user);
        let key = 0x5200_0000 + std::process::id() % 100_000 * 2 + u32::from(user.ids().0 == 0);
        let _bystander = project.outside_process(&format!("call('shmget', {key}, 4096, 0o1666)"));
        project.tries(&format!("call('shmget', {key}, 0, 0)")).inside(&["ENOENT"]).bare_ok();
        project.sh_bare(&format!("ipcrm -M {key}"));
        let name = format!("rf-test-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.outside_process(&format!("write('/dev/shm/{name}')"));
        project.tries(&format!("read('/dev/shm/{name}')")).inside(&["ENOENT"]).bare_ok();
        project.sh_bare(&format!("rm -f /dev/shm/{name}"));
    });
}

#[test]
fn message_queues_of_the_host_are_unreachable() {
    each_user(|user| {
        let project = project(user);
        let name = format!("rf-queue-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.outside_process(&format!(
            "call('mq_open', b'{name}', os.O_CREAT | os.O_RDWR, 0o666, 0)"
        ));
        project
            .tries(&format!("call('mq_open', b'{name}', os.O_RDWR, 0, 0)"))
            .inside(&["ENOENT"])
            .bare_ok();
        project.python_bare(&format!("call(240 if platform.machine() == 'x86_64' else 180, b'{name}', 2, 0, 0); call(241 if platform.machine() == 'x86_64' else 181, b'{name}')"));
    });
}

/// Promise: no-host-ipc
#[test]
fn abstract_sockets_of_the_host_are_unreachable() {
    each_user(|user| {
        let project = project(user);
        let name = format!("\\0rf-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project.outside_process(&format!(
            "server = listen_at('{name}'); packets = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); packets.bind('{name}-d')"
        ));
        for code in [
            format!("connect_to('{name}')"),
            format!("connect_to('{name}-d', socket.SOCK_DGRAM)"),
            format!("socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', '{name}-d')"),
            format!(
                "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendmsg([b'x'], [], 0, '{name}-d')"
            ),
        ] {
            project.tries(&code).inside(&["ECONNREFUSED", "EPERM"]).bare_ok();
            // With the host's network, abstract names are the host's: another check refuses them.
            project.tries(&code).with(&["--net", "full"]).inside(&["ECONNREFUSED", "EPERM"]);
        }
    });
}

/// Promise: no-host-ipc
#[test]
fn host_socket_files_in_the_project_stay_shut() {
    each_user(|user| {
        let project = project(user);
        let _bystander = project.outside_process("one, two = listen_at('agent.sock'), listen_at('../../agent.sock'); packets = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); packets.bind('log.sock')");
        for code in [
            "connect_to('agent.sock')",
            "connect_to('ROOT/agent.sock'[:107])",
            "connect_to('log.sock', socket.SOCK_DGRAM)",
            "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', 'log.sock')",
        ] {
            project.tries(code).inside(&["EACCES", "ECONNREFUSED"]).bare_ok();
            project.tries(code).with(&["--net", "full"]).inside(&["EACCES", "ECONNREFUSED"]);
        }
        project.tries("connect_to('../../agent.sock')").inside(&["ENOENT"]).bare_ok();
        for code in [
            "os.rename('agent.sock', 'mine.sock') or connect_to('mine.sock')",
            "os.link('agent.sock', 'mine.sock') or connect_to('mine.sock')",
        ] {
            project.tries(code).inside(&["EACCES", "EBUSY", "EXDEV", "EROFS", "EPERM"]);
        }
    });
}

/// Promise: no-host-ipc
#[test]
fn host_sockets_in_vendored_trees_and_git_directories_stay_shut() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q && mkdir -p node_modules/a/b .git/daemons target").ok();
        // By an absolute path, by a relative one that cannot be resolved, and in `.git`.
        let places = ["node_modules/a/s", "target/s", ".git/daemons/s", ".git/s"];
        let absolute =
            places.map(|place| format!("listen_at('{}')", project.at(place).display())).join(", ");
        let listen = format!(
            "keep = [{absolute}]; os.chdir('node_modules/a/b'); keep.append(listen_at('r'))"
        );
        let _bystander = project.outside_process(&listen);
        for place in places.iter().chain(&["node_modules/a/b/r"]) {
            project
                .tries(&format!("connect_to('{place}')"))
                .inside(&["EACCES", "ECONNREFUSED"])
                .bare_ok();
        }
        // The command can use its own sockets there.
        project
            .tries("[listen_at('node_modules/own'), connect_to('node_modules/own')]")
            .inside(&["ok"]);
    });
}

/// Promise: host-sockets
#[test]
fn host_sockets_in_trees_of_tools_stay_shut() {
    each_user(|user| {
        let project = project(user);
        let home = project.home();
        project.write_at(&home.join(".cargo/bin/cargo"), "#!/bin/sh\n");
        project.make_directories(&home.join("opened/node_modules/a"));
        let places = [".cargo/s", ".cargo/bin/s", "opened/node_modules/a/s"]
            .map(|place| home.join(place).display().to_string());
        let listen = places.clone().map(|place| format!("listen_at('{place}')")).join(", ");
        let relative = format!(
            "os.chdir('{}/.cargo/bin'); keep.append(listen_at('relative'))",
            home.display()
        );
        let _bystander = project.outside_process(&format!("keep = [{listen}]; {relative}"));
        let path = format!("{}/.cargo/bin:/usr/local/bin:/usr/bin:/bin", home.display());
        for place in places.iter().chain(&[format!("{}/.cargo/bin/relative", home.display())]) {
            let code = format!(
                "import socket, os\nos.stat('{place}')\nsocket.socket(socket.AF_UNIX).connect('{place}')"
            );
            let opened = home.join("opened").display().to_string();
            let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
            let mut command = project.ringfence();
            command
                .env("PATH", &path)
                .args(["run", "--read", &opened, "--"])
                .arg(python)
                .args(["-c", &code]);
            let ran = TestOutput::run(&mut command, b"");
            assert!(
                ran.status != 0 && ran.stderr_text().contains("Error"),
                "{place} is reached: {}",
                ran.stderr_text()
            );
            assert!(project.python_bare(&code).status == 0, "{place} cannot be reached at all");
        }
    });
}

/// Binds sockets in the project once the command says that it runs.
const LATE: &str = "import threading
keep = []
def late():
    while not os.path.exists('runs'): time.sleep(.01)
    packets = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); packets.bind('log.sock')
    keep.extend([listen_at('late.sock'), listen_at('node_modules/late.sock'), packets])
    write('bound')
threading.Thread(target=late).start()";

/// Connects to those sockets, and to some of its own.
const TRIES: &str = "import errno, os, socket, subprocess, sys, time
def outcome(act):
    try: act(); return 'ok'
    except OSError as error: return errno.errorcode[error.errno]
def connect(path): socket.socket(socket.AF_UNIX).connect(path)
open('runs', 'w').close()
while not os.path.exists('bound'): time.sleep(.01)
said = [outcome(lambda: connect('late.sock')), outcome(lambda: connect('node_modules/late.sock'))]
said.append(outcome(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', 'log.sock')))
own = socket.socket(socket.AF_UNIX); own.bind('own.sock'); own.listen()
os.rename('own.sock', 'moved.sock')
said.append(outcome(lambda: connect('moved.sock')))
said.append(str(subprocess.call([sys.executable, '-c', 'import socket; socket.socket(socket.AF_UNIX).connect(\"moved.sock\")'])))
print(' '.join(said))";

/// Promise: host-sockets
#[test]
fn host_socket_bound_while_the_command_runs_stays_shut() {
    each_user(|user| {
        let refused = "ECONNREFUSED ECONNREFUSED ECONNREFUSED ok 0";
        // With the host's network, datagrams are not checked.
        let with_packets = "ECONNREFUSED ECONNREFUSED ok ok 0";
        for (net, expect) in [
            (&[][..], refused),
            (&["--allow-host", "a.example"], refused),
            (&["--net", "full"], with_packets),
        ] {
            let project = project(user);
            project.make_directories(&project.at("node_modules"));
            let _bystander = project.outside_process(LATE);
            let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
            let mut command = project.ringfence();
            command.arg("run").args(net).arg("--").arg(python).args(["-c", TRIES]);
            let ran = TestOutput::run(&mut command, b"");
            assert_eq!(ran.text(), expect, "{net:?}: {}", ran.stderr_text());
            // Control: outside, the sockets can be reached.
            let bare = project.python_bare(
                "print([connect_to('late.sock'), connect_to('node_modules/late.sock')] and 'ok')",
            );
            assert_eq!(bare.ok(), "ok");
        }
    });
}

/// Connects to a socket of the host by paths and addresses that are hard to resolve from outside,
/// and to one of its own by each of the paths.
const HIDDEN: &str = "import ctypes, errno, os, socket, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def outcome(act):
    try: act(); return 'ok'
    except OSError as error: return errno.errorcode[error.errno]
def connect(path): socket.socket(socket.AF_UNIX).connect(path)
def send_from(place, path):
    address = bytes([1, 0]) + path + bytes(1)
    at = libc.mmap(ctypes.c_void_p(place), 4096, 3, 0x32, -1, 0)
    ctypes.memmove(at, address, len(address))
    end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    if libc.sendto(end.fileno(), b'x', 1, 0, ctypes.c_void_p(at), len(address)) < 0: raise OSError(ctypes.get_errno(), '')
open('runs', 'w').close()
while not os.path.exists('bound'): time.sleep(.01)
own = socket.socket(socket.AF_UNIX); own.bind('own.sock'); own.listen()
os.symlink('/proc/self/cwd', 'here'); os.symlink('../proc/thread-self/cwd', '/tmp/there')
said = []
for hides in [0, 1]:
    libc.prctl(4, 1 - hides)
    for name in ['late.sock', 'own.sock']:
        for way in ['', '/proc/thread-self/cwd/', '/proc/self/cwd/', '/./proc/self/task/%d/cwd/' % os.getpid(), 'here/', '/tmp/there/']:
            said.append(outcome(lambda: connect(way + name)))
libc.prctl(4, 1)
said.append(outcome(lambda: connect('/proc/thread-self/cwd/absent.sock')))
said.append(outcome(lambda: send_from(0x100000000, b'log.sock')))
print(' '.join(said))";

/// Promise: late-sockets
#[test]
fn host_socket_bound_later_stays_shut_by_every_path() {
    each_user(|user| {
        let each = format!("{}{}", "ECONNREFUSED ".repeat(6), "ok ".repeat(6)).repeat(2);
        for (net, packet) in [
            (&[][..], "ECONNREFUSED"),
            (&["--allow-host", "a.example"], "ECONNREFUSED"),
            (&["--net", "full"], "ok"),
        ] {
            let project = project(user);
            project.make_directories(&project.at("node_modules"));
            let _bystander = project.outside_process(LATE);
            let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
            let words = [&["--json"], net, &["--", python, "-c", HIDDEN]].concat();
            let ran = project.run(words);
            let said: serde_json::Value = serde_json::from_slice(&ran.stdout)
                .unwrap_or_else(|error| panic!("{error}: {}", ran.stderr_text()));
            assert_eq!(
                said["stdout"].as_str(),
                Some(format!("{each}ENOENT {packet}\n").as_str()),
                "{net:?}: {said}"
            );
            let refused = said["denials"].as_array().into_iter().flatten().any(|denial| {
                denial["operation"] == "connect"
                    && denial["target"]
                        .as_str()
                        .is_some_and(|target| target.ends_with("/app/late.sock"))
            });
            assert!(refused, "{net:?}: {said}");
        }
    });
}

/// `connect` and `sendto` of 32-bit programs, which pass their arguments in memory.
const SOCKETCALL: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
static char *low;
static long old(long call, const long *words) {
    long r;
    int *at = (int *)(low + 1024);
    for (int i = 0; i < 6; i++) at[i] = (int)words[i];
    __asm__ volatile("int $0x80" : "=a"(r) : "a"(102), "b"(call), "c"((long)at) : "memory", "r8", "r9", "r10", "r11");
    return (int)r;
}
static void say(const char *name, long r) { printf("%s %s\n", name, r >= 0 ? "OPEN" : strerrorname_np(-r)); }
static long address(const char *path) {
    struct sockaddr_un *un = (void *)low;
    memset(un, 0, sizeof *un);
    un->sun_family = AF_UNIX;
    strcpy(un->sun_path, path);
    return (long)un;
}
int main() {
    low = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    close(open("runs", O_CREAT | O_WRONLY, 0644));
    while (access("bound", F_OK)) usleep(10000);
    int own = socket(AF_UNIX, SOCK_STREAM, 0);
    say("bind", old(2, (long[]){own, address("own.sock"), 110, 0, 0, 0}));
    listen(own, 4);
    say("own", old(3, (long[]){socket(AF_UNIX, SOCK_STREAM, 0), address("own.sock"), 110, 0, 0, 0}));
    say("connect", old(3, (long[]){socket(AF_UNIX, SOCK_STREAM, 0), address("late.sock"), 110, 0, 0, 0}));
    int packets = socket(AF_UNIX, SOCK_DGRAM, 0);
    strcpy(low + 512, "x");
    say("sendto", old(11, (long[]){packets, (long)(low + 512), 1, 0, address("log.sock"), 110}));
    return 0;
}
"#;

/// Promise: late-sockets
#[test]
fn host_socket_bound_later_stays_shut_to_32_bit_programs() {
    if !cfg!(target_arch = "x86_64") {
        skip("the i386 syscall numbers are known for x86-64 only");
        return;
    }
    each_user(|user| {
        for (net, expect) in [
            (&[][..], "bind OPEN\nown OPEN\nconnect ECONNREFUSED\nsendto ECONNREFUSED"),
            // C libraries use the direct syscalls, so these may be refused.
            (
                &["--allow-host", "a.example"],
                "bind OPEN\nown ENOSYS\nconnect ENOSYS\nsendto ENOSYS",
            ),
            (&["--net", "full"], "bind OPEN\nown OPEN\nconnect ECONNREFUSED\nsendto OPEN"),
        ] {
            let project = project(user);
            project.make_directories(&project.at("node_modules"));
            let Some(program) = compile(&project, "socketcall", SOCKETCALL) else { return };
            let _bystander = project.outside_process(LATE);
            let program = program.to_string_lossy();
            let ran = project.run([net, &["--", &program]].concat());
            assert_eq!(ran.text(), expect, "{net:?}: {}", ran.stderr_text());
            project.sh_bare("rm own.sock").ok();
            let bare = TestOutput::run(&mut project.command(&*program), b"").ok();
            assert_eq!(
                bare, "bind OPEN\nown OPEN\nconnect OPEN\nsendto OPEN",
                "the probe cannot succeed"
            );
        }
    });
}

/// Trees that are not walked have no masks, and the kernel lists the socket by its other name.
///
/// Promise: late-sockets
#[test]
fn host_socket_mounted_in_a_vendored_tree_stays_shut() {
    each_user(|user| {
        let project = project(user);
        let (home, root) = (project.home(), project.root());
        project.write("node_modules/a/agent.sock", "");
        let _bystander = project.outside_process("keep = listen_at('../../agent.sock')");
        let mounts = format!(
            "mount --bind {}/agent.sock {}/node_modules/a/agent.sock",
            home.display(),
            root.display()
        );
        let code = "import errno, socket\ntry: socket.socket(socket.AF_UNIX).connect('node_modules/a/agent.sock'); print('ok')\n\
            except OSError as error: print(errno.errorcode[error.errno])";
        let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
        let socket = home.join("agent.sock").display().to_string();
        let mut policy = "version = 1\n".to_owned();
        for expect in ["ECONNREFUSED", "ok"] {
            project.write_at(&home.join(".config/ringfence/policy.toml"), &policy);
            let ran = TestOutput::run(
                project.ringfence_after(&mounts).args(["run", "--", python, "-c", code]),
                b"",
            );
            assert_eq!(ran.text(), expect, "{}", ran.stderr_text());
            // A socket that the policy opens is reached by any of its names.
            policy = format!("version = 1\n[network]\nunix-sockets = [\"{socket}\"]\n");
        }
    });
}

#[test]
fn well_known_sockets_of_the_host_are_absent() {
    each_user(|user| {
        let project = project(user);
        for path in [
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/dbus/system_bus_socket",
            "/run/systemd/private",
            "/run/user",
            "/tmp/.X11-unix",
            "/run/containerd/containerd.sock",
            "/dev/log",
        ] {
            project.tries(&format!("os.stat('{path}')")).inside(&["ENOENT"]);
        }
    });
}

#[test]
fn named_pipes_of_the_host_in_tmp_are_absent() {
    each_user(|user| {
        let project = project(user);
        let path = format!("/tmp/rf-pipe-{}-{}", std::process::id(), user.ids().0);
        let _bystander = project
            .outside_process(&format!("os.mkfifo('{path}'); keep = os.open('{path}', os.O_RDWR)"));
        project
            .tries(&format!("os.open('{path}', os.O_WRONLY | os.O_NONBLOCK)"))
            .inside(&["ENOENT"])
            .bare_ok();
        project.sh_bare(&format!("rm -f {path}"));
    });
}
