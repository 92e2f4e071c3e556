//! ioctls and other syscalls that path rules do not see.

use ringfence_testkit::{SECRET, TestOutput, TestProject, each_user, python};
use serde_json::Value;

use crate::project;

/// Defines `ioctl` by the raw syscall: the C library does not pass every command on.
const IOCTL: &str = "
def ioctl(fd, command, argument=None):
    argument = ctypes.create_string_buffer(4096) if argument is None else argument
    return call('ioctl', fd, command, argument)
";

/// The targets and rules of the denials of a program inside.
fn refusals(project: &TestProject, code: &str) -> Vec<(String, String)> {
    let python = python().expect("the tests of ringfence need python3");
    let said = project
        .run([
            "--json",
            "--",
            python,
            "-Bc",
            &format!("{}\n{IOCTL}\n{code}", ringfence_testkit::PRELUDE),
        ])
        .text();
    let said: Value = serde_json::from_str(&said).expect("one object of JSON");
    assert_eq!(said["exitCode"], 0, "{said}");
    let text = |denial: &Value, field: &str| denial[field].as_str().unwrap_or_default().to_owned();
    said["denials"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|denial| (text(denial, "target"), text(denial, "rule")))
        .collect()
}

/// A file system without these ioctls returns ENOTTY and the filter EPERM, so the test works on any
/// file system.
///
/// Promise: ioctl-list
#[test]
fn btrfs_subvolumes_and_snapshots_cannot_be_made() {
    each_user(|user| {
        let project = project(user);
        let code = "
top = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
name = lambda text: ctypes.create_string_buffer(struct.pack('q', top) + text, 4096)
for command, text in [(0x50009401, b'copy'), (0x5000940e, b'.claude'), (0x5000940f, b'src'), (0x50009417, b'copy'), (0x50009418, b'.claude'),
                      (0x5000943f, b'src'), (0x4020bc10, b'.claude'), (0x4020bc11, b'src'), (0x40186f04, b'copy'), (0xdead50009401, b'copy')]:
    came = outcome(lambda: ioctl(top, command, name(text)))
    if came != 'EPERM': print(hex(command), came)
";
        assert_eq!(project.python(&format!("{IOCTL}\n{code}")).ok(), "");
        let denials = refusals(&project, code);
        assert!(
            denials.iter().any(|(target, rule)| target == "ioctl" && rule.contains("whole tree")),
            "{denials:?}"
        );
        assert!(!project.has(".claude") && !project.has("copy") && project.has("src"));
    });
}

/// Reserving space by `ioctl` is a way around the limits of `fallocate`; it works on any file.
///
/// Promise: ioctl-list
#[test]
fn unlisted_ioctls_are_refused() {
    each_user(|user| {
        let project = project(user);
        let code = "
fd = os.open('reserved', os.O_CREAT | os.O_RDWR)
space = ctypes.create_string_buffer(struct.pack('hhxxxxqqiI16x', 0, 0, 0, 1 << 20, 0, 0), 48)
print(outcome(lambda: ioctl(fd, 0x40305828, space)), os.fstat(fd).st_blocks > 0)
os.unlink('reserved')
";
        assert_eq!(project.python(&format!("{IOCTL}\n{code}")).ok(), "ENOTTY False");
        assert_eq!(
            project.python_bare(&format!("{IOCTL}\n{code}")).ok(),
            "ok True",
            "the probe cannot succeed"
        );
        assert_eq!(
            refusals(&project, code),
            [],
            "a command that is merely not listed is no denial"
        );
    });
}

/// Promise: ioctl-list
#[test]
fn everyday_ioctls_work_inside() {
    each_user(|user| {
        let project = project(user);
        let code = "
import array, fcntl, pty, termios
said = []
def tell(name, act): said.append((name, outcome(act)))
ours, theirs = os.openpty()
for name in ['TCGETS', 'TIOCGWINSZ', 'TIOCGPGRP', 'TIOCOUTQ', 'FIONREAD', 'TIOCGSID', 'TIOCEXCL', 'TIOCNXCL', 'TIOCPKT', 'TIOCGETD']:
    tell(name, lambda: ioctl(theirs if name != 'TIOCPKT' else ours, getattr(termios, name, {'TIOCGSID': 0x5429}.get(name, 0x5401))))
attributes = termios.tcgetattr(theirs)
tell('tcsetattr', lambda: termios.tcsetattr(theirs, termios.TCSADRAIN, attributes))
tell('TIOCSWINSZ', lambda: ioctl(theirs, 0x5414, ctypes.create_string_buffer(struct.pack('HHHH', 24, 80, 0, 0))))
tell('TIOCGPTN', lambda: os.ptsname(ours) if hasattr(os, 'ptsname') else ioctl(ours, 0x80045430))
tell('TCGETS2', lambda: ioctl(theirs, 0x802c542a))
reader, writer = os.pipe()
os.write(writer, b'abc'); waiting = array.array('i', [0]); fcntl.ioctl(reader, 0x541b, waiting); said.append(('waits', waiting[0]))
for command in [0x5421, 0x5450, 0x5451]: tell(hex(command), lambda: ioctl(reader, command))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for command in [0x8912, 0x8913, 0x8915, 0x891b, 0x8921, 0x8927, 0x8933]:
    tell(hex(command), lambda: ioctl(udp.fileno(), command, ctypes.create_string_buffer(b'lo', 4096)))
fd = os.open('README', os.O_RDONLY)
for command in [0x2, 0x5460, 0x80086601, 0x80087601, 0x801c581f]: tell(hex(command), lambda: ioctl(fd, command))
flags = ctypes.create_string_buffer(8)
tell('lsattr', lambda: ioctl(fd, 0x80086601, flags))
tell('chattr', lambda: ioctl(fd, 0x40086602, flags))
tell('chattr +d', lambda: ioctl(fd, 0x40086602, ctypes.create_string_buffer(struct.pack('Q', struct.unpack('Q', flags)[0] | 0x40))))
tell('chattr of nothing', lambda: ioctl(reader, 0x40086602, flags))
tell('chattr from nowhere', lambda: ioctl(fd, 0x40086602, ctypes.c_void_p(8)))
source, target = os.open('README', os.O_RDONLY), os.open('clone', os.O_CREAT | os.O_RDWR)
tell('FICLONE', lambda: call('ioctl', target, 0x40049409, source))
os.unlink('clone')
print(said)
";
        let code = format!("{IOCTL}\n{code}");
        assert_eq!(project.python(&code).ok(), project.python_bare(&code).ok());
    });
}

/// In a directory that ignores case, `.ENV` is `.env` to the kernel and another name to the rules.
#[test]
fn casefold_cannot_be_set() {
    each_user(|user| {
        let project = project(user);
        let code = "
os.mkdir('folded')
fd = os.open('folded', os.O_RDONLY | os.O_DIRECTORY)
for command in [0x40086602, 0x40046602]: print(outcome(lambda: ioctl(fd, command, ctypes.create_string_buffer(struct.pack('Q', 0x40000000)))))
os.rmdir('folded')
";
        let said = project.python(&format!("{IOCTL}\n{code}")).ok();
        // A file system that cannot report flags has no casefold flag.
        assert!(
            said.lines().count() == 2
                && said.lines().all(|came| matches!(came, "EPERM" | "ENOTTY" | "EOPNOTSUPP")),
            "{said}"
        );
        if said.contains("EPERM") {
            let denials = refusals(&project, code);
            assert!(
                denials
                    .iter()
                    .any(|(target, rule)| target.ends_with("/folded") && rule.contains("case")),
                "{denials:?}"
            );
        }
    });
}

/// Promise: no-set-id
#[test]
fn set_id_bits_cannot_be_set_by_any_syscall() {
    each_user(|user| {
        let project = project(user);
        project
            .tries("os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755)")
            .inside(&["EPERM"])
            .bare_ok();
        let code = "
def nameless(mode):
    fd = os.open('.', os.O_TMPFILE | os.O_RDWR, mode)
    os.fchmod(fd, mode)
    call('linkat', AT_FDCWD, b'/proc/self/fd/%d' % fd, AT_FDCWD, b'made', 0x400)
def plain(): return os.close(os.open('made', os.O_CREAT | os.O_WRONLY, 0o755))
ways = [lambda mode: os.close(os.open('made', os.O_CREAT | os.O_WRONLY, mode)), lambda mode: os.close(os.open('made', os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_WRONLY, mode)),
        lambda mode: os.mknod('made', stat.S_IFREG | mode), nameless, lambda mode: (plain(), os.chmod('made', mode)), lambda mode: (plain(), call(452, AT_FDCWD, b'made', mode, 0)),
        lambda mode: (plain(), os.setxattr('made', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 21, 0, 0, 0))),
        lambda mode: (plain(), os.rename('made', 'other'), os.chmod('other', mode), os.rename('other', 'made'))]
os.umask(0)
for number, way in enumerate(ways):
    for mode in [0o4755, 0o6755]:
        for name in ['made', 'other']:
            if os.path.exists(name): os.unlink(name)
        outcome(lambda: way(mode))
        if os.path.exists('made') and os.stat('made').st_mode & 0o6000: print(number, oct(os.stat('made').st_mode))
        if os.path.exists('made') and 'security.capability' in os.listxattr('made'): print(number, 'capability')
print('over')
";
        assert_eq!(project.python(code).ok(), "over");
    });
}

#[test]
fn file_handles_and_page_cache_queries_are_refused() {
    each_user(|user| {
        let project = project(user);
        let handle = "call('name_to_handle_at', AT_FDCWD, b'README', struct.pack('Ii', 128, 0) + bytes(128), ctypes.create_string_buffer(8), 0)";
        project.tries(handle).inside(&["ENOTSUP", "EOPNOTSUPP"]);
        project
            .tries("call(451, os.open('README', os.O_RDONLY), struct.pack('QQ', 0, 0), ctypes.create_string_buffer(40), 0)")
            .inside(&["ENOSYS"]);
    });
}

/// Names that an exception opens below `target` and the like are denied where the directory
/// arrives.
///
/// Promise: directory-moves
#[test]
fn denied_names_cannot_arrive_with_a_moved_directory() {
    each_user(|user| {
        let project = project(user);
        for tree in
            ["target", "node_modules", "vendor", ".venv", "a/b/site-packages", ".git", "venv/lib"]
        {
            for name in [".env", "deep/er/x.pem", "my-secret/x.txt"] {
                let line = format!(
                    "mkdir -p {tree}/built/$(dirname {name}) && echo x > {tree}/built/{name} && mv {tree}/built out"
                );
                let ran = project.sh(&line);
                assert!(
                    ran.status != 0 && !project.has("out"),
                    "{tree} {name}: {}",
                    ran.stderr_text()
                );
                // With the excepted directory itself.
                let ran = project.sh(&format!("mv {tree} out"));
                assert!(
                    ran.status != 0 && !project.has("out"),
                    "{tree} {name}: {}",
                    ran.stderr_text()
                );
                project.sh_bare(&format!("rm -rf {tree} out"));
            }
        }
        let exchange = "mkdir -p target/x src; echo x > target/x/.env; python3 -c 'import ctypes; print(ctypes.CDLL(None).syscall(316, -100, b\"target/x\", -100, b\"src\", 2))'";
        if cfg!(target_arch = "x86_64") {
            assert_eq!(project.sh(exchange).text(), "-1", "exchanged");
        }
        assert!(!project.has("src/.env"));
    });
}

/// Promise: directory-moves
#[test]
fn harmless_directories_move_out_of_build_trees() {
    each_user(|user| {
        let project = project(user);
        let line = "mkdir -p target/package/a node_modules/.old/b && echo x > target/package/a/main.rs && echo x > node_modules/.old/b/.env \
            && mv target/package dist && mv node_modules/.old node_modules/new && cat dist/a/main.rs node_modules/new/b/.env";
        assert_eq!(project.sh(line).ok(), "x\nx");
    });
}

/// Promise: every-mount
#[test]
fn denied_directory_stays_denied_at_a_second_mount() {
    each_user(|user| {
        let project = project(user);
        let (home, root) = (project.home(), project.root());
        for name in ["keys", "home"] {
            project.make_directories(&project.at(name));
        }
        project.write("file", "");
        let mounts = format!(
            "mount --bind {home}/.ssh {root}/keys && mount --bind {home} {root}/home && mount --bind {home}/.netrc {root}/file",
            home = home.display(),
            root = root.display()
        );
        let line = "cat keys/id_rsa home/.ssh/id_rsa home/.aws/credentials home/.netrc file; ls keys; cat README";
        let ran = TestOutput::run(project.ringfence_after(&mounts).args(["run", "-c", line]), b"");
        assert_eq!(ran.text(), "hello", "{}", ran.stderr_text());
        assert!(!ran.stderr_text().contains(SECRET), "{}", ran.stderr_text());
    });
}

/// Promise: exception-scope
#[test]
fn denied_and_protected_names_stay_so_at_a_second_mount() {
    each_user(|user| {
        let project = project(user);
        let root = project.root().display().to_string();
        project.sh_bare("git init -q .").ok();
        for path in [
            ".claude/settings.json",
            "sub2/.vscode/tasks.json",
            ".git/hooks/pre-commit",
            "nested/deploy/.ssh/key",
        ] {
            project.write(path, SECRET);
        }
        project.write("file", "");
        let mut mounts = format!("mount --bind {root}/.env {root}/file");
        for (from, to) in [
            (".claude", "agent"),
            (".git/hooks", "hooks"),
            ("sub2", "tree"),
            (".git", "store"),
            ("nested", "again"),
        ] {
            project.make_directories(&project.at(to));
            mounts += &format!(" && mount --bind {root}/{from} {root}/{to}");
        }
        let line = "cat file again/deploy/.ssh/key; for f in agent/settings.json agent/new hooks/pre-commit hooks/post-commit \
                    tree/.vscode/tasks.json tree/.vscode/new store/hooks/pre-commit store/config; do (echo x >> $f) && echo wrote $f; done; \
                    echo x > tree/plain && echo x > again/plain && cat README";
        let ran = TestOutput::run(project.ringfence_after(&mounts).args(["run", "-c", line]), b"");
        assert_eq!(ran.text(), "hello", "as {user}: {}", ran.stderr_text());
        assert!(!ran.stderr_text().contains(SECRET), "as {user}: {}", ran.stderr_text());
        for path in [".claude/settings.json", "sub2/.vscode/tasks.json", ".git/hooks/pre-commit"] {
            assert_eq!(project.read(path).as_deref(), Some(SECRET), "{path} as {user}");
        }
    });
}

/// Promise: exception-scope
#[test]
fn hard_links_to_denied_and_protected_files_are_masked() {
    each_user(|user| {
        let project = project(user);
        let secrets = ["deploy/.ssh/x", "deploy/.ssh/keys/deep/y"];
        let settings = [".claude/agents/deep/a.md", "packages/app/.vscode/deep/er/tasks.json"];
        for (at, path) in secrets.iter().chain(&settings).enumerate() {
            project.write(path, SECRET);
            project.write(format!("plain/{at}/other"), "");
            std::fs::hard_link(project.at(path), project.at(format!("plain/{at}/link")))
                .expect("a link can be made");
        }
        let ran =
            project.sh("cat plain/0/link plain/1/link; echo x > plain/2/link; echo x > plain/3/link; echo x > plain/0/other && echo done");
        assert_eq!(ran.text(), "done", "as {user}: {}", ran.stderr_text());
        for path in settings {
            assert_eq!(project.read(path).as_deref(), Some(SECRET), "{path} as {user}");
        }
    });
}
