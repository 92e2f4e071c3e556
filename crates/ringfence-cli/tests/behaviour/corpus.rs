//! The corpus: of every command, exactly what was refused is told, and nothing else.

use std::path::Path;

use ringfence_testkit::{Entry, corpus, each_user, fuse_for_all, skip};

/// Tries every entry of one section as every user, and fails for all of them together.
#[track_caller]
fn check(section: &str) {
    if !fuse_for_all() {
        return;
    }
    let entries: Vec<Entry> = corpus().into_iter().filter(|entry| entry.section == section).collect();
    assert!(!entries.is_empty(), "there is no section {section}");
    each_user(|user| {
        let mut wrong = Vec::new();
        for entry in &entries {
            if let Some(program) = entry.lacks() {
                skip(&format!("{program} is not installed, which `{}` needs", entry.line));
                continue;
            }
            let came = entry.tried(user, Path::new(env!("CARGO_BIN_EXE_ringfence")));
            wrong.extend(entry.differences(&came).iter().map(|difference| format!("{}\n  {difference}\n", entry.line)));
        }
        assert!(wrong.is_empty(), "{user}:\n{}", wrong.concat());
    });
}

#[test]
fn reads() {
    check("reads");
}

#[test]
fn writes() {
    check("writes");
}

#[test]
fn names() {
    check("names");
}

#[test]
fn removal() {
    check("removal");
}

#[test]
fn calls() {
    check("calls");
}

#[test]
fn what_is_read_only_as_a_whole() {
    check("read-only");
}

#[test]
fn what_is_refused_nothing() {
    check("nothing");
}

#[test]
fn tools_that_build() {
    check("building");
}

#[test]
fn every_section_is_tried() {
    let tried = ["reads", "writes", "names", "removal", "calls", "read-only", "nothing", "building"];
    for entry in corpus() {
        assert!(tried.contains(&entry.section.as_str()), "{}", entry.section);
    }
}
