//! Calls that somebody made to get past the hook.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringfence_testkit::{TestUser, each_user};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{hook, input, verdict};
use crate::project;

#[test]
fn a_path_is_judged_by_all_that_an_agent_may_read_in_it() {
    each_user(|user| {
        let project = project(user);
        for path in [
            " .env",
            ".env ",
            ".env\n",
            "nope/../.env",
            "~/.ssh/id_rsa",
            " ~/.ssh/id_rsa",
            "~/code/other/main.rs",
        ] {
            assert_eq!(verdict(&project, "Read", json!({ "file_path": path })), "deny", "{path:?}");
            assert_eq!(
                verdict(&project, "Grep", json!({ "pattern": "x", "path": path })),
                "deny",
                "{path:?}"
            );
        }
        for path in ["~/x", " /etc/x", "~"] {
            assert_eq!(
                verdict(&project, "Write", json!({ "file_path": path, "content": "" })),
                "deny",
                "{path:?}"
            );
        }
        assert_eq!(verdict(&project, "Glob", json!({ "pattern": "*", "path": "~/.ssh" })), "deny");
        for pattern in ["*/../../*", "{..,x}/*", "~/.ssh/*"] {
            assert_eq!(
                verdict(&project, "Glob", json!({ "pattern": pattern })),
                "deny",
                "{pattern}"
            );
        }
        for pattern in ["**/*.{rs,md}", "src/*", "src/../src/*"] {
            assert_eq!(
                verdict(&project, "Glob", json!({ "pattern": pattern })),
                "nothing",
                "{pattern}"
            );
        }
        assert_eq!(verdict(&project, "Read", json!({ "file_path": " README " })), "nothing");
    });
}

#[test]
fn a_glob_leaves_out_what_every_reader_of_it_leaves_out() {
    let project = project(TestUser::User);
    for (glob, expect) in [
        ("*.rs", "nothing"),
        ("*.{rs,md}", "nothing"),
        ("*.rs .env", "deny"),
        ("*.rs,.env", "deny"),
        ("*.{rs,md} .env", "deny"),
        ("!*.rs", "deny"),
        (r"\.env", "deny"),
    ] {
        assert_eq!(
            verdict(&project, "Grep", json!({ "pattern": "x", "glob": glob })),
            expect,
            "{glob}"
        );
    }
}

#[test]
fn only_what_a_shell_takes_for_nothing_is_no_command() {
    let project = project(TestUser::User);
    assert_eq!(verdict(&project, "Bash", json!({ "command": " \t\n" })), "nothing");
    // Names of programs, for a shell.
    for line in ["\u{a0}", "\u{2028}", "\u{3000}", "\r", "\u{b}", "\u{85}"] {
        assert_eq!(verdict(&project, "Bash", json!({ "command": line })), "allow", "{line:?}");
    }
}

#[test]
fn no_line_ends_the_hook() {
    let project = project(TestUser::User);
    for line in [
        "[[ ".to_owned() + &"! ".repeat(40_000),
        "(".repeat(40_000),
        "[[ ".to_owned() + &"( ".repeat(40_000),
    ] {
        let ran =
            hook(&project, &input(&project, "PreToolUse", "Bash", json!({ "command": line })));
        assert!(ran.status == 0 && !ran.stdout.is_empty(), "{}: {}", &line[..10], ran.talk());
    }
}

#[test]
fn a_hook_that_nobody_hears_blocks() {
    let project = project(TestUser::User);
    let full = || {
        Stdio::from(File::options().write(true).open("/dev/full").expect("a device that is full"))
    };
    let status = |command: &mut Command| {
        let hooked = command
            .args(["hook", "claude-code"])
            .stdin(Stdio::null())
            .stderr(full())
            .stdout(Stdio::null());
        hooked.status().expect("it is there").code()
    };
    assert_eq!(status(&mut project.ringfence()), Some(2));
}

/// As when memory ends, or the stack: it is killed before it can say anything.
#[test]
fn a_hook_that_dies_blocks() {
    let project = project(TestUser::User);
    let mut command = project.ringfence();
    let mut hook = command
        .args(["hook", "claude-code"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is there");
    let children = format!("/proc/{0}/task/{0}/children", hook.id());
    let found = || fs::read_to_string(&children).ok()?.trim().parse().ok();
    let answering = std::iter::repeat_with(|| {
        thread::sleep(Duration::from_millis(10));
        found()
    });
    let pid = answering
        .take(1000)
        .flatten()
        .next()
        .and_then(Pid::from_raw)
        .expect("a process that answers");
    kill_process(pid, Signal::KILL).expect("it waits for its input");
    assert_eq!(hook.wait().expect("it ends").code(), Some(2));
}
