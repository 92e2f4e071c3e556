//! A killed ringfence leaves no processes, mounts or files, at any moment.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use ringfence_testkit::{
    HostSnapshot, TestOutput, TestProject, becomes_true, each_user, fuse_for_all, processes_with,
    python, repetitions, signal,
};

use crate::project;

/// A copy of the binary, so that its processes differ from those of other tests.
fn copy(project: &TestProject) -> std::path::PathBuf {
    let copy =
        project.home().join(format!("ringfence-{}-{}", std::process::id(), project.user.ids().0));
    std::fs::copy(project.binary(), &copy).expect("the binary can be copied");
    project.user.chown(&copy);
    copy
}

/// Processes that run the file `program`, whatever their name.
fn running(program: &std::path::Path) -> Vec<String> {
    let found = |entry: std::fs::DirEntry| {
        let exe = std::fs::read_link(entry.path().join("exe")).ok()?;
        (exe == program).then(|| {
            format!(
                "{}: {}",
                entry.path().display(),
                std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default()
            )
        })
    };
    std::fs::read_dir("/proc").expect("there is a /proc").flatten().filter_map(found).collect()
}

#[track_caller]
fn nothing_is_left(program: &std::path::Path, marker: &str, when: &str) {
    let begun = Instant::now();
    let gone = becomes_true(Duration::from_secs(1), || {
        running(program).is_empty() && processes_with(marker).is_empty()
    });
    assert!(
        gone,
        "killed {when}: {:?} {:?} after {:?}",
        running(program),
        processes_with(marker),
        begun.elapsed()
    );
}

fn start(project: &TestProject, program: &std::path::Path, line: &str) -> Child {
    let mut command = project.command(program);
    command
        .args(["run", "-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("ringfence starts")
}

/// Promise: no-litter, killed
#[test]
fn killed_ringfence_leaves_nothing_at_fifty_moments() {
    each_user(|user| {
        let project = project(user);
        let program = copy(&project);
        project.write(".mcp.json", "{}");
        // The first run makes the stores of caches.
        start(&project, &program, "true").wait().expect("it ends");
        let (before, home, census) =
            (project.entries(), project.home_entries(), HostSnapshot::take());
        let seed = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64)
            | 1;
        eprintln!("seed {seed}");
        let mut random = seed;
        for round in 0..50 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Half of them during the setup of the sandbox, half later.
            let delay =
                Duration::from_micros(random % if round % 2 == 0 { 15_000 } else { 80_000 });
            let marker = format!("98765{round}.{}", std::process::id());
            let mut child = start(
                &project,
                &program,
                &format!(
                    "(setsid sleep {marker} &); sleep {marker} & while :; do mktemp >/dev/null; cat .env; echo > .mcp.json; done 2>/dev/null"
                ),
            );
            std::thread::sleep(delay);
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
            nothing_is_left(&program, &marker, &format!("after {delay:?}"));
        }
        assert_eq!(project.entries(), before);
        assert_eq!(project.home_entries(), home);
        let after = HostSnapshot::take();
        let new = |now: &[String], then: &[String]| {
            now.iter()
                .filter(|line| !then.contains(line))
                .filter(|line| line.contains(&*project.root().to_string_lossy()))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(new(&after.mounts, &census.mounts), Vec::<String>::new());
        assert_eq!(new(&after.sockets, &census.sockets), Vec::<String>::new());
        // Other tests make such names too, and remove them.
        let left: Vec<&std::path::PathBuf> =
            after.temporary.iter().filter(|name| !census.temporary.contains(name)).collect();
        let is_gone = || HostSnapshot::take().temporary.iter().all(|name| !left.contains(&name));
        assert!(becomes_true(Duration::from_secs(60), is_gone), "{left:?}");
    });
}

/// Promise: killed
#[test]
fn killed_ringfence_ends_a_command_that_ignores_signals() {
    each_user(|user| {
        let project = project(user);
        let program = copy(&project);
        let marker = format!("98766.{}", std::process::id());
        let mut child = start(
            &project,
            &program,
            &format!(
                "trap '' HUP INT TERM QUIT USR1 USR2 PIPE; touch ready; while :; do sleep {marker}; done"
            ),
        );
        assert!(becomes_true(Duration::from_secs(20), || project.has("ready")));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        nothing_is_left(&program, &marker, "with a deaf command");
    });
}

/// Promise: killed
#[test]
fn killing_any_process_of_ringfence_leaves_nothing() {
    each_user(|user| {
        let project = project(user);
        let program = copy(&project);
        for victim in 0..3 {
            let marker = format!("9876{victim}7.{}", std::process::id());
            let mut child = start(&project, &program, &format!("touch ready; exec sleep {marker}"));
            assert!(becomes_true(Duration::from_secs(20), || project.has("ready")));
            std::fs::remove_file(project.at("ready")).expect("it is there");
            let all = running(&program);
            let Some(one) = all.get(victim) else {
                let _ = child.kill();
                let _ = child.wait();
                continue;
            };
            let pid: u32 = one
                .trim_start_matches("/proc/")
                .split(':')
                .next()
                .and_then(|pid| pid.parse().ok())
                .expect("a process id");
            ringfence_testkit::signal(pid, 9);
            let status = ringfence_testkit::wait_at_most(&mut child, Duration::from_secs(5));
            assert!(status.is_some_and(|status| !status.success()), "{one} was killed: {status:?}");
            nothing_is_left(&program, &marker, one);
        }
    });
}

/// Reads denied files and files outside in an endless loop, one thread each, and leaves a file if a
/// read succeeds.
const READS: &str = "
import os, threading
home = os.path.expanduser('~')
def read(path):
    with open(path, 'rb') as file: return file.read()
tried = [0] * 6
def reads(me, act, path):
    while True:
        tried[me] += 1
        try: got = act(path)
        except OSError: got = None
        if got:
            with open('leaked', 'w') as file: file.write('%s: %s' % (path, got))
            os._exit(0)
        if tried[0] == 500: open('ready', 'w').close()
wanted = [(read, '.env'), (read, 'sub/.env'), (read, home + '/.ssh/id_rsa'), (os.listdir, home + '/.ssh'),
          (read, home + '/notes.txt'), (os.stat, home + '/code/other')]
for me, (act, path) in enumerate(wanted): threading.Thread(target=reads, args=(me, act, path)).start()
";

/// Promise: killed
#[test]
fn nothing_denied_opens_while_ringfence_is_killed() {
    let (Some(python), true) = (python(), fuse_for_all()) else { return };
    each_user(|user| {
        let project = project(user);
        let program = copy(&project);
        for round in 0..repetitions(6, 16) {
            let marker = format!("98768{round}.{}", std::process::id());
            let mut command = project.command(&program);
            command
                .args(["run", "--", python, "-Bc", READS, &marker])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let mut child = command.spawn().expect("ringfence starts");
            let is_ready = becomes_true(Duration::from_secs(20), || {
                project.has("ready") || project.has("leaked")
            });
            // The notify handler is stopped first, so that all threads wait for its response.
            if round % 2 == 1 {
                signal(child.id(), 19);
                std::thread::sleep(Duration::from_millis(10));
            }
            child.kill().expect("it can be killed");
            child.wait().expect("it ends");
            nothing_is_left(&program, &marker, &format!("in round {round}"));
            assert!(
                is_ready && !project.has("leaked"),
                "round {round}: {:?}",
                project.read("leaked")
            );
            std::fs::remove_file(project.at("ready")).expect("it was ready");
        }
        // Bare, a read succeeds at once.
        TestOutput::run(project.command(python).args(["-Bc", READS]), b"").ok();
        assert!(project.has("leaked"), "the probe cannot succeed");
    });
}
