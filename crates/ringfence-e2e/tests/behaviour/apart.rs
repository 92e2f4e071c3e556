//! A command's processes cannot reach the session's shell, or files that other commands have open.

use std::time::Duration;

use ringfence_testkit::{becomes_true, each_user};

use crate::sessions::TestSession;

/// Tries to trace and read process `sys.argv[1]`, and to take its fds from 0 to 255.
const GRASP: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
def opens(path, flags):
    try:
        os.close(os.open(path, flags))
        print("opened", path, flags)
    except OSError:
        pass
for task in (f"/proc/{pid}", f"/proc/{pid}/task/{pid}"):
    for number in range(256):
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            opens(f"{task}/fd/{number}", flags | os.O_NONBLOCK)
    for name in ("mem", "environ"):
        opens(f"{task}/{name}", os.O_RDONLY)
PTRACE_ATTACH, PTRACE_SEIZE, PIDFD_OPEN, PIDFD_GETFD = 16, 0x4206, 434, 438
for request in (PTRACE_ATTACH, PTRACE_SEIZE):
    if libc.ptrace(request, pid, None, None) == 0:
        print("traced", request)
pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
for number in range(256):
    if libc.syscall(PIDFD_GETFD, pidfd, number, 0) >= 0:
        print("took", number)
print("done")
"#;

/// Promise: end-marker
#[test]
fn shell_cannot_be_traced_or_read_by_its_commands() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write("grasp.py", GRASP);
        assert_eq!(session.exec("python3 grasp.py $$").ok(), "done");
        // A forked copy of the shell that has not called `exec` has the same fds.
        assert_eq!(
            session.exec("( read x < <(sleep 20) ) & sleep 0.1; python3 grasp.py $!; kill $!").ok(),
            "done"
        );
        // The same for a sibling process; a process can still use its own fds.
        let shell = session.exec("echo $$").ok();
        assert_eq!(
            session.words(&["exec", &session.id, "--", "python3", "grasp.py", &shell]).ok(),
            "done"
        );
        assert_eq!(
            session.exec("echo one >/dev/stdout; cat <(echo two); ( echo three >/dev/fd/1 ); echo four | tee /dev/stderr").ok(),
            "one\ntwo\nthree\nfour"
        );
    });
}

/// Writes to every fd of every process, also through one that was first opened to read or with
/// `O_PATH`.
const FORGE: &str = r#"
import glob, os
open("forging-too", "w").close()
me = f"/proc/{os.getpid()}/"
while os.path.exists("forging"):
    for path in glob.glob("/proc/[0-9]*/fd/[12]"):
        for first in (None, os.O_PATH, os.O_RDONLY | os.O_NONBLOCK):
            try:
                held = None if first is None else os.open(path, first)
                to = path if held is None else f"/proc/self/fd/{held}"
                if not path.startswith(me):
                    os.write(os.open(to, os.O_WRONLY | os.O_NONBLOCK), b"forged\n")
            except OSError:
                pass
            finally:
                os.closerange(3, 64)
"#;

/// Reads the shell's reports of ended commands, if it can, and forges reports of others.
const THIEF: &str = r#"
import os
for number in range(3, 256):
    for mode in (os.O_RDONLY, os.O_RDWR):
        try:
            os.open(f"/proc/self/fd/{number}", mode | os.O_NONBLOCK)
            print("opened", number)
        except OSError:
            pass
"#;

/// Promise: end-marker
#[test]
fn commands_cannot_read_or_forge_the_shells_reports() {
    each_user(|user| {
        let session = TestSession::start(user);
        session.project.write("thief.py", THIEF);
        assert_eq!(
            session.exec("exec 5<thief.py; python3 thief.py | sort -u; exec 5<&-").ok(),
            "opened 5"
        );
    });
}

/// Promise: end-marker
#[test]
fn background_process_cannot_write_to_another_commands_output() {
    each_user(|user| {
        let session = TestSession::start(user);
        let write = "for f in /proc/[0-9]*/fd/*; do case $f in /proc/$$/*) ;; *) echo forged >$f;; esac; done";
        session
            .project
            .write("forge.sh", format!("echo $$ >forging; while [ -e forging ]; do {write}; done 2>/dev/null; echo over >ended"));
        session.project.write("forge.py", FORGE);
        session.exec("sh forge.sh >/dev/null &").ok();
        assert!(becomes_true(Duration::from_secs(5), || session.project.has("forging")));
        session.exec("python3 forge.py >/dev/null 2>&1 &").ok();
        assert!(becomes_true(Duration::from_secs(5), || session.project.has("forging-too")));
        for round in 0..20 {
            let ran = session.exec(&format!(
                "sh -c 'sleep 0.05; echo {round}; echo own >/proc/self/fd/1; sleep 0.05'"
            ));
            assert_eq!(ran.ok(), format!("{round}\nown"));
        }
        // A process may open an output that it shares through the `/proc` entry of another.
        assert_eq!(
            session.exec("sh -c 'sh -c \"echo shared >/proc/\\$PPID/fd/1\"; true'").ok(),
            "shared"
        );
        session.exec("rm forging").ok();
        assert!(becomes_true(Duration::from_secs(5), || session.project.has("ended")));
    });
}
