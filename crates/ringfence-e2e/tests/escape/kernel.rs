//! Kernel features that a command does not need and that past escapes used.

use ringfence_testkit::each_user;

use crate::project;

#[test]
fn io_uring_is_refused() {
    each_user(|user| {
        let project = project(user);
        project
            .tries("call('io_uring_setup', 4, ctypes.create_string_buffer(120))")
            .inside(&["ENOSYS", "EPERM"]);
        project.tries("call('io_uring_enter', 0, 0, 0, 0, 0)").inside(&["ENOSYS", "EPERM"]);
        project.tries("call('io_uring_register', 0, 0, 0, 0)").inside(&["ENOSYS", "EPERM"]);
    });
}

#[test]
fn bpf_modules_kexec_and_clock_changes_are_refused() {
    each_user(|user| {
        let project = project(user);
        for code in [
            "call('bpf', 0, ctypes.create_string_buffer(64), 64)",
            "call('perf_event_open', ctypes.create_string_buffer(112), 0, -1, -1, 0)",
            "call('userfaultfd', 1)",
            "call('fanotify_init', 0x200, 0)",
            "call('init_module', 0, 0, b'')",
            "call('finit_module', 0, b'', 0)",
            "call('kexec_file_load', 0, 0, 0, 0, 0)",
            "call('swapon', b'/dev/zero', 0)",
            "call('syslog', 3, ctypes.create_string_buffer(100), 100)",
            "call('reboot', 0, 0, 0, 0)",
            "call('quotactl_fd', 0, 0, 0, 0)",
        ] {
            project.tries(code).inside(&["EPERM", "ENOSYS"]);
        }
        project.tries("time.clock_settime(time.CLOCK_REALTIME, time.time())").inside(&["EPERM"]);
        project.tries("socket.sethostname('x')").inside(&["EPERM"]);
    });
}

#[test]
fn keyrings_of_the_host_are_unreachable() {
    each_user(|user| {
        let project = project(user);
        for code in [
            "call('keyctl', 0, -3, 0)",
            "call('keyctl', 11, -4, ctypes.create_string_buffer(100), 100)",
            "call('add_key', b'user', b'rf', b'x', 1, -2)",
            "call('request_key', b'user', b'rf', 0, 0)",
        ] {
            project.tries(code).inside(&["EPERM", "ENOSYS"]);
        }
    });
}

#[test]
fn file_handles_cannot_be_opened() {
    each_user(|user| {
        let project = project(user);
        // The handle of the root of the file system of the project, as in the `shocker` escape.
        let code = "(lambda h, m: call('open_by_handle_at', os.open('ROOT', os.O_RDONLY), (outcome(lambda: call('name_to_handle_at', AT_FDCWD, b'ROOT', h, m, 0)), h)[1], os.O_RDONLY))(ctypes.create_string_buffer(struct.pack('Ii', 128, 0) + bytes(128), 136), ctypes.create_string_buffer(8))";
        project.tries(code).inside(&["EPERM"]).bare_ok_as_root();
    });
}

#[test]
fn command_cannot_add_a_seccomp_listener() {
    each_user(|user| {
        let project = project(user);
        let filter = |flags: u32| {
            format!(
                "(lambda code: call('seccomp', 1, {flags}, struct.pack('HxxxxxxQ', 1, ctypes.addressof(code))))(ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000)))"
            )
        };
        // The kernel asks the newest filter's listener first, and it could let syscalls through.
        project.tries(&filter(8)).inside(&["EBUSY", "EPERM"]);
        project.tries(&filter(8)).with(&["--mode", "read-only"]).inside(&["EBUSY", "EPERM"]);
        // A filter without a listener can only refuse more.
        project.tries(&filter(0)).inside(&["ok"]);
    });
}

#[test]
fn own_seccomp_filter_does_not_open_a_protected_name() {
    each_user(|user| {
        let project = project(user);
        // ALLOW, LOG and ERRNO(0) on top of the sandbox's own filter.
        for action in ["0x7fff0000", "0x7ffc0000", "0x00050000", "0x7fc00000"] {
            let code = format!(
                "
code = ctypes.create_string_buffer(struct.pack('HBBI', 0x20, 0, 0, 0) + struct.pack('HBBI', 0x15, 0, 1, NUMBERS['openat']) + struct.pack('HBBI', 6, 0, 0, {action}) + struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
call('seccomp', 1, 0, struct.pack('HxxxxxxQ', 4, ctypes.addressof(code)))
try: call('openat', AT_FDCWD, b'.mcp.json', os.O_CREAT | os.O_WRONLY, 0o644)
except OSError: pass
os._exit(0)"
            );
            project.python(&code);
            assert!(!project.has(".mcp.json"), "{action}");
        }
    });
}
