//! Files made through the notify handler behave as if the kernel made them.

use ringfence_testkit::each_user;

use crate::project;

/// Checks that a program prints the same inside and bare, in two fresh projects.
#[track_caller]
fn same_as_bare(code: &str) {
    each_user(|user| {
        let (inside, bare) = (project(user), project(user));
        let (said, expected) = (inside.python(code).ok(), bare.python_bare(code).ok());
        assert!(!expected.is_empty(), "the program said nothing");
        assert_eq!(said, expected, "as {user}");
        assert_eq!(inside.entries(), bare.entries(), "as {user}");
    });
}

/// Promise: syscall-parity
#[test]
fn modes_and_umasks_match_bare() {
    same_as_bare(
        "
for mask in [0o077, 0o002, 0o000, 0o022]:
    os.umask(mask)
    name = 'm%o' % mask
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o666))
    os.close(os.open(name + 'x', os.O_CREAT | os.O_WRONLY, 0o777))
    os.mkdir(name + 'd', 0o777)
    os.mkdir(name + 's', 0o1777)
    os.mkfifo(name + 'f', 0o666)
    os.mknod(name + 'n', 0o666 | stat.S_IFREG)
    listen_at(name + 'u').close()
    for end in ['', 'x', 'd', 's', 'f', 'n', 'u']:
        print(name + end, oct(os.stat(name + end).st_mode))
",
    );
}

#[test]
fn umask_set_by_another_thread_or_child_counts() {
    same_as_bare(
        "
import subprocess, threading
os.umask(0o022)
create('one')
thread = threading.Thread(target=lambda: os.umask(0o077))
thread.start(); thread.join()
create('two')
subprocess.run(['sh', '-c', 'umask 007; : > three; umask 0; : > four'])
create('five')
for name in ['one', 'two', 'three', 'four', 'five']:
    print(name, oct(os.stat(name).st_mode))
",
    );
}

/// Promise: syscall-parity
#[test]
fn inherited_umask_counts_until_another_is_set() {
    same_as_bare(
        "
import subprocess
create('one')
subprocess.run(['sh', '-c', ': > two; mkdir three'])
subprocess.run(['sh', '-c', 'umask 007; : > four; sh -c \": > five\"'])
subprocess.run(['sh', '-c', ': > six'])
create('seven')
for name in ['one', 'two', 'three', 'four', 'five', 'six', 'seven']:
    print(name, oct(os.stat(name).st_mode))
",
    );
}

/// Promise: syscall-parity
#[test]
fn directory_fds_are_those_of_the_calling_thread() {
    same_as_bare(
        "
import threading
CLONE_FILES = 0x400
for name in ['a', 'b', 'c', 'd']:
    os.mkdir(name)
def make(directory, number, name):
    os.dup2(os.open(directory, os.O_RDONLY), number)
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=number))
def apart():
    print(call('unshare', CLONE_FILES))
    make('b', 77, 'by another thread')
make('a', 77, 'first')
thread = threading.Thread(target=apart)
thread.start(); thread.join()
os.close(os.open('second', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=77))
# One process after the other, each with another directory at the same fd.
for turn in range(20):
    child = os.fork()
    if child == 0:
        make('cd'[turn % 2], 77, 'of %d' % turn)
        os._exit(0)
    os.waitpid(child, 0)
os.close(77)
print(outcome(lambda: os.open('third', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=77)))
print(outcome(lambda: os.open('third', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=1)))
for name in ['a', 'b', 'c', 'd']:
    print(name, sorted(os.listdir(name)))
",
    );
}

/// Promise: syscall-parity
#[test]
fn lock_on_a_directory_fd_is_released_on_close() {
    same_as_bare(
        "
import fcntl, threading, time
def locked():
    directory = os.open('src', os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return directory
for name in ['HEAD', 'plain']:
    directory = locked()
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=directory))
    os.close(directory)
    print(name, outcome(lambda: os.close(locked())))
# A thread waits at a pipe that it opens relative to the directory's fd.
os.mkfifo('src/pipe')
directory = locked()
thread = threading.Thread(target=lambda: os.close(os.open('pipe', os.O_CREAT | os.O_RDONLY, 0o600, dir_fd=directory)))
thread.start()
time.sleep(0.3)
os.close(directory)
print('pipe', outcome(lambda: os.close(locked())))
os.close(os.open('src/pipe', os.O_WRONLY))
thread.join()
",
    );
}

/// Promise: syscall-parity
#[test]
fn open_flags_match_bare() {
    same_as_bare(
        "
import fcntl
def flags(fd):
    return oct(fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000), fcntl.fcntl(fd, fcntl.F_GETFD)
print(flags(os.open('a', os.O_CREAT | os.O_RDWR)))
print(flags(os.open('a', os.O_CREAT | os.O_WRONLY | os.O_APPEND)))
print(flags(os.open('a', os.O_CREAT | os.O_RDWR | os.O_NONBLOCK)))
print(flags(os.open('a', os.O_CREAT | os.O_RDWR | os.O_SYNC)))
print(flags(call('openat', AT_FDCWD, b'a', os.O_CREAT | os.O_RDWR, 0o600)))
print(outcome(lambda: os.open('a', os.O_CREAT | os.O_EXCL | os.O_RDWR)))
print(outcome(lambda: os.open('a/b', os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('missing/b', os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('', os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('src', os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('src', os.O_CREAT | os.O_RDONLY)))
print(outcome(lambda: os.open('.', os.O_CREAT | os.O_RDONLY)))
print(outcome(lambda: os.open('new/', os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('x' * 300, os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: os.open('/'.join(['y' * 200] * 25), os.O_CREAT | os.O_RDWR)))
print(outcome(lambda: call('openat', 99, b'a', os.O_CREAT | os.O_RDWR, 0o600)))
print(outcome(lambda: call('openat', AT_FDCWD, 0, os.O_CREAT | os.O_RDWR, 0o600)))
os.symlink('loop', 'loop')
print(outcome(lambda: create('loop')))
os.symlink('a', 'to-a')
print(outcome(lambda: create('to-a', os.O_NOFOLLOW)))
print(outcome(lambda: create('to-a', os.O_EXCL)))
os.chmod('a', 0o400)
if os.getuid(): print(outcome(lambda: create('a')))
os.mkdir('shut', 0o500)
if os.getuid(): print(outcome(lambda: create('shut/x')))
write('b', b'long text'); write('b', b'short'); print(read('b'))
fd = os.open('b', os.O_CREAT | os.O_WRONLY | os.O_APPEND); os.write(fd, b'+more'); print(read('b'))
print(flags(os.open('src', os.O_CREAT | os.O_PATH)))
",
    );
}

/// Promise: syscall-parity
#[test]
fn hard_links_and_symlinks_match_bare() {
    same_as_bare(
        "
os.link('README', 'hard'); print(os.stat('hard').st_nlink)
os.symlink('nowhere', 'dangling'); print(os.readlink('dangling'))
create('dangling'); print(os.path.exists('nowhere'))
os.symlink('src', 'source'); create('source/new.rs'); print(os.listdir('src').__len__())
os.symlink('../README', 'src/up'); print(read('src/up'))
os.link('dangling', 'hard-of-link', follow_symlinks=False); print(os.path.islink('hard-of-link'))
call('linkat', AT_FDCWD, b'source/main.rs', AT_FDCWD, b'followed', 0x400); print(os.stat('followed').st_nlink)
for act in [lambda: os.link('README', 'hard'), lambda: os.symlink('x', 'hard'), lambda: os.link('absent', 'y'), lambda: os.link('src', 'y'),
            lambda: os.symlink('', 'z'), lambda: os.mkdir('hard'), lambda: os.mkdir('src'), lambda: os.mkdir('src/..'), lambda: os.mkdir('/'), lambda: os.mkdir('.')]:
    print(outcome(act))
",
    );
}

/// Promise: syscall-parity
#[test]
fn renames_match_bare() {
    same_as_bare(
        "
write('a', b'A'); write('b', b'B'); os.mkdir('d1'); os.mkdir('d2'); write('d2/x')
os.rename('a', 'a2'); os.rename('a2', 'b'); print(read('b'))
write('c', b'C'); rename2('b', 'c', 2); print(read('b'), read('c'))
print(outcome(lambda: rename2('b', 'c', 1))); rename2('b', 'e', 1); print(read('e'))
rename2('e', 'd2', 2); print(os.path.isdir('e'), read('d2'))
for act in [lambda: os.rename('absent', 'q'), lambda: os.rename('d1', 'e'), lambda: os.rename('c', 'd1'), lambda: os.rename('d1', 'c'),
            lambda: os.rename('d1', 'd1/sub'), lambda: os.rename('.', 'q'), lambda: os.rename('c', '..'), lambda: rename2('c', 'q', 3), lambda: rename2('c', 'q', 8),
            lambda: os.rename('c', 'c'), lambda: os.rename('d1/', 'd3/'), lambda: os.rename('c/', 'q'), lambda: os.rename('c', 'q/')]:
    print(outcome(act))
",
    );
}

/// Promise: syscall-parity
#[test]
fn named_pipes_match_bare() {
    same_as_bare(
        "
import subprocess, threading
os.mkfifo('pipe')
reader = subprocess.Popen(['cat', 'pipe'], stdout=subprocess.PIPE)
subprocess.run(['sh', '-c', 'echo through > pipe'])
print(reader.communicate(timeout=10)[0])
# The other way round: the writer waits for a reader, and others go on meanwhile.
writer = subprocess.Popen(['sh', '-c', 'echo again > pipe'])
time.sleep(0.1)
for i in range(50): create('f%d' % i)
print(writer.poll())
print(read('pipe')); writer.wait(10)
print(outcome(lambda: os.open('pipe', os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK)))
os.close(os.open('pipe', os.O_CREAT | os.O_RDWR))
",
    );
}

#[test]
fn writer_waiting_at_a_named_pipe_can_be_interrupted() {
    same_as_bare(
        "
import signal, subprocess
os.mkfifo('pipe')
writer = subprocess.Popen(['sh', '-c', 'echo x > pipe'])
time.sleep(0.2); writer.terminate(); print(writer.wait(5))
signal.signal(signal.SIGALRM, lambda *a: (_ for _ in ()).throw(InterruptedError(4, 'x')))
signal.setitimer(signal.ITIMER_REAL, 0.2)
print(outcome(lambda: os.open('pipe', os.O_CREAT | os.O_WRONLY)))
",
    );
}

#[test]
fn unnamed_temporary_files_match_bare() {
    same_as_bare(
        "tmpfile_as('named'); print(read('named')); fd = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600); print(os.write(fd, b'x'))",
    );
}

#[test]
fn file_locks_match_bare() {
    same_as_bare(
        "
import fcntl
def lock():
    os.close(os.open('x.lock', os.O_CREAT | os.O_EXCL | os.O_WRONLY))
print(outcome(lock), outcome(lock)); os.unlink('x.lock'); print(outcome(lock))
one, two = os.open('f', os.O_CREAT | os.O_RDWR), os.open('f', os.O_CREAT | os.O_RDWR)
fcntl.flock(one, fcntl.LOCK_EX); print(outcome(lambda: fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)))
os.close(one); fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.lockf(two, fcntl.LOCK_EX)
print('locked')
",
    );
}

#[test]
fn unusual_names_match_bare() {
    same_as_bare(
        r#"
names = [b'a b', b'new\nline', b'\xff\xfe', 'grüße'.encode(), b'-rf', b'*', b'$HOME', b"it's", b' ', b'...', b'x' * 255, b'back\\slash']
for name in names:
    with open(name, 'wb') as file: file.write(name)
    os.rename(name, name[:250] + b'.2')
    os.mkdir(name)
    print(read(name[:250] + b'.2') == name, os.path.isdir(name))
"#,
    );
}

#[test]
fn long_paths_and_deep_directories_match_bare() {
    same_as_bare(
        "
for depth in range(60):
    os.mkdir('d' * 60)
    os.chdir('d' * 60)
    create('here')
print(len(os.getcwd()) > 3000, sorted(os.listdir('.')))
os.makedirs('/'.join(['e'] * 100)); create('/'.join(['e'] * 100) + '/deep'); print(os.path.exists('/'.join(['e'] * 100) + '/deep'))
",
    );
}

#[test]
fn removed_directories_and_fds_match_bare() {
    same_as_bare(
        "
os.mkdir('gone'); fd = os.open('gone', os.O_RDONLY); os.rmdir('gone')
print(outcome(lambda: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=fd)))
fd = os.open('src', os.O_RDONLY)
os.close(os.open('by-fd', os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd)); os.mkdir('d', dir_fd=fd)
os.rename('by-fd', 'moved', src_dir_fd=fd); os.symlink('x', 'l', dir_fd=fd); os.mkfifo('p', dir_fd=fd)
print(sorted(os.listdir('src')), os.path.exists('moved'))
file = os.open('README', os.O_RDONLY)
print(outcome(lambda: os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=file)), outcome(lambda: os.mkdir('x', dir_fd=file)))
os.chdir('src'); create('relative'); print(os.path.exists('relative'))
",
    );
}

#[test]
fn concurrent_creation_matches_bare() {
    same_as_bare(
        "
import threading
def work(n):
    for i in range(200):
        create('t%d-%d' % (n, i)); os.rename('t%d-%d' % (n, i), 'r%d-%d' % (n, i))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len([f for f in os.listdir('.') if f.startswith('r')]))
",
    );
}

#[test]
fn named_sockets_match_bare() {
    same_as_bare(
        "
for where in ['sock', './sock2', os.getcwd()[:40] and 'src/sock3']:
    server = listen_at(where); client = connect_to(where); peer, _ = server.accept()
    client.send(b'hi'); print(peer.recv(2), server.getsockname(), outcome(lambda: listen_at(where)))
os.chdir('src'); server = listen_at('rel'); print(os.path.exists('rel'), outcome(lambda: listen_at('missing/x')))
datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); datagram.bind('dgram'); datagram.sendto(b'x', 'dgram'); print(datagram.recv(1))
abstract = listen_at('\\0ringfence-%d' % os.getpid()); connect_to('\\0ringfence-%d' % os.getpid()); print('abstract')
print(outcome(lambda: socket.socket(socket.AF_UNIX).bind('')))
print(outcome(lambda: listen_at('y' * 107)), outcome(lambda: call('bind', 99, b'xxxxxxx', 7)))
tcp = socket.socket(); tcp.bind(('127.0.0.1', 0)); tcp.listen(); socket.create_connection(tcp.getsockname()); print('tcp')
six = socket.socket(socket.AF_INET6); print(outcome(lambda: six.bind(('::1', 0))))
",
    );
}
