//! Another thread exchanges names while the tools work.
//!
//! The swapping thread has all rights of the user, more than any command in a sandbox. No denied
//! file and no file outside is shown or changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfence_testkit::repetitions;
use ringfence_tools::{
    EditParams, FileTools, ListParams, ReadParams, SearchParams, ToolError, WriteParams,
};
use rustix::fs::{CWD, RenameFlags};

use crate::stage::{SECRET, ToolStage};

/// The minimum number of exchanges.
const SWAPS: usize = 10_000;
const SWAPS_UNDER_STRESS: usize = 100_000;

fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("both are there");
}

/// The results of the calls.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
}

/// Repeats `swap` in one thread and `call` in another: as often as requested, and then until both
/// results were seen, at most for a minute.
fn race(swap: impl Fn() + Sync, call: impl Fn() -> Result<(), ToolError>) -> Tally {
    let (wanted, is_over, begun) =
        (repetitions(SWAPS, SWAPS_UNDER_STRESS), AtomicBool::new(false), Instant::now());
    let (is_swapped, mut tally) = (AtomicBool::new(false), Tally::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..wanted).for_each(|_| swap());
            is_swapped.store(true, Ordering::Relaxed);
            // In pairs: after an even number of swaps the names are as before.
            while !is_over.load(Ordering::Relaxed) {
                swap();
                swap();
            }
        });
        let ends = SetOnDrop(&is_over);
        let is_seen = |tally: &Tally| tally.done > 0 && tally.refused > 0;
        while !is_swapped.load(Ordering::Relaxed)
            || (!is_seen(&tally) && begun.elapsed() < Duration::from_secs(60))
        {
            match call() {
                Ok(()) => tally.done += 1,
                Err(ToolError::Audit { source }) => panic!("{source}"),
                Err(_) => tally.refused += 1,
            }
        }
        drop(ends);
    });
    tally
}

/// Ends the other thread, even if a call panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls read, write and edit. The read content is never a secret.
fn all(tools: &FileTools, path: &Path) -> Result<(), ToolError> {
    let shown = tools
        .read(&ReadParams::new(path))
        .map(|content| assert_ne!(content.text.as_deref(), Some(SECRET), "a secret was read"));
    let written = tools.write(&WriteParams::new(path, "broken"));
    let edited = tools.edit(&EditParams::new(path, "broken", "fixed"));
    shown.and(written.map(drop)).and(edited.map(drop))
}

/// Asserts that no secret was changed and no temporary file is left.
fn assert_untouched(stage: &ToolStage, secrets: &[PathBuf]) {
    for secret in secrets {
        assert_eq!(
            fs::read_to_string(secret).expect("it is there"),
            SECRET,
            "{}",
            secret.display()
        );
        let siblings = fs::read_dir(secret.parent().expect("it is in a directory"))
            .expect("it is there")
            .flatten();
        let left: Vec<_> = siblings
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().starts_with(".ringfence-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
    let left: Vec<String> =
        stage.names(".").into_iter().filter(|name| name.starts_with(".ringfence-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

tests! { "races":

/// Promise: tool-races
#[test]
fn swapped_link_does_not_escape(stage) {
    let tools = stage.tools();
    let (outside, denied) = (stage.home.join("notes.txt").as_path().to_owned(), stage.at(".env"));
    stage.put("inside", "hello");
    for target in [outside.clone(), denied.clone()] {
        let (link, other) = (stage.at("link"), stage.at("other"));
        for path in [&link, &other] {
            let _ = fs::remove_file(path);
        }
        symlink("inside", &link).unwrap();
        symlink(&target, &other).unwrap();
        let tally = race(|| exchange(&link, &other), || all(&tools, &link));
        assert!(tally.done > 0 && tally.refused > 0, "no race: {tally:?}");
    }
    assert_untouched(stage, &[outside, denied]);
}

/// Promise: tool-races
#[test]
fn file_swapped_with_a_link_does_not_escape(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("notes.txt").as_path().to_owned();
    let (file, link) = (stage.at("file"), stage.at("link"));
    stage.put("file", "hello");
    symlink(&outside, &link).unwrap();
    let tally = race(|| exchange(&file, &link), || all(&tools, &file));
    assert!(tally.done > 0 && tally.refused > 0, "no race: {tally:?}");
    assert_untouched(stage, &[outside]);
}

/// Promise: tool-races
#[test]
fn directory_swapped_with_a_link_does_not_escape(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("code/other/main.rs").as_path().to_owned();
    let (directory, link) = (stage.at("work"), stage.at("link"));
    stage.put("work/main.rs", "hello");
    symlink(outside.parent().unwrap(), &link).unwrap();
    let tally = race(|| exchange(&directory, &link), || {
        let made = tools.write(&WriteParams { create_parents: true, ..WriteParams::new("work/deep/er/made", "x") });
        all(&tools, &stage.at("work/main.rs")).and(made.map(drop))
    });
    assert!(tally.done > 0 && tally.refused > 0, "no race: {tally:?}");
    assert_untouched(stage, &[outside]);
    assert_eq!(fs::read_dir(stage.home.join("code/other").as_path()).unwrap().count(), 1);
}

/// Promise: tool-races
#[test]
fn swapped_directories_show_no_secret(stage) {
    // One of the two is denied by its name, and its file stays there.
    let tools = stage.tools_with("[filesystem]\ndeny = [\"shut/**\", \"shut\"]");
    let (open, through) = (stage.at("a/open"), stage.at("a/through"));
    stage.put("a/open/file", "hello");
    stage.put("shut/file", SECRET);
    symlink("../shut", &through).unwrap();
    let tally = race(|| exchange(&open, &through), || {
        let found = tools.search(&SearchParams { path: "a".into(), ..SearchParams::literal(SECRET) })?;
        assert!(found.matches.is_empty(), "a secret was found");
        let listed = tools.list(&ListParams { depth: Some(5), ..ListParams::new("a") })?;
        // In place of the link, at most the swapped directory is listed.
        assert!(listed.entries.iter().all(|entry| entry.size != Some(SECRET.len() as u64)), "{listed:?}");
        all(&tools, &stage.at("a/open/file"))
    });
    assert!(tally.done > 0 && tally.refused > 0, "no race: {tally:?}");
    assert_untouched(stage, &[stage.at("shut/file")]);
}

/// Promise: tool-races
#[test]
fn hard_link_of_a_denied_file_stays_denied_in_a_race(stage) {
    let tools = stage.tools();
    let (plain, linked) = (stage.at("plain"), stage.at("linked"));
    stage.put("plain", "hello");
    fs::hard_link(stage.at(".env"), &linked).unwrap();
    let tally = race(|| exchange(&plain, &linked), || all(&tools, &plain));
    assert!(tally.refused > 0, "no race: {tally:?}");
    assert_untouched(stage, &[stage.at(".env")]);
}

/// Promise: tool-races
#[test]
fn dotdot_of_a_moved_directory_does_not_escape(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("code/other/main.rs").as_path().to_owned();
    stage.put("work/main.rs", "hello");
    fs::create_dir(stage.at("work/deep")).unwrap();
    let (inside, away) = (stage.at("work/deep"), outside.with_file_name("deep"));
    let swap = || {
        fs::rename(&inside, &away).unwrap();
        fs::rename(&away, &inside).unwrap();
    };
    let tally = race(swap, || all(&tools, Path::new("work/deep/../main.rs")));
    assert!(tally.done > 0 && tally.refused > 0, "no race: {tally:?}");
    assert_untouched(stage, &[outside]);
}

}
