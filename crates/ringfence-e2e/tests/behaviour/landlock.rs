//! The engine `landlock`: no namespaces. What it does not hold is a gap that the user accepts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::{SECRET, TestOutput, TestProject, TestUser, each_user};
use serde_json::Value;

use crate::absent_host::{NO_NAMESPACES, filtered};
use crate::project;

const FLAGS: &[&str] = &["--engine", "landlock", "--on-gap", "run", "--quiet"];

/// Runs a shell line with the engine.
fn sh(project: &TestProject, line: &str) -> TestOutput {
    project.run(FLAGS.iter().copied().chain(["-c", line]))
}

/// Checks that a line prints `wanted`, as root and as an ordinary user.
#[track_caller]
fn check(line: &str, wanted: &str) {
    each_user(|user| assert_eq!(sh(&project(user), line).text(), wanted, "{line}"));
}

/// Temporary directories of this engine.
fn scratch_directories() -> Vec<String> {
    let entries = fs::read_dir("/tmp").expect("every host has /tmp").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("ringfence-") && name.len() == 26).collect()
}

#[test]
fn gaps_refuse_the_command_unless_the_user_accepts_them() {
    each_user(|user| {
        let project = project(user);
        let ran = project.run(["--engine", "landlock", "--", "touch", "ran"]);
        let stderr = ran.expect_status(125).stderr_text();
        assert!(stderr.contains("gap: filesystem.metadata: Landlock does not"), "{stderr}");
        assert!(!stderr.contains("filesystem.names"), "{stderr}");
        assert!(!project.has("ran"));
        let shown =
            TestOutput::run(project.ringfence().args(["plan", "--engine", "landlock"]), b"");
        assert!(shown.text().contains("files by Landlock; no namespaces"), "{}", shown.text());
        sh(&project, "touch ran").ok();
        assert!(project.has("ran"));
    });
}

#[test]
fn everyday_work_in_the_project_succeeds() {
    check(
        "echo new > top && cat top && mkdir d && echo y > d/z && cp README d/ && mv d e && ls e && rm -r e top && echo over",
        "new\nREADME\nz\nover",
    );
    check(
        "echo x > f && chmod 600 f && touch -d 2020-01-01 f && stat -c '%a %y' f | cut -c1-14 && ln -s f g && cp -a g h && readlink h",
        "600 2020-01-01\nf",
    );
    check("echo one | cat /dev/stdin; bash -c 'cat <(echo two)'", "one\ntwo");
    check("mkfifo p && (echo three > p &) && cat p", "three");
    check("tar cf - README src | (mkdir t && tar xf - -C t) && cat t/README", "hello");
    check(
        "git init -q own && cd own && echo x > a && git add a && git commit -qm one && git log --format=%an%s && git status --short",
        "A Personone",
    );
    check("id -un >/dev/null && : > \"$TMPDIR/x\" && mktemp >/dev/null && echo over", "over");
    check("sleep 60 & kill $! && wait $!; echo $?", "143");
}

#[test]
fn secrets_stay_secret_under_every_name() {
    for line in [
        "cat .env .env.local x.pem sub/.env SECRET.txt sub/deeper/credentials.json",
        "cat ~/.ssh/id_rsa ~/.netrc ~/notes.txt ../other/main.rs /etc/shadow",
        "mv .env y; ln .env z; ln -s .env l; cp .env c; cat y z l c",
        "mv sub moved; cat moved/.env sub/.env; cat < sub/.env",
        "cd /; cat \"$OLDPWD/.env\"; cat proc/self/root/$OLDPWD/.env",
        "cat /proc/self/cwd/.env /proc/$$/cwd/.env; dd if=.env; head -c9 < .env",
        "python3 -c 'import os; d=os.open(\".env\", os.O_PATH); print(open(f\"/proc/self/fd/{d}\").read())'",
        "python3 -c 'import os; d=os.open(\"..\", os.O_PATH); print(os.read(os.open(\"other/main.rs\", 0, dir_fd=d), 99))'",
        "cat /proc/1/environ /proc/$PPID/environ /proc/self/net/unix",
    ] {
        each_user(|user| {
            let project = project(user);
            let ran = sh(&project, &format!("{line}; echo over"));
            assert!(!ran.text().contains(SECRET), "{line}: {}", ran.text());
            assert!(ran.text().contains("over"), "{line}: {}", ran.stderr_text());
        });
    }
}

#[test]
fn nothing_outside_the_rules_is_changed() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q . && mkdir -p .claude && echo '{}' > .mcp.json").ok();
        let before = (project.home_entries(), project.read(".git/config"));
        let line = "
            for f in ~/notes.txt ~/.bashrc ../other/main.rs ~/.ssh/id_rsa .git/config .git/hooks/x .mcp.json .claude/x .env; do
                echo x > $f; echo x >> $f; rm -f $f; chmod 777 $f; touch -d 2020-01-01 $f; mv $f t; ln -sf /x $f; mkdir $f; truncate -s0 $f
                ln $f t; setfattr -n user.x -v y $f
            done
            mv .git g; mv .git/hooks h; chmod 777 ~ ~/.ssh .git/hooks; rm -rf .git/hooks ~/.ssh; rmdir .claude
            python3 -c 'import os; os.open(\"..\", os.O_TMPFILE|os.O_RDWR)'
            python3 -c 'import os
for name in [\".git/config\", \".mcp.json\", \"..\", \".git/hooks\"]:
    fd = os.open(name, os.O_RDONLY)
    for act in [lambda: os.fchmod(fd, 0o777), lambda: os.utime(fd, (1, 1)), lambda: os.setxattr(fd, \"user.x\", b\"y\")]:
        try: act(); print(\"changed\", name)
        except OSError: pass' > changes";
        sh(&project, &format!("({line}) >/dev/null 2>&1; echo over")).ok();
        assert_eq!(project.read("changes").as_deref(), Some(""));
        assert_eq!(project.read(".git/config"), before.1);
        let after = project.home_entries();
        let changed: Vec<_> =
            before.0.iter().filter(|(path, is)| after.get(*path) != Some(is)).collect();
        assert!(changed.is_empty(), "{changed:?}");
        let is_own = |path: &&std::path::PathBuf| path.ends_with("changes");
        let new = after.keys().filter(|path| !before.0.contains_key(*path) && !is_own(path));
        let new: Vec<_> = new.collect();
        assert!(new.is_empty(), "{new:?}");
    });
}

#[test]
fn denials_of_opens_are_exact() {
    each_user(|user| {
        let project = project(user);
        let words = FLAGS.iter().copied().chain([
            "--json",
            "-c",
            "cat .env ~/notes.txt; echo x > .git; mkdir .env.d",
        ]);
        let json: Value = serde_json::from_str(&project.run(words).text()).expect("one object");
        let denials = json["denials"].as_array().expect("a list");
        let found = |name: &str, operation: &str| {
            denials.iter().any(|denial| {
                denial["target"].as_str().is_some_and(|target| target.ends_with(name))
                    && denial["operation"] == operation
                    && denial["evidence"] == "kernel"
            })
        };
        assert!(found("app/.env", "read") && found("notes.txt", "read"), "{denials:?}");
        assert!(found(".env.d", "create"), "{denials:?}");
    });
}

#[test]
fn no_socket_reaches_the_host() {
    check(
        "python3 - <<'X'
import socket
for family, kind in [(1, 1), (1, 2), (2, 1), (2, 2), (10, 1), (16, 3), (17, 3), (40, 1)]:
    try:
        socket.socket(family, kind)
        print('made', family, kind)
    except OSError:
        pass
try:
    socket.socketpair(1, 2)
    print('made a pair')
except OSError:
    pass
a, b = socket.socketpair(1, 1)
a.send(b'over')
print(b.recv(9).decode())
X",
        "over",
    );
}

#[test]
fn processes_of_the_host_are_out_of_reach() {
    each_user(|user| {
        let project = project(user);
        let pid = std::process::id();
        let line = format!(
            "kill -0 {pid} 2>/dev/null && echo signal; kill -0 $PPID 2>/dev/null && echo parent; cat /proc/{pid}/environ /proc/$PPID/cmdline 2>/dev/null; renice 5 {pid} >/dev/null 2>&1 && echo nice; ipcs -q >/dev/null 2>&1; echo over"
        );
        assert_eq!(sh(&project, &line).text(), "over");
    });
}

/// As root the handler could: it is not confined itself.
#[test]
fn devices_of_the_host_stay_as_they_are() {
    each_user(|user| {
        let look = || fs::metadata("/dev/full").map(|found| (found.mode(), found.mtime())).ok();
        let before = look();
        let line = "chmod 600 /dev/full; touch -d 2020-01-01 /dev/full; ln /dev/full f; mv /dev/full f; rm -f /dev/full
            python3 -c 'import os; os.fchmod(os.open(\"/dev/full\", os.O_RDWR), 0o600)'
            chmod 600 /proc/self/fd/3 3<>/dev/full; mknod d c 1 7; echo over";
        assert_eq!(sh(&project(user), line).text(), "over");
        assert_eq!(look(), before);
    });
}

/// A thread exchanges a directory while another uses it.
const RACE: &str = r#"
import os, threading, time
os.makedirs('good', exist_ok=True)
os.mkfifo('good/main.rs')
good, bad, slot = os.open('good', os.O_PATH), os.open('../other', os.O_PATH), 200
os.dup2(good, slot)
is_over = False
def flip():
    while not is_over:
        os.dup2(bad, slot)
        os.dup2(good, slot)
threading.Thread(target=flip).start()
def attempt(act):
    try: return act()
    except OSError: return None
end = time.time() + 1.5
while time.time() < end:
    for flags in os.O_RDONLY | os.O_NONBLOCK, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK:
        fd = attempt(lambda: os.open('main.rs' if flags & 3 == 0 else 'made', flags, 0o644, dir_fd=slot))
        if fd is not None:
            if flags & 3 == 0: print(attempt(lambda: os.read(fd, 99)) or '', end='')
            os.close(fd)
    attempt(lambda: os.mkdir('directory', dir_fd=slot))
    attempt(lambda: os.rename('main.rs', 'moved', src_dir_fd=slot, dst_dir_fd=slot))
    attempt(lambda: os.rename('moved', 'main.rs', src_dir_fd=slot, dst_dir_fd=slot))
    attempt(lambda: os.chmod('main.rs', 0o777, dir_fd=slot))
is_over = True
print('over')
"#;

#[test]
fn directory_that_is_exchanged_meanwhile_leads_nowhere() {
    each_user(|user| {
        let project = project(user);
        project.write("race.py", RACE);
        let other = || {
            let all = project.home_entries().into_iter();
            all.filter(|(path, _)| path.starts_with("code/other")).collect::<Vec<_>>()
        };
        let before = other();
        let ran = sh(&project, "python3 race.py");
        assert_eq!(ran.text(), "over", "{}", ran.stderr_text());
        assert_eq!(other(), before);
    });
}

/// An editor saves by renaming another file onto a secret; a command still has the old one.
#[test]
fn replaced_secret_stays_closed() {
    each_user(|user| {
        let project = project(user);
        let line = "python3 -c '
import os, time
fd = os.open(\".env\", os.O_PATH)
link = os.open(\"sub/.env\", os.O_PATH)
open(\"ready\", \"w\").close()
while not os.path.exists(\"go\"): time.sleep(0.01)
for name in fd, link:
    try: print(open(f\"/proc/self/fd/{name}\").read())
    except OSError: pass
print(\"over\")'";
        thread::scope(|scope| {
            let ran = scope.spawn(|| sh(&project, line));
            let begun = Instant::now();
            while !project.has("ready") && begun.elapsed() < Duration::from_secs(30) {
                thread::sleep(Duration::from_millis(10));
            }
            project.sh_bare("ln sub/.env ../kept; for f in .env sub/.env; do echo y > n; mv n $f; done; touch go").ok();
            let ran = ran.join().expect("it does not panic");
            assert_eq!(ran.text(), "over", "{}", ran.stderr_text());
        });
    });
}

/// A rule about a path does not move with the directory above it.
#[test]
fn rules_below_a_renamed_directory_hold() {
    each_user(|user| {
        let project = project(user);
        project.sh_bare("mkdir -p vendor/in open && echo x > vendor/in/f && echo x > open/f").ok();
        let closed = project.at("vendor/in").display().to_string();
        let line = "mv vendor v2; echo y > v2/in/f; mv open o2 && echo y > o2/f
            mkdir late && (sleep 0.3; :) && mv late $TMPDIR/late && ls -d late 2>/dev/null; echo over";
        let words = FLAGS.iter().copied().chain(["--read", &closed, "-c", line]);
        assert_eq!(project.run(words).text(), "over");
        assert_eq!(project.read("vendor/in/f").as_deref(), Some("x\n"));
        assert_eq!(project.read("o2/f").as_deref(), Some("y\n"));
    });
}

/// The file of a name that the handler of a session with mounts answers.
#[test]
fn names_of_the_handler_are_ordinary_here() {
    check("cat /run/offered/1 2>/dev/null; echo x > /run/offered/2; echo over", "over");
    check(
        "getfattr -d README 2>/dev/null; python3 -c 'import os; os.listxattr(\"README\")' 2>/dev/null || echo over",
        "over",
    );
}

/// The first thread of a process may end before the others, and the handler opens a pipe in a child.
#[test]
fn processes_in_unusual_states_end_with_the_command() {
    each_user(|user| {
        let project = project(user);
        let line = "mkfifo pipe; cat pipe & python3 -c '
import ctypes, os, threading, time
if os.fork() == 0:
    os.setsid()
    threading.Thread(target=time.sleep, args=[30]).start()
    ctypes.CDLL(None).syscall(60, 0)' & sleep 0.7; echo over";
        let begun = Instant::now();
        assert_eq!(sh(&project, line).text(), "over");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let root = project.root();
        let is_here = |entry: &fs::DirEntry| {
            fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == root)
        };
        let entries = || fs::read_dir("/proc").expect("every host has /proc").flatten();
        let left: Vec<_> = entries().filter(is_here).map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn open_files_of_host_processes_are_not_reached() {
    each_user(|user| {
        let project = project(user);
        let line = "echo xyzzy-never-to-be-seen > ../gone; exec 5< ../gone; rm ../gone; echo $$ > pid; exec sleep 60";
        let mut outside = project.command("/bin/sh");
        let mut outside = outside.args(["-c", line]).spawn().expect("every host has a shell");
        let begun = Instant::now();
        while project.read("pid").is_none_or(|pid| !pid.ends_with('\n'))
            && begun.elapsed() < Duration::from_secs(30)
        {
            thread::sleep(Duration::from_millis(10));
        }
        let pid = outside.id();
        let control = project.sh_bare(&format!("cat /proc/{pid}/fd/5")).text();
        let line = format!(
            "cat /proc/{pid}/fd/5 /proc/{pid}/fd/0 /proc/{pid}/environ < /dev/null; echo over"
        );
        let ran = sh(&project, &line);
        outside.kill().expect("it runs");
        outside.wait().expect("it was started here");
        assert_eq!(control, SECRET);
        assert_eq!(ran.text(), "over", "{}", ran.stderr_text());
    });
}

/// Also after the death of the program that started it.
#[test]
fn nothing_is_left_behind() {
    each_user(|user| {
        let project = project(user);
        sh(
            &project,
            "setsid sh -c 'sleep 1; echo late > late' & echo x > $TMPDIR/x; echo $TMPDIR > where",
        )
        .ok();
        let scratch = project.read("where").expect("it was written");
        assert!(!Path::new(scratch.trim()).exists(), "{scratch}");
        let mut command = project.ringfence();
        command.arg("run").args(FLAGS).args([
            "-c",
            "echo $TMPDIR > where2; setsid sh -c 'while :; do date +%N > beat; sleep 0.05; done' & wait",
        ]);
        let mut child = command.spawn().expect("the binary exists");
        let begun = Instant::now();
        while !project.has("beat") && begun.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(20));
        }
        child.kill().expect("it runs");
        child.wait().expect("it was started here");
        let scratch = project.read("where2").expect("it was written");
        let is_gone = || !Path::new(scratch.trim()).exists();
        while !is_gone() && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(20));
        }
        assert!(is_gone(), "{scratch}: {:?}", scratch_directories());
        let last = project.read("beat");
        thread::sleep(Duration::from_millis(400));
        assert_eq!(project.read("beat"), last, "a process lives on");
        assert!(!project.has("late"));
    });
}

/// A process that replaces itself is in no list of processes for long.
#[test]
fn process_that_replaces_itself_ends_with_the_command() {
    each_user(|user| {
        let project = project(user);
        let marker = format!("chain-of-{}-{user:?}", std::process::id());
        // It ends by itself, for an engine that does not end it.
        let line = format!(
            "perl -e 'my $end = time + 20; while (time < $end) {{ exit if fork }}' {marker} & sleep 0.5; echo over"
        );
        assert_eq!(sh(&project, &line).text(), "over");
        let lives = || {
            let entries = fs::read_dir("/proc").expect("every host has /proc").flatten();
            entries.into_iter().any(|entry| {
                let text = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(&marker)
            })
        };
        let seen = (0..200).filter(|_| lives()).count();
        assert_eq!(seen, 0, "of 200 looks");
    });
}

/// Promise: unconfinable-host
#[test]
fn auto_uses_it_only_where_namespaces_are_forbidden_and_gaps_accepted() {
    each_user(|user| {
        let project = project(user);
        let line = "cat README .env; touch ran";
        let ran = filtered(NO_NAMESPACES, &project, &["run", "-c", line]);
        assert!(
            ran.expect_status(125).stderr_text().contains("--on-gap run"),
            "{}",
            ran.stderr_text()
        );
        assert!(!project.has("ran"));
        let ran = filtered(NO_NAMESPACES, &project, &["run", "--on-gap", "run", "-c", line]);
        assert_eq!(ran.text(), "hello");
        assert!(project.has("ran"), "{}", ran.stderr_text());
        let json =
            filtered(NO_NAMESPACES, &project, &["run", "--on-gap", "run", "--json", "--", "true"]);
        assert!(json.text().contains("restrict files by Landlock"), "{}", json.text());
        // With namespaces, `--on-gap run` changes nothing.
        let json = project.run(["--on-gap", "run", "--json", "--", "true"]);
        assert!(json.text().contains("isolate"), "{}", json.text());
    });
}

#[test]
fn engine_is_an_option_of_the_provider() {
    each_user(|user: TestUser| {
        let project = project(user);
        let refused = project.run(["--provider", "local:engine=x", "--", "true"]);
        let wanted = "the option `engine` of the sandbox provider `local` cannot be `x`; known values: auto, namespaces, landlock";
        assert!(
            refused.expect_status(125).stderr_text().contains(wanted),
            "{}",
            refused.stderr_text()
        );
        let ran = project.run([
            "--provider",
            "local:engine=landlock",
            "--on-gap",
            "run",
            "--json",
            "--",
            "true",
        ]);
        assert!(ran.text().contains("restrict files by Landlock"), "{}", ran.text());
        let policy = "version = 1\n[sandbox]\nprovider = \"local:engine=landlock\"\n";
        project.write_at(&project.home().join(".config/ringfence/policy.toml"), policy);
        project.run(["--", "true"]).expect_status(125);
        project.run(["--engine", "namespaces", "--", "true"]).ok();
    });
}
