//! The notify handler, which makes files for the command, grants no more than the policy.

use ringfence_testkit::each_user;

use crate::project;

/// Promise: notify-rights
#[test]
fn o_creat_opens_no_more_than_a_plain_open() {
    each_user(|user| {
        let project = project(user);
        // A path that a plain open is refused stays refused with `O_CREAT`.
        let code = r#"
import glob
paths = ['HOME/.ssh/id_rsa', 'HOME/notes.txt', 'HOME/.gitconfig', '.env', 'sub/.env', '/etc/shadow', '/etc/passwd', '/proc/self/root/HOME/.ssh/id_rsa']
for pid in ['1', 'self', 'thread-self', str(os.getpid())] + [p for p in os.listdir('/proc') if p.isdigit()]:
    for name in ['mem', 'environ', 'maps', 'root', 'cwd', 'exe', 'root/etc/shadow', 'cwd/.env', 'fd/0', 'fd/1', 'fd/2', 'fd/3', 'fd/4', 'fd/5', 'fd/6', 'fd/7', 'fd/8', 'fd/9', 'ns/mnt', 'ns/user', 'stack', 'syscall', 'task/%s/mem' % pid, 'oom_score_adj', 'uid_map', 'setgroups', 'attr/current', 'clear_refs', 'timerslack_ns', 'coredump_filter', 'comm']:
        paths.append('/proc/%s/%s' % (pid, name))
paths += glob.glob('/dev/*') + glob.glob('/proc/*') + glob.glob('/proc/sys/kernel/*') + glob.glob('/etc/*') + glob.glob('/sys/devices/system/cpu/*')
def opened(path, flags):
    try: os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error: return errno.errorcode.get(error.errno)
    return 'ok'
tried = 0
for path in paths:
    for mode in [os.O_RDONLY, os.O_WRONLY, os.O_RDWR]:
        plain, creating = opened(path, mode), opened(path, mode | os.O_CREAT)
        tried += 1
        if plain != 'ok' and creating == 'ok':
            print(path, mode, plain, creating)
print('tried', tried > 500)
"#;
        let said = project.python(&code.replace("HOME", &project.home().to_string_lossy())).ok();
        assert_eq!(said, "tried True");
    });
}

/// Promise: notify-rights
#[test]
fn proc_self_means_the_caller_in_the_notify_handler() {
    each_user(|user| {
        let project = project(user);
        let code = r#"
def by(path, flags):
    fd = os.open(path, os.O_RDONLY | flags)
    try: return os.read(fd, 100000)
    finally: os.close(fd)
for path in ['/proc/self/cmdline', '/proc/self/environ', '/proc/thread-self/comm', '/proc/self/status', '/proc/self/root/proc/self/comm', '/proc/self/cwd/README', '/proc/mounts', '/dev/../proc/self/comm']:
    one, two = by(path, 0), by(path, os.O_CREAT)
    if path.endswith('status'): one, two = one.split(b'\n')[:6], two.split(b'\n')[:6]
    print(path, one == two)
os.chdir('/proc'); print(by('self/comm', 0) == by('self/comm', os.O_CREAT))
os.chdir('/proc/self'); print(by('comm', 0) == by('comm', os.O_CREAT))
os.chdir('/proc/self/fd'); fd = os.open('/etc/hostname', os.O_RDONLY); print(by(str(fd), os.O_CREAT))
"#;
        let said = project.python(code).ok();
        assert!(!said.contains("False"), "{said}");
    });
}

#[test]
fn undumpable_process_is_served_and_confined() {
    each_user(|user| {
        let project = project(user);
        let code = "libc.prctl(4, 0, 0, 0, 0); os.umask(0o027); create('plain'); os.mkdir('dir'); listen_at('sock'); print(outcome(lambda: create('.mcp.json')), outcome(lambda: os.mkdir('.claude')), oct(os.stat('plain').st_mode))";
        assert_eq!(project.python(code).ok(), "EACCES EACCES 0o100640");
    });
}

#[test]
fn stopped_or_killed_callers_do_not_block_others() {
    each_user(|user| {
        let project = project(user);
        // Processes that die, stop or wait in the middle of a syscall.
        let code = "
import signal
children = []
for i in range(40):
    pid = os.fork()
    if pid == 0:
        while True:
            try: create('f%d' % i); os.unlink('f%d' % i)
            except OSError: pass
    children.append(pid)
time.sleep(0.3)
for i, pid in enumerate(children): os.kill(pid, signal.SIGKILL if i % 2 else signal.SIGSTOP)
begun = time.monotonic()
for i in range(200): create('after%d' % i)
print(time.monotonic() - begun < 5)
for pid in children: os.kill(pid, signal.SIGKILL)
";
        assert_eq!(project.python(code).ok(), "True");
    });
}

#[test]
fn invalid_pointers_fail_with_efault() {
    each_user(|user| {
        let project = project(user);
        let code = "
for address in [0, 1, 4096, 0x7fffffffffff, 0xffffffffffffffff - 4096 - (1 << 64), -1]:
    for name, arguments in [('openat', (AT_FDCWD, address, os.O_CREAT, 0)), ('mkdirat', (AT_FDCWD, address, 0)), ('renameat2', (AT_FDCWD, address, AT_FDCWD, address, 0)),
                            ('linkat', (AT_FDCWD, address, AT_FDCWD, address, 0)), ('symlinkat', (address, AT_FDCWD, address)), ('mknodat', (AT_FDCWD, address, 0, 0)), ('bind', (0, address, 16)), ('bind', (0, address, 1 << 40))]:
        came = outcome(lambda: call(name, *arguments))
        if came not in ('EFAULT', 'ENOENT', 'EINVAL', 'ENOTSOCK', 'ENAMETOOLONG'): print(name, address, came)
# A name that ends at the end of its page.
page = mmap.mmap(-1, 8192)
base = ctypes.addressof(ctypes.c_char.from_buffer(page))
assert libc.mprotect(ctypes.c_void_p(base + 4096), 4096, 0) == 0
ctypes.memmove(base + 4096 - 6, b'edges\\0', 6)
os.close(call('openat', AT_FDCWD, base + 4096 - 6, os.O_CREAT | os.O_WRONLY, 0o600)); print(os.path.exists('edges'))
ctypes.memmove(base + 4096 - 6, b'edgesX', 6)
print(outcome(lambda: call('openat', AT_FDCWD, base + 4096 - 6, os.O_CREAT, 0o600)))
create('still-there'); print(os.path.exists('still-there'))
os._exit(0) if sys.stdout.flush() is None else 0
";
        assert_eq!(project.python(code).ok(), "True\nEFAULT\nTrue");
    });
}

#[test]
fn notify_handler_survives_many_calls_and_full_fd_tables() {
    each_user(|user| {
        let project = project(user);
        let code = "
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
kept = []
while True:
    try: kept.append(os.open('n%d' % len(kept), os.O_CREAT | os.O_WRONLY))
    except OSError as error: print(errno.errorcode[error.errno]); break
for fd in kept: os.close(fd)
create('after'); print(os.path.exists('after'))
for i in range(3000): os.mkdir('d'); os.rmdir('d')
print(outcome(lambda: create('.mcp.json')))
";
        assert_eq!(project.python(code).ok(), "EMFILE\nTrue\nEACCES");
    });
}

#[test]
fn opening_a_socket_or_absent_terminal_fails_with_enxio() {
    each_user(|user| {
        let project = project(user);
        let code = r#"
import signal
signal.alarm(5)
if os.path.exists('s'): os.unlink('s')
server = socket.socket(socket.AF_UNIX); server.bind('s')
for path in ['s', '/dev/tty']:
    try: print(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY, 0o600))
    except OSError as error: print(errno.errorcode[error.errno])
"#;
        // A session of its own has no terminal.
        let alone = format!("if os.fork(): os.wait(); os._exit(0)\nos.setsid()\n{code}");
        assert_eq!(project.python(&alone).ok(), "ENXIO\nENXIO");
        assert_eq!(project.python_bare(&alone).ok(), "ENXIO\nENXIO");
    });
}

#[test]
fn process_without_a_terminal_cannot_open_the_users() {
    each_user(|user| {
        let project = project(user);
        let Some(python) = ringfence_testkit::python() else { return };
        let code = "import os\nif os.fork() == 0:\n  os.setsid()\n  try: os.write(os.open('/dev/tty', os.O_WRONLY | os.O_CREAT), b'RE' b'ACHED')\n  except OSError as e: open('said.txt', 'w').write(str(e.errno))\n  os._exit(0)\nos.wait()\nos.write(os.open('/dev/tty', os.O_WRONLY | os.O_CREAT), b'MI' b'NE')";
        project.write("try.py", code);
        let ran = project.run_on_terminal(
            &["--", python, "-B", "try.py"],
            "expect('MINE'); wait(); print('done')",
        );
        let said = ran.ok();
        assert!(!said.contains("REACHED"), "{said}");
        assert_eq!(project.read("said.txt").as_deref(), Some("6"));
    });
}

#[test]
fn landlock_is_reported_as_unsupported_inside() {
    each_user(|user| {
        let project = project(user);
        // A program that confines itself must learn that Landlock does not confine it here.
        let version = "
try: print(call(444, 0, 0, 1) > 0)
except OSError as error: print(errno.errorcode[error.errno])
";
        assert_eq!(project.python(version).ok(), "ENOSYS");
    });
}

#[test]
fn pending_rename_of_an_ended_command_plants_nothing() {
    each_user(|user| {
        // The git directory was found harmless; another replaces it by a rename that takes the
        // notify handler so long that the command ends before it is done.
        let code = r#"
import subprocess, threading
for name in ['sub'] + ['f/%d' % i for i in range(20)]: subprocess.run(['git', 'init', '-q', name], check=True)
top = os.open('.', os.O_RDONLY)
os.chdir('f/0/.git')
for _ in range(1900):
    os.mkdir('d'); os.chdir('d')
os.mkdir('evil'); os.mkdir('evil/objects'); os.mkdir('evil/refs')
open('evil/HEAD', 'w').write('ref: refs/heads/x\n')
open('evil/config', 'w').write('[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch RAN; false\n')
threading.Thread(target=lambda: call('renameat2', -100, b'evil', top, b'sub/.git', 2)).start()
import time; time.sleep(DELAY); os._exit(0)
"#;
        for delay in ["0.002", "0.005", "0.008"] {
            let project = project(user);
            project.python(&code.replace("DELAY", delay));
            let config = project.read("sub/.git/config").unwrap_or_default();
            assert!(!config.contains("fsmonitor"), "{config}");
        }
    });
}
