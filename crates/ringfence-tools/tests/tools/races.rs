//! Somebody exchanges names all the time while the tools are at work.
//!
//! The one who swaps is a thread of its own with all the rights of the person, more than any
//! command in a sandbox has. Whatever it does, no file outside and none that is denied is shown
//! or changed.

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

use crate::stage::{SECRET, Stage};

/// The names are exchanged at least this often.
const SWAPS: usize = 10_000;
const SWAPS_UNDER_STRESS: usize = 100_000;

fn exchange(one: &Path, other: &Path) {
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).expect("both are there");
}

/// What became of the calls.
#[derive(Debug, Default)]
struct Tally {
    done: u64,
    refused: u64,
}

/// Repeats `swap` in one thread and `call` in another: as often as wanted, and on until the race
/// was seen to go both ways, at most for a minute.
fn meanwhile(swap: impl Fn() + Sync, call: impl Fn() -> Result<(), ToolError>) -> Tally {
    let (wanted, is_over, begun) =
        (repetitions(SWAPS, SWAPS_UNDER_STRESS), AtomicBool::new(false), Instant::now());
    let (is_swapped, mut tally) = (AtomicBool::new(false), Tally::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..wanted).for_each(|_| swap());
            is_swapped.store(true, Ordering::Relaxed);
            // In pairs: what is exchanged an even number of times is as it was.
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

/// Ends the other thread, also if a call panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All of the three, in turn: what is read is never secret.
fn all(tools: &FileTools, path: &Path) -> Result<(), ToolError> {
    let shown = tools
        .read(&ReadParams::new(path))
        .map(|content| assert_ne!(content.text.as_deref(), Some(SECRET), "a secret was read"));
    let written = tools.write(&WriteParams::new(path, "broken"));
    let edited = tools.edit(&EditParams::new(path, "broken", "fixed"));
    shown.and(written.map(drop)).and(edited.map(drop))
}

/// Nothing that was to stay as it is was touched, and nothing is left over.
fn is_whole(stage: &Stage, secrets: &[PathBuf]) {
    for secret in secrets {
        assert_eq!(
            fs::read_to_string(secret).expect("it is there"),
            SECRET,
            "{}",
            secret.display()
        );
        let beside = fs::read_dir(secret.parent().expect("it is in a directory"))
            .expect("it is there")
            .flatten();
        let left: Vec<_> = beside
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

/// Promise: P74
#[test]
fn a_link_that_is_swapped_meanwhile_leads_nowhere_else(stage) {
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
        let tally = meanwhile(|| exchange(&link, &other), || all(&tools, &link));
        assert!(tally.done > 0 && tally.refused > 0, "nobody raced: {tally:?}");
    }
    is_whole(stage, &[outside, denied]);
}

/// Promise: P74
#[test]
fn a_file_that_is_swapped_with_a_link_is_the_file(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("notes.txt").as_path().to_owned();
    let (file, link) = (stage.at("file"), stage.at("link"));
    stage.put("file", "hello");
    symlink(&outside, &link).unwrap();
    let tally = meanwhile(|| exchange(&file, &link), || all(&tools, &file));
    assert!(tally.done > 0 && tally.refused > 0, "nobody raced: {tally:?}");
    is_whole(stage, &[outside]);
}

/// Promise: P74
#[test]
fn a_directory_that_is_swapped_with_a_link_leads_nowhere_else(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("code/other/main.rs").as_path().to_owned();
    let (directory, link) = (stage.at("work"), stage.at("link"));
    stage.put("work/main.rs", "hello");
    symlink(outside.parent().unwrap(), &link).unwrap();
    let tally = meanwhile(|| exchange(&directory, &link), || {
        let made = tools.write(&WriteParams { create_parents: true, ..WriteParams::new("work/deep/er/made", "x") });
        all(&tools, &stage.at("work/main.rs")).and(made.map(drop))
    });
    assert!(tally.done > 0 && tally.refused > 0, "nobody raced: {tally:?}");
    is_whole(stage, &[outside]);
    assert_eq!(fs::read_dir(stage.home.join("code/other").as_path()).unwrap().count(), 1);
}

/// Promise: P74
#[test]
fn directories_that_change_places_hide_nothing(stage) {
    // One of the two is denied by its name, and its file stays there.
    let tools = stage.tools_with("[filesystem]\ndeny = [\"shut/**\", \"shut\"]");
    let (open, through) = (stage.at("a/open"), stage.at("a/through"));
    stage.put("a/open/file", "hello");
    stage.put("shut/file", SECRET);
    symlink("../shut", &through).unwrap();
    let tally = meanwhile(|| exchange(&open, &through), || {
        let found = tools.search(&SearchParams { path: "a".into(), ..SearchParams::literal(SECRET) })?;
        assert!(found.matches.is_empty(), "a secret was found");
        let listed = tools.list(&ListParams { depth: Some(5), ..ListParams::new("a") })?;
        // Where the link was is at most what the directory holds that came there meanwhile.
        assert!(listed.entries.iter().all(|entry| entry.size != Some(SECRET.len() as u64)), "{listed:?}");
        all(&tools, &stage.at("a/open/file"))
    });
    assert!(tally.done > 0 && tally.refused > 0, "nobody raced: {tally:?}");
    is_whole(stage, &[stage.at("shut/file")]);
}

/// Promise: P74
#[test]
fn another_name_of_a_denied_file_is_never_taken_for_a_plain_one(stage) {
    let tools = stage.tools();
    let (plain, linked) = (stage.at("plain"), stage.at("linked"));
    stage.put("plain", "hello");
    fs::hard_link(stage.at(".env"), &linked).unwrap();
    let tally = meanwhile(|| exchange(&plain, &linked), || all(&tools, &plain));
    assert!(tally.refused > 0, "nobody raced: {tally:?}");
    is_whole(stage, &[stage.at(".env")]);
}

/// Promise: P74
#[test]
fn the_way_up_from_a_directory_that_moves_away_is_the_way_it_was(stage) {
    let tools = stage.tools();
    let outside = stage.home.join("code/other/main.rs").as_path().to_owned();
    stage.put("work/main.rs", "hello");
    fs::create_dir(stage.at("work/deep")).unwrap();
    let (inside, away) = (stage.at("work/deep"), outside.with_file_name("deep"));
    let swap = || {
        fs::rename(&inside, &away).unwrap();
        fs::rename(&away, &inside).unwrap();
    };
    let tally = meanwhile(swap, || all(&tools, Path::new("work/deep/../main.rs")));
    assert!(tally.done > 0 && tally.refused > 0, "nobody raced: {tally:?}");
    is_whole(stage, &[outside]);
}

}
