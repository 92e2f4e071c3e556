//! A command over a limit ends alone, and the result names the limit.

use std::process::Command;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestOutput, TestProject, TestUser, each_user};
use serde_json::{Value, json};

use crate::groups::ungrouped;
use crate::project;
use crate::sessions::TestSession;

/// The outcome of a command that must end soon.
fn limited(project: &TestProject, limits: &[&str], words: &[&str]) -> Value {
    limited_by(project.ringfence(), limits, words)
}

/// The same for a given `ringfence` command.
pub(crate) fn limited_by(mut ringfence: Command, limits: &[&str], words: &[&str]) -> Value {
    let begun = Instant::now();
    let limits = limits.iter().map(|limit| format!("--limit={limit}"));
    let ran = TestOutput::run(ringfence.args(["run", "--json"]).args(limits).args(words), b"");
    let object = serde_json::from_slice(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", ran.stderr_text()));
    assert!(begun.elapsed() < Duration::from_secs(60), "it was ended");
    object
}

/// The limits that were exceeded: name, configured and observed value.
pub(crate) fn breaches(outcome: &Value) -> Vec<(String, u64, u64)> {
    let one = |breach: &Value| {
        let number = |key: &str| breach[key].as_u64().expect("a number");
        (
            breach["limit"].as_str().expect("a word").to_owned(),
            number("configured"),
            number("observed"),
        )
    };
    outcome["breaches"].as_array().expect("there is a list").iter().map(one).collect()
}

/// Checks that this limit, and no other, ended the command.
#[track_caller]
pub(crate) fn ends_by(outcome: &Value, limit: &str, configured: u64) {
    let breaches = breaches(outcome);
    let [(name, most, observed)] = breaches.as_slice() else { panic!("{outcome}") };
    assert_eq!(
        (name.as_str(), *most, &outcome["exitCode"]),
        (limit, configured, &json!(137)),
        "{outcome}"
    );
    assert!(*observed > configured, "{outcome}");
}

pub(crate) const MIB: u64 = 1 << 20;

/// Promise: limits
#[test]
fn each_limit_ends_a_command() {
    each_user(|user| {
        let project = project(user);
        each_ends(&project, &|| project.ringfence());
    });
}

/// Checks each limit with the given `ringfence` command.
pub(crate) fn each_ends(project: &TestProject, ringfence: &dyn Fn() -> Command) {
    let limited = |limits: &[&str], words: &[&str]| limited_by(ringfence(), limits, words);
    let bomb = limited(&["processes=40"], &["--", "bash", "-c", ":(){ :|:& };:; sleep 100"]);
    ends_by(&bomb, "processes", 40);
    let hog = limited(
        &["memory=200MiB"],
        &["--", "python3", "-c", "x = bytearray(10 << 30); print('had it')"],
    );
    ends_by(&hog, "memory", 200 * MIB);
    assert_eq!(hog["stdout"], "");
    let flood = limited(&["output=1MB"], &["--", "yes"]);
    ends_by(&flood, "output", 1_000_000);
    let busy =
        limited(&["cpu=500ms"], &["-c", "for i in 1 2 3; do (while :; do :; done) & done; wait"]);
    ends_by(&busy, "cpu", 500);
    let filler = limited(&["disk=20MiB"], &["-c", "cat /dev/zero > big"]);
    ends_by(&filler, "disk", 20 * MIB);
    std::fs::remove_file(project.at("big")).expect("it can be removed");
    let slow = limited(&["wall=300ms"], &["--", "sleep", "100"]);
    assert_eq!(
        (&slow["exitCode"], &slow["timedOut"], breaches(&slow)[0].0.as_str()),
        (&json!(124), &json!(true), "wall")
    );
}

/// Promise: limits
#[test]
fn every_kind_of_memory_counts() {
    const WAYS: &[&str] = &[
        // Without a cgroup this kind is refused, and programs fall back to other memory.
        "import os\ntry: f = os.memfd_create('x')\nexcept OSError as e:\n    assert e.errno == 38; kept = []\n    \
             while True: kept.append(b'x' * (1 << 20))\nwhile True: os.write(f, bytes(1 << 20))",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 16 << 20)); kept[-1].write(b'x' * (16 << 20))",
        "import ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\nwhile True:\n    \
             at = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0); ctypes.memset(at, 1, 16 << 20); libc.shmdt(ctypes.c_void_p(at))",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0: kept = b'x' * (50 << 20); break\ntime.sleep(100)",
    ];
    const PAGE_TABLES: &str = "import mmap, time\n\
         m = mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)\n\
         m.madvise(15)\nfor at in range(0, 1 << 40, 1 << 21): m[at]\ntime.sleep(100)";
    each_user(|user| {
        let project = project(user);
        // Memory shared by forked copies counts once.
        let code = "import os, time\nkept = b'x' * (90 << 20)\nfor _ in range(8):\n    if os.fork() == 0: time.sleep(0.3); os._exit(0)\ntime.sleep(0.5); print('fine')";
        for ringfence in [TestProject::ringfence, ungrouped] {
            for code in WAYS {
                let outcome = limited_by(
                    ringfence(&project),
                    &["memory=150MiB"],
                    &["--", "python3", "-c", code],
                );
                ends_by(&outcome, "memory", 150 * MIB);
            }
            assert_eq!(
                limited_by(ringfence(&project), &["memory=150MiB"], &["--", "python3", "-c", code])
                    ["stdout"],
                "fine\n"
            );
        }
        // In a cgroup the kernel enforces the limit and kills the program itself.
        ends_by(
            &limited_by(
                ungrouped(&project),
                &["memory=150MiB"],
                &["--", "python3", "-c", PAGE_TABLES],
            ),
            "memory",
            150 * MIB,
        );
        // Where tmpfs is not counted as memory, its size is limited.
        let line = "head -c 30000000 /dev/zero > /tmp/x; wc -c < /tmp/x";
        let scratch = limited_by(ungrouped(&project), &["memory=20MiB"], &["-c", line]);
        assert_eq!(scratch["stdout"], format!("{}\n", 20 * MIB), "{scratch}");
    });
}

/// Promise: socket-memory
#[test]
fn memory_in_sockets_counts_also_without_a_cgroup() {
    // Both ends are open, or only those with the queued data.
    const FILLED: &str = "import socket, sys, time\nkept = []\nfor _ in range(450):\n    \
         one, other = socket.socketpair()\n    for end in (one, other) if sys.argv[1] == 'open' else (one,):\n        end.setblocking(False)\n        \
         try:\n            while True: end.send(bytes(4096))\n        except BlockingIOError: pass\n    \
         kept.append((one, other) if sys.argv[1] == 'open' else other)\ntime.sleep(100)";
    // Each carrier holds sockets that no process has open.
    const IN_FLIGHT: &str = "import array, socket, time\nkept = []\nfor _ in range(12):\n    carrier = socket.socketpair(); kept.append(carrier)\n    \
         for _ in range(40):\n        one, other = socket.socketpair(); one.setblocking(False)\n        \
         try:\n            while True: one.send(bytes(4096))\n        except BlockingIOError: pass\n        \
         carrier[0].sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [one.fileno(), other.fileno()]))])\n        \
         one.close(); other.close()\ntime.sleep(100)";
    each_user(|user| {
        let project = project(user);
        for words in [&["-c", FILLED, "open"][..], &["-c", FILLED, "orphaned"], &["-c", IN_FLIGHT]]
        {
            let words = [&["--", "python3"], words].concat();
            ends_by(
                &limited_by(ungrouped(&project), &["memory=60MiB", "wall=30s"], &words),
                "memory",
                60 * MIB,
            );
        }
        let few = "import socket\none, other = socket.socketpair(); one.send(b'x' * 50000); print(len(other.recv(100000)))";
        assert_eq!(
            limited_by(ungrouped(&project), &["memory=60MiB"], &["--", "python3", "-c", few])["stdout"],
            "50000\n"
        );
    });
}

#[test]
fn memory_in_message_queues_counts_also_without_a_cgroup() {
    const FILLED: &str = "import ctypes, time\nlibc, text = ctypes.CDLL(None), b'\\1' + bytes(8199)\nfor count in range(7000):\n    \
         queue = libc.msgget(0, 0o1600)\n    if queue < 0: print(count); raise SystemExit\n    \
         for _ in range(2): libc.msgsnd(queue, text, 8192, 0o4000)\ntime.sleep(100)";
    each_user(|user| {
        let project = project(user);
        let outcome = limited_by(
            ungrouped(&project),
            &["memory=60MiB", "wall=30s"],
            &["--", "python3", "-c", FILLED],
        );
        // Root can lower the number of queues.
        if user == TestUser::User || outcome["stdout"] != "32\n" {
            ends_by(&outcome, "memory", 60 * MIB);
        }
    });
}

/// Promise: process-limit
#[test]
fn processes_in_sequence_never_reach_their_limit() {
    each_user(|user| {
        let project = project(user);
        // More than the sandbox has pids.
        let line = "for i in $(seq 900); do /bin/true || exit 3; done; echo a | cat | wc -c";
        assert_eq!(project.run(["--limit=processes=32", "-c", line]).ok(), "2");
    });
}

/// Promise: process-limit
#[test]
fn process_limit_is_exceeded_by_few_at_most() {
    // Each process writes a byte when it starts.
    const BURST: &str = "import os, time\nf = os.open('started', os.O_WRONLY | os.O_CREAT | os.O_APPEND)\nfor _ in range(200):\n    \
         try:\n        if os.fork() == 0: os.write(f, b'.'); time.sleep(100)\n    except OSError: pass\ntime.sleep(100)";
    const TRIES: usize = 5;
    each_user(|user| {
        let project = project(user);
        let started = |_| {
            ends_by(
                &limited(&project, &["processes=20"], &["--", "python3", "-c", BURST]),
                "processes",
                20,
            );
            let started = project.read("started").unwrap_or_default().len();
            let _ = std::fs::remove_file(project.at("started"));
            started
        };
        let most = (0..TRIES).map(started).max();
        // Root is refused only when all pids are in use.
        let bound = if user == TestUser::Root { 55 } else { 26 };
        assert!(most <= Some(bound), "{most:?} as {user}");
    });
}

/// Promise: disk-limit
#[test]
fn every_way_to_take_disk_space_counts() {
    const TAKE: &str = "import ctypes, mmap, os, sys\nf = os.open('big', os.O_RDWR | os.O_CREAT | os.O_TRUNC); n = 3 << 30; way = sys.argv[1]\n\
        libc = ctypes.CDLL(None, use_errno=True); r, w = os.pipe()\n\
        if way == 'posix_fallocate': os.posix_fallocate(f, 0, n)\n\
        if way == 'fallocate': print(libc.fallocate(f, 0, ctypes.c_long(0), ctypes.c_long(n)), ctypes.get_errno())\n\
        if way == 'keep-size': print(libc.fallocate(f, 1, ctypes.c_long(0), ctypes.c_long(n)), ctypes.get_errno())\n\
        if way == 'sparse': os.ftruncate(f, n); print(os.fstat(f).st_blocks)\n\
        if way == 'small': os.posix_fallocate(f, 0, 1 << 20); print(os.fstat(f).st_size)\n\
        if way == 'mmap':\n    os.ftruncate(f, n); m = mmap.mmap(f, n)\n    for at in range(0, n, 4096): m[at] = 1\n\
        while way == 'splice': os.write(w, bytes(65536)); os.splice(r, f, 65536)\n\
        while way == 'sendfile': s = os.open('source', 0); os.sendfile(f, s, 0, 1 << 20); os.close(s)\n";
    each_user(|user| {
        let project = project(user);
        project.write("source", "x".repeat(MIB as usize));
        let take =
            |way: &str| limited(&project, &["disk=20MiB"], &["--", "python3", "-c", TAKE, way]);
        for way in ["posix_fallocate", "mmap", "splice", "sendfile"] {
            ends_by(&take(way), "disk", 20 * MIB);
            assert!(allocated(&project, "big") < 1 << 30, "{way}");
        }
        for (way, says) in [
            ("fallocate", "-1 95\n"),
            ("keep-size", "-1 95\n"),
            ("sparse", "0\n"),
            ("small", "1048576\n"),
        ] {
            let outcome = take(way);
            assert_eq!(
                (&outcome["stdout"], breaches(&outcome)),
                (&json!(says), vec![]),
                "{way}: {outcome}"
            );
        }
    });
}

/// Promise: disk-limit
#[test]
fn names_count_as_disk_space() {
    const LINKS: &str = "import os\nopen('x', 'w').close(); os.mkdir('d')\nfor i in range(200000): os.link('x', 'd/%d' % i)";
    each_user(|user| {
        let project = project(user);
        ends_by(
            &limited(&project, &["disk=4MiB"], &["--", "python3", "-c", LINKS]),
            "disk",
            4 * MIB,
        );
        assert!(std::fs::read_dir(project.at("d")).expect("it is there").count() < 50_000);
    });
}

#[test]
fn files_made_by_the_notify_handler_count_as_disk_space() {
    const FILES: &str = "import os, sys\nos.mkdir('d'); flags = os.O_CREAT | os.O_WRONLY | eval(sys.argv[1])\n\
        for i in range(60000): os.close(os.open('d/%d' % i, flags))";
    // Each name of a file outside gets a copy.
    const COPIES: &str = "import os, time\nfor i in range(16):\n    try: os.close(os.open('copy%d' % i, os.O_WRONLY))\n    \
        except PermissionError: pass\ntime.sleep(50)";
    // Opening a lock file again makes no new file.
    const LOCKS: &str = "import os\nfor i in range(3000): os.close(os.open('lock%d' % (i % 2), os.O_CREAT | os.O_RDWR))\nprint('done')";
    each_user(|user| {
        let project = project(user);
        for flags in ["0", "os.O_EXCL", "os.O_TRUNC"] {
            let outcome = limited(&project, &["disk=1MiB"], &["--", "python3", "-c", FILES, flags]);
            ends_by(&outcome, "disk", MIB);
            assert!(
                std::fs::read_dir(project.at("d")).expect("it is there").count() < 30_000,
                "{flags}"
            );
            std::fs::remove_dir_all(project.at("d")).expect("it can be removed");
        }
        let store = project.home().join("store");
        project.write_at(&store, vec![b'x'; 8 * MIB as usize]);
        for i in 0..16 {
            std::fs::hard_link(&store, project.at(format!("copy{i}"))).expect("one file system");
        }
        ends_by(
            &limited(&project, &["disk=20MiB"], &["--", "python3", "-c", COPIES]),
            "disk",
            20 * MIB,
        );
        let is_copied = |i: &usize| {
            std::os::unix::fs::MetadataExt::nlink(
                &std::fs::metadata(project.at(format!("copy{i}"))).expect("it stays"),
            ) == 1
        };
        assert!((0..16).filter(is_copied).count() <= 3);
        assert_eq!(
            limited(&project, &["disk=1MiB"], &["--", "python3", "-c", LOCKS])["stdout"],
            "done\n"
        );
    });
}

/// Bytes that a file takes on its disk.
fn allocated(project: &TestProject, name: &str) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(
        &std::fs::metadata(project.at(name)).expect("it is there"),
    ) * 512
}

/// Promise: time-limit
#[test]
fn command_is_killed_at_its_time_limit() {
    each_user(|user| {
        let project = project(user);
        let took = |outcome: &Value| outcome["durationMs"].as_u64().expect("a number");
        let deaf = limited(
            &project,
            &["wall=2s"],
            &["-c", "trap '' INT TERM; while :; do sleep 0.1; done"],
        );
        assert_eq!((&deaf["exitCode"], &deaf["timedOut"]), (&json!(124), &json!(true)), "{deaf}");
        // It was two seconds later before.
        assert!((1900..3500).contains(&took(&deaf)), "{deaf}");
        let polite = limited(
            &project,
            &["wall=5s"],
            &["-c", "trap 'echo bye; exit 0' TERM; while :; do sleep 0.01; done"],
        );
        assert_eq!(
            (&polite["stdout"], &polite["timedOut"]),
            (&json!("bye\n"), &json!(true)),
            "{polite}"
        );
        assert!((4400..5000).contains(&took(&polite)), "{polite}");
        let session = TestSession::start_with(user, &[]);
        let begun = Instant::now();
        session
            .words(&[
                "exec",
                &session.id,
                "--timeout",
                "2s",
                "-c",
                "trap '' INT TERM; while :; do sleep 0.1; done",
            ])
            .expect_status(124);
        // Before, each of three signals came two seconds after the previous one.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    });
}

/// Promise: limits
#[test]
fn writes_of_every_process_count() {
    each_user(|user| {
        let project = project(user);
        let orphans =
            "for i in $(seq 100); do (head -c 2000000 /dev/zero > f$i &); done; sleep 100";
        ends_by(&limited(&project, &["disk=20MiB"], &["-c", orphans]), "disk", 20 * MIB);
        let children = "for i in $(seq 100); do head -c 2000000 /dev/zero > f$i; done; sleep 100";
        ends_by(&limited(&project, &["disk=20MiB"], &["-c", children]), "disk", 20 * MIB);
    });
}

/// Promise: limits
#[test]
fn open_file_and_file_size_limits_hold() {
    each_user(|user| {
        let project = project(user);
        let code = "import time\nkept = []\ntry:\n    while True: kept.append(open('/dev/null'))\nexcept OSError as e: print(e.errno)\ntime.sleep(0.3)";
        let many = limited(&project, &["open-files=32"], &["--", "python3", "-c", code]);
        assert_eq!(
            (&many["stdout"], breaches(&many)),
            (&json!("24\n"), vec![("open-files".into(), 32, 32)]),
            "{many}"
        );
        let large = limited(
            &project,
            &["file-size=1000000"],
            &["--", "dd", "if=/dev/zero", "of=f", "bs=4096", "count=1000", "status=none"],
        );
        assert_eq!(breaches(&large), [("file-size".into(), 1_000_000, 1_000_000)], "{large}");
        assert_eq!(std::fs::metadata(project.at("f")).expect("it is there").len(), 1_000_000);
        // A command cannot raise its own limits.
        assert_eq!(
            project
                .run(["--limit=open-files=32", "-c", "ulimit -n 64 2>/dev/null; ulimit -n"])
                .ok(),
            "32"
        );
    });
}

/// Promise: limits
#[test]
fn other_sandboxes_keep_running() {
    each_user(|user| {
        let (one, other) = (project(user), project(user));
        let bomb = std::thread::spawn(move || {
            limited(&one, &["processes=50"], &["--", "bash", "-c", ":(){ :|:& };:; sleep 100"])
        });
        assert_eq!(
            other
                .run(["--limit=processes=50", "-c", "for i in 1 2 3 4 5; do (echo $i); done"])
                .ok(),
            "1\n2\n3\n4\n5"
        );
        ends_by(&bomb.join().expect("it ended"), "processes", 50);
    });
}

/// Promise: limits
#[test]
fn session_reports_the_limit_and_runs_the_next_command() {
    each_user(|user| {
        let session = TestSession::start_with(
            user,
            &["--limit=memory=150MiB", "--limit=output=100000", "--limit=cpu=1s"],
        );
        let report = |line: &str| session.words(&["exec", &session.id, "--json", "-c", line]);
        let outcome =
            |line: &str| serde_json::from_slice::<Value>(&report(line).stdout).expect("an object");
        session.exec("kept=here").ok();
        let flood = outcome("yes");
        assert_eq!(breaches(&flood)[0].0, "output", "{flood}");
        assert_eq!(session.exec("echo $kept").ok(), "here");
        for _ in 0..3 {
            session.exec("i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done").ok();
        }
        let hog = outcome("python3 -c 'x = bytearray(10 << 30)'");
        ends_by(&hog, "memory", 150 * MIB);
        assert_eq!(session.exec("echo next $kept").ok(), "next");
        let busy = outcome("while :; do :; done");
        assert_eq!(breaches(&busy)[0].0, "cpu", "{busy}");
        assert_eq!(session.exec("echo after").ok(), "after");
    });
}

#[test]
fn limit_values_are_shown_written_and_parsed_exactly() {
    each_user(|user: TestUser| {
        let project = project(user);
        project.write(
            ".ringfence/policy.toml",
            "version = 1\n[limits]\nmemory = \"64MiB\"\nprocesses = 100\n",
        );
        let plan = TestOutput::run(project.ringfence().arg("plan"), b"").ok();
        assert!(
            plan.contains("limit     memory 64 MiB, processes 100")
                || plan.contains("memory 64 MiB, processes 100"),
            "{plan}"
        );
        let ran = project.run(["--", "python3", "-c", "x = bytearray(1 << 30)"]);
        assert_eq!(ran.status, 137);
        assert!(
            ran.stderr_text().contains("the limit `memory` of 64 MiB was reached: "),
            "{}",
            ran.stderr_text()
        );
        let log = TestOutput::run(project.ringfence().args(["log", "--json"]), b"").ok();
        let last: Value =
            serde_json::from_str(log.lines().last().expect("a record")).expect("an object");
        assert_eq!(last["breaches"][0]["limit"], "memory", "{last}");
        for (wrong, says) in [
            ("memoory=1GiB", "unknown limit `memoory`"),
            ("memory", "`` is not an amount for `--limit memory`"),
            ("memory=5m", "`5m` is not an amount for `--limit memory`"),
            ("processes=0", "`0` is not an amount for `--limit processes`"),
            ("cpu=1GiB", "use a duration"),
        ] {
            let ran = project.run([&format!("--limit={wrong}"), "--", "touch", "ran"]);
            ran.expect_status(125);
            assert!(
                ran.stderr_text().contains(says) && !project.has("ran"),
                "{wrong}: {}",
                ran.stderr_text()
            );
        }
    });
}
