//! A command's exit status is reported as if it ran bare.

use std::process::Stdio;
use std::time::{Duration, Instant};

use ringfence_testkit::{TestOutput, TestProject, becomes_true, each_user, finish, signal};

use crate::project;

/// Promise: bare-processes
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
            project.sh(line).expect_status(status);
        }
        project.run(["--", "no-such-program"]).expect_status(127);
        project.run(["--", "./no-such-program"]).expect_status(127);
        project.run(["--", "./not-executable"]).expect_status(126);
        project.run(["--", "./src"]).expect_status(126);
    });
}

#[test]
fn invalid_arguments_run_nothing() {
    each_user(|user| {
        let project = project(user);
        project.run(["--no-such-flag", "--", "touch", "ran"]).expect_status(125);
        project.run(["--timeout", "soon", "--", "touch", "ran"]).expect_status(125);
        project.run(["-C", "no-such-directory", "--", "touch", "ran"]).expect_status(125);
        project.run(["--policy", "no-such-file", "--", "touch", "ran"]).expect_status(125);
        assert!(!project.has("ran"));
    });
}

/// Promise: unconfinable-host
#[test]
fn named_engine_confines_or_nothing_runs() {
    each_user(|user| {
        let project = project(user);
        for engine in ["auto", "namespaces"] {
            let ran = project.run(["--engine", engine, "-c", "cat .env; echo over"]);
            assert_eq!(ran.ok(), "over");
        }
        let unknown = project.run(["--engine", "wishes", "--", "touch", "ran"]);
        assert!(
            unknown.expect_status(125).stderr_text().contains("auto, namespaces"),
            "{}",
            unknown.stderr_text()
        );
        // A policy without confinement contradicts a named engine.
        let bare =
            project.run(["--engine", "namespaces", "--mode", "full-access", "--", "touch", "ran"]);
        assert!(bare.expect_status(125).stderr_text().contains("hint:"), "{}", bare.stderr_text());
        project.write("off.toml", "version = 1\n[sandbox]\nenabled = false\n");
        project
            .run(["--engine", "namespaces", "--policy", "off.toml", "--", "touch", "ran"])
            .expect_status(125);
        assert!(!project.has("ran"));
        project.run(["--engine", "auto", "--mode", "full-access", "--", "touch", "ran"]).ok();
        assert!(project.has("ran"));
    });
}

/// Promise: broken-policy
#[test]
fn broken_policy_runs_nothing_and_names_the_line() {
    each_user(|user| {
        let project = project(user);
        project.write(".ringfence/policy.toml", "version = 1\n[filesystem]\nraed = [\"x\"]\n");
        let ran = project.sh("touch ran");
        ran.expect_status(125);
        assert!(
            ran.stderr_text().contains("policy.toml:3") && ran.stderr_text().contains("read"),
            "{}",
            ran.stderr_text()
        );
        project.write(".ringfence/policy.toml", "");
        let ran = project.sh("touch ran");
        ran.expect_status(125);
        assert!(
            ran.stderr_text().contains("policy.toml:1:1: the policy has no `version`"),
            "{}",
            ran.stderr_text()
        );
        assert!(ran.stderr_text().contains("hint: write `version = 1`"), "{}", ran.stderr_text());
        assert!(!project.has("ran"));
    });
}

/// Promise: broken-policy
#[test]
fn policy_check_rejects_what_run_rejects() {
    each_user(|user| {
        let project = project(user);
        let check = || {
            TestOutput::run(
                project.ringfence().args(["policy", "check", ".ringfence/policy.toml"]),
                b"",
            )
        };
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"base.toml\"]\n");
        project.write(".ringfence/base.toml", "version = 1\n");
        assert_eq!(check().ok().lines().count(), 2);
        project.sh("true").ok();
        // A project's policy extends nothing outside its directory.
        project.write("base.toml", "version = 1\n");
        project.write(".ringfence/policy.toml", "version = 1\nextends = [\"../base.toml\"]\n");
        for ran in [check(), project.sh("touch ran")] {
            ran.expect_status(125);
            assert!(
                ran.stderr_text().contains("cannot read")
                    && ran.stderr_text().contains("only files in its own `.ringfence`"),
                "{}",
                ran.stderr_text()
            );
        }
        // A check does not wait at a named pipe either.
        project.sh_bare("rm .ringfence/policy.toml && mkfifo .ringfence/policy.toml").ok();
        for ran in [check(), project.sh("touch ran")] {
            assert!(
                ran.expect_status(125).stderr_text().contains("not a regular file"),
                "{}",
                ran.stderr_text()
            );
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
        becomes_true(Duration::from_secs(20), || project.has("ready")),
        "the command never came to be ready"
    );
    std::fs::remove_file(project.at("ready")).expect("it is there");
    child
}

/// Promise: bare-processes
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
            assert_eq!(finish(child).expect_status(9).text(), format!("got {name}"));
        }
    });
}

/// Promise: bare-processes
#[test]
fn fatal_signal_is_the_exit_status() {
    each_user(|user| {
        let project = project(user);
        for (number, status) in [(15, 143), (1, 129), (3, 131), (10, 138)] {
            let child = started(&project, "touch ready; exec sleep 60");
            signal(child.id(), number);
            finish(child).expect_status(status);
        }
        // An interrupted ringfence dies of SIGINT, so that a calling script stops.
        let child = started(&project, "touch ready; exec sleep 60");
        signal(child.id(), 2);
        assert_eq!(finish(child).expect_status(130).signal, Some(2));
    });
}

#[test]
fn stopped_command_continues_on_sigcont() {
    each_user(|user| {
        let project = project(user);
        let child = started(&project, "touch ready; sleep 0.4; echo done");
        let state =
            || std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        signal(child.id(), 20);
        let stopped = becomes_true(Duration::from_secs(5), || state().contains(") T "));
        signal(child.id(), 18);
        assert!(stopped, "ringfence did not stop with its command: {}", state());
        assert_eq!(finish(child).ok(), "done");
    });
}

#[test]
fn timeout_ends_the_command() {
    each_user(|user| {
        let project = project(user);
        let begun = Instant::now();
        project.run(["--timeout", "300ms", "--", "sleep", "60"]).expect_status(124);
        assert!(begun.elapsed() < Duration::from_secs(3));
        // A command that ignores signals is killed, with all its processes.
        project
            .run([
                "--timeout",
                "300ms",
                "-c",
                "trap '' TERM; (trap '' TERM; sleep 61) & while :; do sleep 1; done",
            ])
            .expect_status(124);
        project.run(["--timeout", "20s", "-c", "exit 3"]).expect_status(3);
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
            becomes_true(Duration::from_secs(1), || ringfence_testkit::processes_with(&words)
                .is_empty()),
            "{:?}",
            ringfence_testkit::processes_with(&words)
        );
    });
}

#[test]
fn directory_as_standard_input_is_refused() {
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
        ran.expect_status(125);
        assert!(!project.has("ran"));
    });
}

#[test]
fn zombies_are_reaped_and_orphans_have_a_parent() {
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

/// Promise: bare-files
#[test]
fn output_and_status_match_a_bare_run() {
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
fn caller_that_ignores_sigchld_gets_the_status() {
    each_user(|user| {
        let project = project(user);
        let Some(python) = ringfence_testkit::python() else { return };
        let code = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])";
        let ran = ringfence_testkit::TestOutput::run(
            project
                .command("timeout")
                .args(["10", python, "-c", code])
                .arg(project.binary())
                .args(["run", "--", "sh", "-c", "sleep 0.1; exit 7"]),
            b"",
        );
        ran.expect_status(7);
    });
}
