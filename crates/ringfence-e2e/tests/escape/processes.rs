//! Attempts to reach processes outside the sandbox.

use ringfence_testkit::each_user;

use crate::project;

/// Promise: no-outside-process
#[test]
fn processes_outside_cannot_be_signalled_traced_or_read() {
    each_user(|user| {
        let project = project(user);
        let mut bystander = project.outside_process(
            "memory = ctypes.create_string_buffer(b'inner life'); said = ctypes.addressof(memory)",
        );
        let (pid, address) = (bystander.pid(), bystander.said.clone());
        project.tries(&format!("os.kill({pid}, 0)")).inside(&["ESRCH"]).bare_ok();
        project
            .tries(&format!("call('pidfd_open', {pid}, 0)"))
            .inside(&["ESRCH", "EINVAL"])
            .bare_ok();
        project.tries(&format!("call('ptrace', 0x4206, {pid}, 0, 0)")).inside(&["ESRCH", "EPERM"]);
        project.tries(&format!("read('/proc/{pid}/mem')")).inside(&["ENOENT"]);
        let vectors = format!(
            "call('process_vm_readv', {pid}, struct.pack('QQ', ctypes.addressof(ctypes.create_string_buffer(8)), 8), 1, struct.pack('QQ', {address}, 8), 1, 0)"
        );
        project.tries(&vectors).inside(&["ESRCH", "EPERM"]);
        // Every pid that could be in use, then all processes at once.
        project.sh("for p in $(seq 1 400); do kill -KILL $p 2>/dev/null; done; true");
        project.sh("kill -KILL -1; true");
        project.sh("kill -TERM $PPID; true").ok();
        assert!(bystander.is_alive());
    });
}

/// Promise: no-outside-process
#[test]
fn process_group_outside_gets_no_signal() {
    each_user(|user| {
        let project = project(user);
        // The shell outside is in the same process group and reports the signal.
        let line = |inner: &str| {
            format!(
                "setsid sh -c 'trap \"echo HIT\" USR1 USR2 TERM; {inner}; sleep 0.1; echo alive'"
            )
        };
        let bare = project.sh_bare(&line("sh -c \"kill -USR1 0; exit 0\""));
        assert!(bare.text().contains("HIT"), "the probe cannot succeed: {}", bare.text());
        for inner in [
            "kill -USR1 0",
            "kill -USR1 -1",
            "kill -USR1 -- -$(ps -o pgid= $$ 2>/dev/null | tr -d \\\" \\\")",
            "kill -TERM 0",
        ] {
            let ran = project.sh_bare(&line(&format!(
                "{} run -c \"trap : USR1; {inner}; exit 0\"",
                project.binary().display()
            )));
            assert_eq!(ran.text(), "alive", "{inner}: {}", ran.stderr_text());
        }
    });
}

#[test]
fn init_of_the_sandbox_cannot_be_traced_or_read() {
    each_user(|user| {
        let project = project(user);
        project.tries("os.kill(1, 9) or time.sleep(0.1)").inside(&["ok", "EPERM"]);
        project.tries("call('ptrace', 0x4206, 1, 0, 0)").inside(&["EPERM"]);
        project.tries("call('pidfd_getfd', call('pidfd_open', 1, 0), 3, 0)").inside(&["EPERM"]);
        project.tries("call('process_vm_readv', 1, struct.pack('QQ', ctypes.addressof(ctypes.create_string_buffer(8)), 8), 1, struct.pack('QQ', 0x400000, 8), 1, 0)").inside(&["EPERM"]);
        for name in [
            "mem",
            "environ",
            "maps",
            "auxv",
            "syscall",
            "stack",
            "fd/0",
            "fd/3",
            "fd/4",
            "ns/mnt",
            "root/etc/hostname",
        ] {
            project
                .tries(&format!("read('/proc/1/{name}')"))
                .inside(&["EACCES", "EPERM", "ENOENT"]);
        }
    });
}

#[test]
fn proc_files_reveal_nothing_of_the_host() {
    each_user(|user| {
        let project = project(user);
        let mut command = project.ringfence();
        command.env("HOST_MARK_TOKEN", "set-by-the-host");
        let said = ringfence_testkit::TestOutput::run(command.args(["run", "-c", "cat /proc/*/environ /proc/*/cmdline /proc/*/mountinfo /proc/mounts 2>/dev/null | tr '\\0' '\\n'; ls -l /proc/*/exe /proc/*/cwd 2>/dev/null; true"]), b"").text();
        assert!(!said.contains("set-by-the-host"), "{said}");
        assert!(!said.contains("/run/user") && !said.contains("/boot"), "{said}");
    });
}

#[test]
fn priorities_of_processes_outside_stay() {
    each_user(|user| {
        let project = project(user);
        let bystander = project.outside_process("pass");
        project
            .tries(&format!("os.setpriority(os.PRIO_PROCESS, {}, 5)", bystander.pid()))
            .inside(&["ESRCH"]);
        let nice = |pid: u32| {
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .unwrap_or_default()
                .rsplit(')')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .nth(16)
                .map(str::to_owned)
        };
        let before = nice(bystander.pid());
        // All processes of the user: those inside count as the same user.
        project
            .tries("os.setpriority(os.PRIO_USER, os.getuid(), 7)")
            .inside(&["ok", "EPERM", "ESRCH", "EACCES"]);
        assert_eq!(nice(bystander.pid()), before, "the priority of a process outside changed");
    });
}
