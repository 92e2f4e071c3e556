//! Everything that a client started ends with it, whatever the reason.

use std::time::{Duration, Instant};

use ringfence_testkit::{TestProject, TestUser, each_user};
use rustix::process::{Pid, Signal, kill_process};

use crate::project;
use crate::wire::Wire;

/// A server that runs a command, and a marker on the command line of its processes.
fn busy(project: &TestProject) -> (Wire, String) {
    let mut wire = Wire::open(project);
    let word = format!("9{:05}.{}", std::process::id(), wire.server.id());
    wire.call(
        1,
        &format!("sleep {word} & (trap '' INT TERM; sleep {word}) & touch begun; sleep {word}"),
    );
    wait("the command to begin", || project.has("begun"));
    assert!(is_running(&word));
    (wire, word)
}

fn is_running(word: &str) -> bool {
    let lines = std::fs::read_dir("/proc")
        .expect("there are processes")
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .into_iter()
        .any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

#[track_caller]
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Promise: mcp-ends
#[test]
fn disconnect_during_a_command_ends_everything() {
    each_user(|user| {
        let project = project(user);
        let (mut wire, word) = busy(&project);
        drop(wire.to.take());
        assert!(wire.server.wait().expect("it ends").success());
        assert!(!is_running(&word), "all of it has ended before the server has");
    });
}

/// Promise: mcp-ends
#[test]
fn signal_to_the_server_ends_its_commands_first() {
    each_user(|user| {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let project = project(user);
            let (mut wire, word) = busy(&project);
            kill_process(Pid::from_child(&wire.server), signal).expect("it is ours");
            assert!(wire.server.wait().expect("it ends").success());
            assert!(!is_running(&word));
        }
    });
}

/// Promise: mcp-ends
#[test]
fn killed_server_leaves_no_processes() {
    each_user(|user| {
        let project = project(user);
        let (mut wire, word) = busy(&project);
        wire.server.kill().expect("it is ours");
        wait("everything to end", || !is_running(&word));
    });
}

#[test]
fn server_without_a_shell_does_not_start() {
    let project = project(TestUser::User);
    let mut server = project.ringfence();
    server.args(["mcp", "--shell", "/nowhere/bash"]);
    let ran = ringfence_testkit::TestOutput::run(&mut server, b"");
    ran.expect_status(127);
    assert!(ran.stdout.is_empty() && !ran.stderr.is_empty());
}
