//! A host that forbids what the sandbox is made of: nothing runs, and the cause is named.

use ringfence_testkit::{Project, Ran, each_user, needs};

use crate::project;

/// User namespaces are refused, as container runtimes do it.
const NO_NAMESPACES: &str = r#"
    op(0x15, NUMBERS['clone3'], 0, 1), op(0x06, ERRNO | errno.ENOSYS),
    op(0x15, NUMBERS['unshare'], 2, 0), op(0x15, NUMBERS['clone'], 1, 0), op(0x06, ALLOW),
    op(0x20, 16), op(0x45, NEWUSER, 0, 1), op(0x06, ERRNO | errno.EPERM), op(0x06, ALLOW)"#;

/// A call of Linux 5.12 is unknown, as it was before.
const OLD_KERNEL: &str = "op(0x15, NUMBERS['mount_setattr'], 0, 1), op(0x06, ERRNO | errno.ENOSYS), op(0x06, ALLOW)";

/// Runs ringfence behind a filter that goes on so once it has the number of the call.
fn filtered(filter: &str, project: &Project, words: &[&str]) -> Ran {
    let binary = project.binary().to_string_lossy().into_owned();
    let python = ringfence_testkit::python().expect("the tests of ringfence need python3");
    let code = format!(
        r#"{}
NEWUSER, ERRNO, ALLOW = 0x10000000, 0x00050000, 0x7fff0000
def op(code, k, t=0, f=0): return struct.pack('HBBI', code, t, f, k)
program = b''.join([op(0x20, 0), {filter}])
buffer = ctypes.create_string_buffer(program)
header = struct.pack('HxxxxxxQ', len(program) // 8, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0
call('seccomp', 1, 0, header)
os.execv(sys.argv[1], sys.argv[1:])"#,
        ringfence_testkit::PRELUDE
    );
    Ran::of(project.command(python).args(["-Bc", &code, &binary]).args(words), b"")
}

#[track_caller]
fn refuses(ran: &Ran, project: &Project) {
    ran.ends(125);
    assert!(!project.has("ran"));
    assert!(ran.talk().contains("error:") && ran.talk().contains("user namespaces") && ran.talk().contains("hint:"), "{}", ran.talk());
}

#[test]
fn a_filter_that_forbids_user_namespaces() {
    each_user(|user| {
        let project = project(user);
        refuses(&filtered(NO_NAMESPACES, &project, &["run", "--", "touch", "ran"]), &project);
        let named = filtered(NO_NAMESPACES, &project, &["run", "--engine", "namespaces", "--", "touch", "ran"]);
        refuses(&named, &project);
        assert!(named.talk().contains("ringfence doctor"), "{}", named.talk());
        // The filter itself does not keep a command from running.
        filtered(NO_NAMESPACES, &project, &["run", "--mode", "full-access", "--", "touch", "ran"]).ok();
        assert!(project.has("ran"));
    });
}

#[test]
fn a_kernel_that_is_too_old() {
    each_user(|user| {
        let project = project(user);
        let ran = filtered(OLD_KERNEL, &project, &["run", "--", "touch", "ran"]);
        ran.ends(125);
        assert!(!project.has("ran"));
        assert!(ran.talk().contains("hint: ringfence needs Linux 5.14"), "{}", ran.talk());
        let doctor = filtered(OLD_KERNEL, &project, &["doctor"]);
        doctor.ends(1);
        assert!(doctor.text().contains("the kernel is too old") && doctor.text().contains("mount_setattr"), "{}", doctor.text());
    });
}

#[test]
fn a_limit_of_no_user_namespaces() {
    each_user(|user| {
        if !needs(&["unshare"]) {
            return;
        }
        let project = project(user);
        let line = format!(
            "unshare -Ur sh -c 'echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"' x {} run -- touch ran",
            project.binary().display()
        );
        refuses(&project.sh_bare(&line), &project);
    });
}

#[test]
fn the_doctor_names_the_cause_and_the_fix() {
    each_user(|user| {
        let project = project(user);
        let ran = filtered(NO_NAMESPACES, &project, &["doctor"]);
        let said = format!("{}{}", ran.text(), ran.talk()).to_lowercase();
        assert_ne!(ran.status, 0, "{said}");
        assert!(said.contains("cause") && said.contains("unshare") && said.contains("fix"), "{said}");
        let healthy = Ran::of(project.ringfence().arg("doctor"), b"");
        healthy.ok();
    });
}
