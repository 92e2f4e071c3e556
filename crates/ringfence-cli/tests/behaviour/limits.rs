//! A command uses no more than it may, is told by which limit it ended, and ends alone.

use std::process::Command;
use std::time::{Duration, Instant};

use ringfence_testkit::{As, Project, Ran, each_user};
use serde_json::{Value, json};

use crate::groups::ungrouped;
use crate::project;
use crate::sessions::Session;

/// The outcome of a command that must not take long.
fn limited(project: &Project, limits: &[&str], words: &[&str]) -> Value {
    limited_by(project.ringfence(), limits, words)
}

/// The same of a `ringfence` that was started in some way.
pub(crate) fn limited_by(mut ringfence: Command, limits: &[&str], words: &[&str]) -> Value {
    let begun = Instant::now();
    let limits = limits.iter().map(|limit| format!("--limit={limit}"));
    let ran = Ran::of(ringfence.args(["run", "--json"]).args(limits).args(words), b"");
    let object = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {}", ran.talk()));
    assert!(begun.elapsed() < Duration::from_secs(60), "it was ended");
    object
}

/// Which limits, with what was observed.
pub(crate) fn breaches(outcome: &Value) -> Vec<(String, u64, u64)> {
    let one = |breach: &Value| {
        let number = |key: &str| breach[key].as_u64().expect("a number");
        (breach["limit"].as_str().expect("a word").to_owned(), number("configured"), number("observed"))
    };
    outcome["breaches"].as_array().expect("there is a list").iter().map(one).collect()
}

/// That one limit, and no other, ended it.
#[track_caller]
pub(crate) fn ends_by(outcome: &Value, limit: &str, configured: u64) {
    let breaches = breaches(outcome);
    let [(name, most, observed)] = breaches.as_slice() else { panic!("{outcome}") };
    assert_eq!((name.as_str(), *most, &outcome["exitCode"]), (limit, configured, &json!(137)), "{outcome}");
    assert!(*observed > configured, "{outcome}");
}

pub(crate) const MIB: u64 = 1 << 20;

#[test]
fn each_ends_what_goes_beyond_it() {
    each_user(|user| {
        let project = project(user);
        each_ends(&project, &|| project.ringfence());
    });
}

/// Each limit, by a `ringfence` that was started in some way.
pub(crate) fn each_ends(project: &Project, ringfence: &dyn Fn() -> Command) {
    let limited = |limits: &[&str], words: &[&str]| limited_by(ringfence(), limits, words);
    let bomb = limited(&["processes=40"], &["--", "bash", "-c", ":(){ :|:& };:; sleep 100"]);
    ends_by(&bomb, "processes", 40);
    let hog = limited(&["memory=200MiB"], &["--", "python3", "-c", "x = bytearray(10 << 30); print('had it')"]);
    ends_by(&hog, "memory", 200 * MIB);
    assert_eq!(hog["stdout"], "");
    let flood = limited(&["output=1MB"], &["--", "yes"]);
    ends_by(&flood, "output", 1_000_000);
    let busy = limited(&["cpu=500ms"], &["-c", "for i in 1 2 3; do (while :; do :; done) & done; wait"]);
    ends_by(&busy, "cpu", 500);
    let filler = limited(&["disk=20MiB"], &["-c", "cat /dev/zero > big"]);
    ends_by(&filler, "disk", 20 * MIB);
    std::fs::remove_file(project.at("big")).expect("it can be removed");
    let slow = limited(&["wall=300ms"], &["--", "sleep", "100"]);
    assert_eq!((&slow["exitCode"], &slow["timedOut"], breaches(&slow)[0].0.as_str()), (&json!(124), &json!(true), "wall"));
}

#[test]
fn memory_is_memory_however_it_is_had() {
    const WAYS: &[&str] = &[
        "import os\nf = os.memfd_create('x')\nwhile True: os.write(f, bytes(1 << 20))",
        "import mmap\nkept = []\nwhile True:\n    kept.append(mmap.mmap(-1, 16 << 20)); kept[-1].write(b'x' * (16 << 20))",
        "import ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\nwhile True:\n    \
             at = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0); ctypes.memset(at, 1, 16 << 20); libc.shmdt(ctypes.c_void_p(at))",
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0: kept = b'x' * (50 << 20); break\ntime.sleep(100)",
    ];
    each_user(|user| {
        let project = project(user);
        // What copies share is there once.
        let code = "import os, time\nkept = b'x' * (90 << 20)\nfor _ in range(8):\n    if os.fork() == 0: time.sleep(0.3); os._exit(0)\ntime.sleep(0.5); print('fine')";
        for ringfence in [Project::ringfence, ungrouped] {
            for code in WAYS {
                let outcome = limited_by(ringfence(&project), &["memory=150MiB"], &["--", "python3", "-c", code]);
                ends_by(&outcome, "memory", 150 * MIB);
            }
            assert_eq!(limited_by(ringfence(&project), &["memory=150MiB"], &["--", "python3", "-c", code])["stdout"], "fine\n");
        }
        // Where nobody counts what is memory by its place, there is as much room and no more.
        let line = "head -c 30000000 /dev/zero > /tmp/x; wc -c < /tmp/x";
        let scratch = limited_by(ungrouped(&project), &["memory=20MiB"], &["-c", line]);
        assert_eq!(scratch["stdout"], format!("{}\n", 20 * MIB), "{scratch}");
    });
}

#[test]
fn what_is_written_counts_whoever_wrote_it() {
    each_user(|user| {
        let project = project(user);
        let orphans = "for i in $(seq 100); do (head -c 2000000 /dev/zero > f$i &); done; sleep 100";
        ends_by(&limited(&project, &["disk=20MiB"], &["-c", orphans]), "disk", 20 * MIB);
        let children = "for i in $(seq 100); do head -c 2000000 /dev/zero > f$i; done; sleep 100";
        ends_by(&limited(&project, &["disk=20MiB"], &["-c", children]), "disk", 20 * MIB);
    });
}

#[test]
fn files_are_as_few_and_as_small_as_the_policy_says() {
    each_user(|user| {
        let project = project(user);
        let code = "import time\nkept = []\ntry:\n    while True: kept.append(open('/dev/null'))\nexcept OSError as e: print(e.errno)\ntime.sleep(0.3)";
        let many = limited(&project, &["open-files=32"], &["--", "python3", "-c", code]);
        assert_eq!((&many["stdout"], breaches(&many)), (&json!("24\n"), vec![("open-files".into(), 32, 32)]), "{many}");
        let large =
            limited(&project, &["file-size=1000000"], &["--", "dd", "if=/dev/zero", "of=f", "bs=4096", "count=1000", "status=none"]);
        assert_eq!(breaches(&large), [("file-size".into(), 1_000_000, 1_000_000)], "{large}");
        assert_eq!(std::fs::metadata(project.at("f")).expect("it is there").len(), 1_000_000);
        // Nobody can let itself have more.
        assert_eq!(project.run(["--limit=open-files=32", "-c", "ulimit -n 64 2>/dev/null; ulimit -n"]).ok(), "32");
    });
}

#[test]
fn a_neighbour_goes_on() {
    each_user(|user| {
        let (one, other) = (project(user), project(user));
        let bomb = std::thread::spawn(move || limited(&one, &["processes=50"], &["--", "bash", "-c", ":(){ :|:& };:; sleep 100"]));
        assert_eq!(other.run(["--limit=processes=50", "-c", "for i in 1 2 3 4 5; do (echo $i); done"]).ok(), "1\n2\n3\n4\n5");
        ends_by(&bomb.join().expect("it ended"), "processes", 50);
    });
}

#[test]
fn in_a_session_a_command_is_told_and_the_next_one_runs() {
    each_user(|user| {
        let session = Session::start_with(user, &["--limit=memory=150MiB", "--limit=output=100000", "--limit=cpu=1s"]);
        let told = |line: &str| session.words(&["exec", &session.id, "--json", "-c", line]);
        let outcome = |line: &str| serde_json::from_slice::<Value>(&told(line).stdout).expect("an object");
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
fn a_limit_is_shown_written_down_and_read_exactly() {
    each_user(|user: As| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\n[limits]\nmemory = \"64MiB\"\nprocesses = 100\n");
        let plan = Ran::of(project.ringfence().arg("plan"), b"").ok();
        assert!(plan.contains("limit     memory 64 MiB, processes 100") || plan.contains("memory 64 MiB, processes 100"), "{plan}");
        let ran = project.run(["--", "python3", "-c", "x = bytearray(1 << 30)"]);
        assert_eq!(ran.status, 137);
        assert!(ran.talk().contains("the limit `memory` of 64 MiB was reached: "), "{}", ran.talk());
        let log = Ran::of(project.ringfence().args(["log", "--json"]), b"").ok();
        let last: Value = serde_json::from_str(log.lines().last().expect("a record")).expect("an object");
        assert_eq!(last["breaches"][0]["limit"], "memory", "{last}");
        for (wrong, says) in [
            ("memoory=1GiB", "there is no limit `memoory`"),
            ("memory", "`` is no amount for `--limit memory`"),
            ("memory=5m", "`5m` is no amount for `--limit memory`"),
            ("processes=0", "`0` is no amount for `--limit processes`"),
            ("cpu=1GiB", "write a duration"),
        ] {
            let ran = project.run([&format!("--limit={wrong}"), "--", "touch", "ran"]);
            ran.ends(125);
            assert!(ran.talk().contains(says) && !project.has("ran"), "{wrong}: {}", ran.talk());
        }
    });
}
