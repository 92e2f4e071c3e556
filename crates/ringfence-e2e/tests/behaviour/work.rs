//! In the project, a command works as if it ran bare.

use ringfence_testkit::{TestOutput, TestUser, each_user};

use crate::project;

/// Promise: bare-files
#[test]
fn project_is_readable_and_writable() {
    each_user(|user| {
        let project = project(user);
        let said = project.sh("cat README && echo made > new.txt && mkdir -p a/b && echo deep > a/b/c && rm src/main.rs && pwd").ok();
        assert_eq!(said, format!("hello\n{}", project.root().display()));
        assert_eq!(project.read("new.txt").as_deref(), Some("made\n"));
        assert_eq!(project.read("a/b/c").as_deref(), Some("deep\n"));
        assert!(!project.has("src/main.rs"));
    });
}

#[test]
fn read_only_mode_writes_nothing_but_tmp() {
    each_user(|user| {
        let project = project(user);
        let before = project.entries();
        project
            .run(["--mode", "read-only", "-c", "cat README && echo x > /tmp/x && cat /tmp/x"])
            .ok();
        project
            .tries("create('new.txt')")
            .with(&["--mode", "read-only"])
            .inside(&["EACCES", "EROFS"]);
        project
            .tries("write('README')")
            .with(&["--mode", "read-only"])
            .inside(&["EACCES", "EROFS"]);
        assert_eq!(project.entries(), before);
    });
}

#[test]
fn command_can_be_a_shell_line_a_name_or_a_relative_path() {
    each_user(|user| {
        let project = project(user);
        project.write("tool", "#!/bin/sh\necho tool $1 in $(basename $PWD)\n");
        project.write("bare-script", "echo script $1\n");
        project.executable("tool");
        project.executable("bare-script");
        // This directory marks the project root, seen from `src`.
        project.make_directories(&project.at(".ringfence"));
        assert_eq!(project.run(["--", "./tool", "one"]).ok(), "tool one in app");
        assert_eq!(project.run(["--", "./bare-script", "two"]).ok(), "script two");
        assert_eq!(project.run(["-C", "src", "--", "../tool", "one"]).ok(), "tool one in src");
        assert_eq!(project.run(["-c", "echo $((6*7)) | cat"]).ok(), "42");
        assert_eq!(
            project.run(["--", "printf", "%s,", "a b", "--json", "-c"]).ok(),
            "a b,--json,-c,"
        );
    });
}

#[test]
fn standard_input_can_be_a_pipe() {
    each_user(|user| {
        let project = project(user);
        let ran = ringfence_testkit::TestOutput::run(
            project.ringfence().args(["run", "--", "sort"]),
            b"b\na\n",
        );
        assert_eq!(ran.ok(), "a\nb");
        let megabytes = vec![b'x'; 3_000_000];
        let ran = ringfence_testkit::TestOutput::run(
            project.ringfence().args(["run", "--", "wc", "-c"]),
            &megabytes,
        );
        assert_eq!(ran.ok(), "3000000");
    });
}

#[test]
fn closed_output_ends_the_command_by_sigpipe() {
    each_user(|user| {
        let project = project(user);
        let line = format!("{} run -- yes | head -n 2", project.binary().display());
        assert_eq!(project.sh_bare(&line).ok(), "y\ny");
        // By SIGPIPE, as bare: not by an error that a program may ignore.
        let ends = r#"bash -c 'yes | head -n 1 > /dev/null; echo "${PIPESTATUS[@]}"'"#;
        assert_eq!(project.sh(ends).ok(), project.sh_bare(ends).ok());
    });
}

#[test]
fn dev_stdin_stdout_and_stderr_work() {
    each_user(|user| {
        let project = project(user);
        // The user makes the pipe: one made by root could not be reopened.
        let line = "echo one > /dev/stdout; echo two | tee /dev/stderr; echo three > /dev/fd/1; echo four > /proc/self/fd/2";
        project.write("streams", line);
        let outside = format!("{} run -- sh streams 2>&1 | cat", project.binary().display());
        assert_eq!(project.sh_bare(&outside).ok(), "one\ntwo\ntwo\nthree\nfour");
        let log = project.home().join("run.log");
        let outside = format!(
            "{} run -- sh streams > {log} 2>&1; cat {log}",
            project.binary().display(),
            log = log.display()
        );
        let said = project.sh_bare(&outside).ok();
        assert!(
            said.contains("four") && !said.contains("denied"),
            "a file outside is opened anew by its descriptor: {said}"
        );
        assert_eq!(project.sh("echo x > /dev/null; head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c").ok(), "3\n3");
        assert_eq!(
            project.sh("exec 7> out.txt; echo seven > /proc/self/fd/7; cat out.txt").ok(),
            "seven"
        );
    });
}

#[test]
fn temporary_files_end_with_the_command() {
    each_user(|user| {
        let project = project(user);
        let name = project.sh("f=$(mktemp) && echo x > $f && cat $f > /dev/null && d=$(mktemp -d) && touch $d/y && echo $f").ok();
        assert!(name.starts_with("/tmp/"), "{name}");
        assert!(!std::path::Path::new(&name).exists());
        project.sh(&format!("test ! -e {name}")).ok();
        project.sh("echo x > /var/tmp/x && echo x > /dev/shm/x && cat /var/tmp/x").ok();
    });
}

#[test]
fn user_and_group_are_the_same_inside() {
    each_user(|user| {
        let project = project(user);
        assert_eq!(project.sh("id -u; id -g").ok(), project.sh_bare("id -u; id -g").ok());
        project.sh("touch mine && test -O mine && id -un && test -w $HOME/code/app").ok();
        assert_eq!(project.sh("echo ~").ok(), project.home().to_string_lossy());
    });
}

/// Promise: no-litter
#[test]
fn only_the_commands_own_files_appear() {
    each_user(|user| {
        let project = project(user);
        let (before, home) = (project.entries(), project.home_entries());
        project.sh("ls -A . .. ~ > /dev/null; cat .env x.pem ~/.ssh/id_rsa; true").ok();
        project.sh("echo x > .mcp.json; mkdir .claude; touch ../x ~/y; true").ok();
        assert_eq!(project.entries(), before);
        assert_eq!(project.home_entries(), home);
        // Inside, the listing equals the host's: no placeholders, nothing hidden.
        assert_eq!(project.sh("ls -A").ok(), project.sh_bare("ls -A").ok());
    });
}

/// Promise: bare-files
#[test]
fn project_can_be_in_any_directory() {
    each_user(|user| {
        let project = project(user);
        for place in ["/tmp", "/var/tmp"] {
            let directory = std::path::Path::new(place).join(format!(
                "rf-place-{}-{}",
                std::process::id(),
                user.ids().0
            ));
            std::fs::create_dir(&directory).expect("temporary places are writable");
            user.chown(&directory);
            let ran = project.run([
                "-C",
                &directory.to_string_lossy(),
                "-c",
                "echo here > made && cat made",
            ]);
            let made = std::fs::read_to_string(directory.join("made"));
            std::fs::remove_dir_all(&directory).expect("it was made above");
            assert_eq!(ran.ok(), "here", "in {place}");
            assert_eq!(made.ok().as_deref(), Some("here\n"), "in {place}");
        }
    });
}

#[test]
fn setgid_directory_can_be_made() {
    // Root is refused: a setgid file of root would run with its group.
    let project = project(TestUser::User);
    assert_eq!(project.sh("mkdir d && chmod 2775 d && stat -c %a d").ok(), "2775");
    assert_eq!(project.sh("git init --quiet --bare --shared=group e && stat -c %a e").ok(), "2775");
}

/// The notify handler must close a file it opened before the command resumes: `execve` fails with
/// ETXTBSY while any process has the file open for writing.
#[test]
fn just_written_file_can_be_executed() {
    each_user(|user| {
        let project = project(user);
        // A file that is not a program fails with ENOEXEC, and the loop continues. Two busy
        // processes keep both CPUs from a notify handler that would close the file late.
        let code = r#"
def busy():
    pid, until = os.fork(), time.monotonic() + 60
    while pid == 0 and time.monotonic() < until: pass
    return pid or os._exit(0)
others = [busy(), busy()]
def executed(name):
    try: os.execv(name, [name])
    except OSError as error: return errno.errorcode[error.errno]
def listed(fd, mode):
    entry = lambda tag, bits: struct.pack('<HHI', tag, bits, 0xffffffff)
    allowed = struct.pack('<I', 2) + entry(1, mode >> 6 & 7) + entry(4, mode >> 3 & 7) + entry(32, mode & 7)
    try: os.setxattr(fd, 'system.posix_acl_access', allowed)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP: raise
        os.fchmod(fd, mode)
os.symlink('made', 'link')
ways = [('made', os.O_CREAT | os.O_WRONLY), ('made', os.O_RDWR), ('link', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)]
said, rounds, until = {}, 0, time.monotonic() + 5
while rounds < 2000 and time.monotonic() < until:
    for name, flags in ways:
        fd = os.open(name, flags, 0o755)
        if rounds == 0 and executed('./' + name) != 'ETXTBSY': print('the probe cannot fail')
        os.write(fd, b'no program'); os.close(fd)
        how = executed('./' + name)
        said[how] = said.get(how, 0) + 1
    # Made executable only later: by its fd, by its path, and by an ACL.
    for change in (os.fchmod, lambda fd, mode: os.chmod('plain', mode), listed):
        fd = os.open('plain', os.O_CREAT | os.O_WRONLY, 0o644)
        change(fd, 0o755); os.close(fd)
        how = executed('./plain')
        said[how] = said.get(how, 0) + 1
        os.unlink('plain')
    os.unlink('made'); rounds += 1
for pid in others: os.kill(pid, 9)
print(rounds > 10, sorted(said) == ['ENOEXEC'], said)
"#;
        let said = project.python(code).ok();
        assert!(said.starts_with("True True"), "{said} as {user}");
    });
}

#[test]
fn ringfence_detects_its_own_sandbox() {
    each_user(|user| {
        let project = project(user);
        let binary = project.binary().to_str().expect("text").to_owned();
        for words in
            [vec!["run", "--", "true"], vec!["shell"], vec!["session", "start"], vec!["mcp"]]
        {
            let ran = project.run([vec!["--read", &binary, "--", &binary], words.clone()].concat());
            ran.expect_status(125);
            assert!(
                ran.stderr_text().contains("already runs in a ringfence sandbox"),
                "{words:?}: {}",
                ran.stderr_text()
            );
        }
        // The environment variable alone has no effect.
        TestOutput::run(project.ringfence().env("RINGFENCE", "1").args(["run", "--", "true"]), b"")
            .ok();
    });
}
