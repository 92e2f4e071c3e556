//! Denied and protected names cannot be made, however often threads try.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfence_testkit::{TestOutput, TestProject, compile, each_user, repetitions};

use crate::project;

/// Two threads use every syscall that makes a name and change each other's paths in memory.
const MAKING: &str = include_str!("making.c");
/// The names it tries to make.
const FORBIDDEN: &[&str] = &[
    ".mcp.json",
    ".env.made",
    "made.pem",
    "sub/.env.made",
    ".git/hooks/post-merge",
    ".git/config.worktree",
];
/// Tries in one run, and runs for each user.
const TRIES_PER_RUN: usize = 5_000;
const RUNS: usize = 1;
const RUNS_UNDER_STRESS: usize = 10;

/// Ends the polling, also if the polled run panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The forbidden names that a thread on the host saw while it polled during `run`.
fn polled(project: &TestProject, run: impl FnOnce()) -> Vec<&'static str> {
    let paths: Vec<(&str, PathBuf)> =
        FORBIDDEN.iter().map(|name| (*name, project.at(name))).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let mut seen = Vec::new();
            loop {
                // Once more after the end: a name that is left counts as well.
                let is_over = over.load(Ordering::Relaxed);
                seen.extend(
                    paths
                        .iter()
                        .filter(|(_, path)| path.symlink_metadata().is_ok())
                        .map(|(name, _)| *name),
                );
                seen.dedup();
                if is_over {
                    return seen;
                }
            }
        });
        let ends = Over(&over);
        run();
        drop(ends);
        let mut seen = poller.join().expect("looking does not panic");
        seen.sort_unstable();
        seen.dedup();
        seen
    })
}

/// Promise: denied-names
#[test]
fn racing_threads_cannot_make_a_denied_or_protected_name() {
    let (runs, at_once) = (repetitions(RUNS, RUNS_UNDER_STRESS), TRIES_PER_RUN.to_string());
    each_user(|user| {
        let project = project(user);
        project.sh_bare("git init -q").ok();
        let Some(program) = compile(&project, "making", MAKING) else { return };
        let said = |words: [&OsStr; 4]| project.run(words).ok();
        let seen = polled(&project, || {
            for _ in 0..runs {
                let inside =
                    said(["--".as_ref(), program.as_os_str(), at_once.as_ref(), "leave".as_ref()]);
                // All tries were made, no forbidden name appeared, each way made an allowed one.
                assert_eq!(inside, "tried 1 made 0 idle");
            }
        });
        assert_eq!(seen, Vec::<&str>::new(), "as {user}");
        // Bare, each of them is made and seen within a few runs, though it is removed at once.
        const BARE_RUNS: usize = 20;
        let mut seen = BTreeSet::new();
        for _ in 0..BARE_RUNS {
            seen.extend(polled(&project, || {
                let bare =
                    TestOutput::run(project.command(&program).args(["3000", "clean"]), b"").ok();
                assert!(
                    bare.starts_with("tried 1 made ")
                        && bare.ends_with(" idle")
                        && !bare.contains(" made 0 "),
                    "{bare}"
                );
            }));
            if seen.len() == FORBIDDEN.len() {
                return;
            }
        }
        panic!("the probe cannot succeed, or is not seen: {seen:?}");
    });
}
