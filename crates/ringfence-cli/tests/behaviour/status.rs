//! A command's end is told as if it ran bare.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestOutput, TestProject, each_user, finish, signal, soon};

use crate::project;

/// Promise: P2
#[test]
fn exit_statuses_pass_through() {
    each_user(|user| {
        let project = project(user);
        project.write("not-executable", "#!/bin/sh\n");
        for (line, status) in [
            ("exit 7", 7),
            ("exit 0", 0),
            ("exit 255", 255),
            ("kill -9 $$", 137),
            ("kill -TERM $$", 143),
            ("kill -SEGV $$", 139),
        ] {
            project.sh(line).ends(status);
        }
        project.run(["--", "no-such-program"]).ends(127);
        project.run(["--", "./no-such-program"]).ends(127);
        project.run(["--", "./not-executable"]).ends(126);
        project.run(["--", "./src"]).ends(126);
    });
}

#[test]
fn words_that_make_no_sense_run_nothing() {
    each_user(|user| {
        let project = project(user);
        project.run(["--no-such-flag", "--", "touch", "ran"]).ends(125);
        project.run(["--timeout", "soon", "--", "touch", "ran"]).ends(125);
        project.run(["-C", "no-such-directory", "--", "touch", "ran"]).ends(125);
        project.run(["--policy", "no-such-file", "--", "touch", "ran"]).ends(125);
        assert!(!project.has("ran"));
    });
}

/// Promise: P20
#[test]
fn an_engine_that_is_named_confines_or_nothing_runs() {
    each_user(|user| {
        let project = project(user);
        for engine in ["auto", "namespaces"] {
            let ran = project.run(["--engine", engine, "-c", "cat .env; echo over"]);
            assert_eq!(ran.ok(), "over");
        }
        let unknown = project.run(["--engine", "wishes", "--", "touch", "ran"]);
        assert!(unknown.ends(125).talk().contains("auto, namespaces"), "{}", unknown.talk());
        // A policy that confines nothing does not go with an engine that is to confine.
        let bare =
            project.run(["--engine", "namespaces", "--mode", "full-access", "--", "touch", "ran"]);
        assert!(bare.ends(125).talk().contains("hint:"), "{}", bare.talk());
        project.write("off.toml", "version = 1\n[sandbox]\nenabled = false\n");
        project
            .run(["--engine", "namespaces", "--policy", "off.toml", "--", "touch", "ran"])
            .ends(125);
        assert!(!project.has("ran"));
        project.run(["--engine", "auto", "--mode", "full-access", "--", "touch", "ran"]).ok();
        assert!(project.has("ran"));
    });
}

/// Promise: P21
#[test]
fn a_broken_policy_runs_nothing_and_says_where() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\n[filesystem]\nraed = [\"x\"]\n");
        let ran = project.sh("touch ran");
        ran.ends(125);
        assert!(
            ran.talk().contains("policy.toml:3") && ran.talk().contains("read"),
            "{}",
            ran.talk()
        );
        project.write(".ringfence/policy.toml", "");
        let ran = project.sh("touch ran");
        ran.ends(125);
        assert!(
            ran.talk().contains("policy.toml:1:1: the policy does not say its `version`"),
            "{}",
            ran.talk()
        );
        assert!(ran.talk().contains("hint: write `version = 1`"), "{}", ran.talk());
        assert!(!project.has("ran"));
    });
}

/// Promise: P21
#[test]
fn a_policy_that_runs_nothing_is_not_checked_as_good() {
    each_user(|user| {
        let project = project(user);
        let check = || {
            TestOutput::of(
                project.ringfence().args(["policy", "check", ".ringfence/policy.toml"]),
                b"",
            )
        };
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"base.toml\"]\n");
        project.write(".ringfence/base.toml", "version = 1\n");
        assert_eq!(check().ok().lines().count(), 2);
        project.sh("true").ok();
        // Beyond its own directory a project's policy extends nothing.
        project.write("base.toml", "version = 1\n");
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../base.toml\"]\n");
        for ran in [check(), project.sh("touch ran")] {
            ran.ends(125);
            assert!(
                ran.talk().contains("cannot read")
                    && ran.talk().contains("its own `.ringfence` only"),
                "{}",
                ran.talk()
            );
        }
        // Nor does a check wait for what never comes.
        project.sh_bare("rm .ringfence/policy.toml && mkfifo .ringfence/policy.toml").ok();
        for ran in [check(), project.sh("touch ran")] {
            assert!(ran.ends(125).talk().contains("not a plain file"), "{}", ran.talk());
        }
        assert!(!project.has("ran"));
    });
}

/// Starts `line` and waits until it has made the file `ready`.
fn started(project: &TestProject, line: &str) -> std::process::Child {
    let mut command = project.ringfence();
    command
        .args(["run", "-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command.spawn().expect("ringfence starts");
    assert!(
        soon(Duration::from_secs(20), || project.has("ready")),
        "the command never came to be ready"
    );
    std::fs::remove_file(project.at("ready")).expect("it is there");
    child
}

/// Promise: P2
#[test]
fn signals_reach_the_command() {
    each_user(|user| {
        let project = project(user);
        for (number, name) in
            [(1, "HUP"), (2, "INT"), (3, "QUIT"), (10, "USR1"), (12, "USR2"), (15, "TERM")]
        {
            let line = format!(
                "trap 'echo got {name}; exit 9' {name}; touch ready; while :; do sleep 0.05; done"
            );
            let child = started(&project, &line);
            signal(child.id(), number);
            assert_eq!(finish(child).ends(9).text(), format!("got {name}"));
        }
    });
}

/// Promise: P2
#[test]
fn a_signal_that_ends_the_command_is_its_status() {
    each_user(|user| {
        let project = project(user);
        for (number, status) in [(15, 143), (1, 129), (3, 131), (10, 138)] {
            let child = started(&project, "touch ready; exec sleep 60");
            signal(child.id(), number);
            finish(child).ends(status);
        }
        // An interrupted ringfence dies of the interrupt, so that a script around it stops.
        let child = started(&project, "touch ready; exec sleep 60");
        signal(child.id(), 2);
        assert_eq!(finish(child).ends(130).signal, Some(2));
    });
}

#[test]
fn a_stopped_command_goes_on_when_told() {
    each_user(|user| {
        let project = project(user);
        let child = started(&project, "touch ready; sleep 0.4; echo done");
        let state =
            || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        signal(child.id(), 20);
        let stopped = soon(Duration::from_secs(5), || state().contains(") T "));
        signal(child.id(), 18);
        assert!(stopped, "ringfence did not stop with its command: {}", state());
        assert_eq!(finish(child).ok(), "done");
    });
}

#[test]
fn the_time_limit_ends_the_command() {
    each_user(|user| {
        let project = project(user);
        let begun = Instant::now();
        project.run(["--timeout", "300ms", "--", "sleep", "60"]).ends(124);
        assert!(begun.elapsed() < Duration::from_secs(3));
        // A command that does not want to end is ended, with all it started.
        project
            .run([
                "--timeout",
                "300ms",
                "-c",
                "trap '' TERM; (trap '' TERM; sleep 61) & while :; do sleep 1; done",
            ])
            .ends(124);
        project.run(["--timeout", "20s", "-c", "exit 3"]).ends(3);
    });
}

#[test]
fn background_processes_end_with_the_command() {
    each_user(|user| {
        let project = project(user);
        let marker = format!("sleep 7654{}", std::process::id());
        let begun = Instant::now();
        project.sh(&format!("(setsid {marker} >/dev/null 2>&1 &) ; {marker} & echo started")).ok();
        assert!(begun.elapsed() < Duration::from_secs(10));
        let words = marker.replace(' ', "\0");
        assert!(
            soon(Duration::from_secs(1), || ringfence_testkit::processes_with(&words).is_empty()),
            "{:?}",
            ringfence_testkit::processes_with(&words)
        );
    });
}

#[test]
fn a_directory_as_standard_input_is_refused() {
    each_user(|user| {
        let project = project(user);
        let home = std::fs::File::open(project.home()).expect("the home can be opened");
        let mut command = project.ringfence();
        command
            .args(["run", "-c", "touch ran; ls /proc/self/fd/0/"])
            .stdin(Stdio::from(home))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ran = finish(command.spawn().expect("ringfence starts"));
        ran.ends(125);
        assert!(!project.has("ran"));
    });
}

#[test]
fn a_zombie_is_reaped_and_an_orphan_has_a_parent() {
    each_user(|user| {
        let project = project(user);
        let code = "
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        time.sleep(0.1)
        open('orphan', 'w').write(str(os.getppid()))
        os._exit(0)
    os._exit(0)
os.wait()
time.sleep(0.3)
states = [read('/proc/%s/stat' % p).split()[2] for p in os.listdir('/proc') if p.isdigit()]
print(read('orphan').decode(), b'Z' in states)
";
        assert_eq!(project.python(code).ok(), "1 False");
    });
}

/// Promise: P1
#[test]
fn the_answer_is_the_same_bare() {
    each_user(|user| {
        let project = project(user);
        let line = "echo out; echo err >&2; exit 3";
        let (inside, bare): (TestOutput, TestOutput) = (project.sh(line), project.sh_bare(line));
        assert_eq!(
            (inside.status, inside.stdout, inside.stderr),
            (bare.status, bare.stdout, bare.stderr)
        );
    });
}

#[test]
fn a_caller_that_ignores_its_children_gets_the_status() {
    each_user(|user| {
        let project = project(user);
        let Some(python) = ringfence_testkit::python() else { return };
        let code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])";
        let ran = ringfence_testkit::TestOutput::of(
            project
                .command("timeout")
                .args(["10", python, "-c", code])
                .arg(project.binary())
                .args(["run", "--", "sh", "-c", "sleep 0.1; exit 7"]),
            b"",
        );
        ran.ends(7);
    });
}
