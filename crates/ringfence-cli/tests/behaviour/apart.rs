//! What a command runs cannot get at its shell, or at what other commands have open.

use std::time::Duration;

use ringfence_testkit::{each_user, soon};

use crate::sessions::Session;

/// Tries to get hold of process `sys.argv[1]`, and of its descriptors from 0 to 255.
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

/// Promise: P48
#[test]
fn the_shell_cannot_be_got_at_by_what_it_runs() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("grasp.py", GRASP);
        assert_eq!(session.exec("python3 grasp.py $$").ok(), "done");
        // A copy of it that is no other program yet has what it has.
        assert_eq!(
            session.exec("( read x < <(sleep 20) ) & sleep 0.1; python3 grasp.py $!; kill $!").ok(),
            "done"
        );
        // It is the same for whoever is beside it, and it can still use what is its own.
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

/// Writes to whatever any process has open, also by way of a descriptor that it gets first to
/// read from it, or to look at it.
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

/// Reads what the shell says of ends, if it can, and says it all the same of others.
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

/// Promise: P48
#[test]
fn nobody_hears_what_the_shell_tells() {
    each_user(|user| {
        let session = Session::start(user);
        session.project.write("thief.py", THIEF);
        assert_eq!(
            session.exec("exec 5<thief.py; python3 thief.py | sort -u; exec 5<&-").ok(),
            "opened 5"
        );
    });
}

/// Promise: P48
#[test]
fn what_was_left_running_cannot_write_to_another_commands_output() {
    each_user(|user| {
        let session = Session::start(user);
        let write = "for f in /proc/[0-9]*/fd/*; do case $f in /proc/$$/*) ;; *) echo forged >$f;; esac; done";
        session
            .project
            .write("forge.sh", format!("echo $$ >forging; while [ -e forging ]; do {write}; done 2>/dev/null; echo over >ended"));
        session.project.write("forge.py", FORGE);
        session.exec("sh forge.sh >/dev/null &").ok();
        assert!(soon(Duration::from_secs(5), || session.project.has("forging")));
        session.exec("python3 forge.py >/dev/null 2>&1 &").ok();
        assert!(soon(Duration::from_secs(5), || session.project.has("forging-too")));
        for round in 0..20 {
            let ran = session.exec(&format!(
                "sh -c 'sleep 0.05; echo {round}; echo own >/proc/self/fd/1; sleep 0.05'"
            ));
            assert_eq!(ran.ok(), format!("{round}\nown"));
        }
        // Whoever shares an output may name it by another process that has it.
        assert_eq!(
            session.exec("sh -c 'sh -c \"echo shared >/proc/\\$PPID/fd/1\"; true'").ok(),
            "shared"
        );
        session.exec("rm forging").ok();
        assert!(soon(Duration::from_secs(5), || session.project.has("ended")));
    });
}
