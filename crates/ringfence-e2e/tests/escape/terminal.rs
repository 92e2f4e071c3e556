//! Attempts to type into the user's terminal.

use ringfence_testkit::{each_user, python};

use crate::project;

const TRY: &str = "
import ctypes, errno, os, platform
libc = ctypes.CDLL(None, use_errno=True)
number = 16 if platform.machine() == 'x86_64' else 29
text = ctypes.create_string_buffer(b'x\\x03\\x00\\x00')
def ioctl(request):
    for fd in [0, os.open('/dev/tty', os.O_RDWR)]:
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(number), ctypes.c_long(fd), ctypes.c_long(request), text)
        print('%x' % request, 'OPEN' if result == 0 else errno.errorcode[ctypes.get_errno()])
ioctl(0x5412)            # TIOCSTI
ioctl(0x100005412)       # the same with a bit that the kernel ignores
ioctl(0x541c)            # TIOCLINUX
ioctl(0x10000541c)
ioctl(0x541d)            # TIOCCONS
ioctl(0x5423)            # TIOCSETD
print('over')
";

/// Promise: no-terminal-input
#[test]
fn tiocsti_and_similar_ioctls_are_refused() {
    each_user(|user| {
        let project = project(user);
        let Some(python) = python() else { return };
        // The output goes to a file: on the terminal it would mix with typed input.
        let line = format!(
            "{} run -- {python} -Bc \"$(cat try.py)\" > said.txt",
            project.binary().display()
        );
        project.write("try.py", TRY);
        project.on_terminal(&["/bin/sh", "-c", &line], "wait(); print('done')").ok();
        let said = project.read("said.txt").unwrap_or_default();
        assert!(said.lines().count() == 13 && !said.contains("OPEN"), "{said}");
        assert!(
            said.lines()
                .filter(|line| line.contains("5412") || line.contains("541c"))
                .all(|line| line.ends_with("EPERM")),
            "{said}"
        );
    });
}

#[test]
fn command_cannot_type_into_the_shell_outside() {
    each_user(|user| {
        let project = project(user);
        let Some(python) = python() else { return };
        let code = "import fcntl\\nfor c in b\\\"touch typed\\\\n\\\":\\n  try: fcntl.ioctl(0, 0x5412, bytes([c]))\\n  except OSError: pass";
        let run = format!(
            "{} run -- {python} -c \"$(printf '{}')\"",
            project.binary().display(),
            code.replace("\\\"", "\\042")
        );
        let script = format!(
            "time.sleep(0.2); type({run:?} + '\\n'); time.sleep(1); type('echo o\"\"ver\\n'); expect('over'); type('exit\\n'); wait(); print('done')"
        );
        project.on_terminal(&["/bin/sh", "-i"], &script).ok();
        assert!(!project.has("typed"));
    });
}
