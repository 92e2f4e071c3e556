//! Calls made to bypass the hook.

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
fn paths_with_spaces_tildes_and_dots_are_denied() {
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
fn ambiguous_globs_are_denied() {
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
fn only_shell_whitespace_counts_as_an_empty_command() {
    let project = project(TestUser::User);
    assert_eq!(verdict(&project, "Bash", json!({ "command": " \t\n" })), "nothing");
    // For a shell these are program names.
    for line in ["\u{a0}", "\u{2028}", "\u{3000}", "\r", "\u{b}", "\u{85}"] {
        assert_eq!(verdict(&project, "Bash", json!({ "command": line })), "allow", "{line:?}");
    }
}

#[test]
fn deeply_nested_lines_do_not_crash_the_hook() {
    let project = project(TestUser::User);
    for line in [
        "[[ ".to_owned() + &"! ".repeat(40_000),
        "(".repeat(40_000),
        "[[ ".to_owned() + &"( ".repeat(40_000),
    ] {
        let ran =
            hook(&project, &input(&project, "PreToolUse", "Bash", json!({ "command": line })));
        assert!(
            ran.status == 0 && !ran.stdout.is_empty(),
            "{}: {}",
            &line[..10],
            ran.stderr_text()
        );
    }
}

#[test]
fn hook_with_full_output_streams_blocks() {
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

/// As when memory or stack runs out: the hook is killed before it can respond.
#[test]
fn killed_hook_blocks() {
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
