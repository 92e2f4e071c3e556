//! The corpus: of every command, exactly what was refused is told, and nothing else.

use std::path::Path;

use ringfence_testkit::{CorpusEntry, TestUser, corpus, each_user, fuse_for_all, skip};

/// Tries every entry of one section as every user, and fails for all of them together.
#[track_caller]
fn check(section: &str) {
    if !fuse_for_all() {
        return;
    }
    let entries: Vec<CorpusEntry> =
        corpus().into_iter().filter(|entry| entry.section == section).collect();
    assert!(!entries.is_empty(), "there is no section {section}");
    each_user(|user| {
        let mut wrong = Vec::new();
        for entry in &entries {
            if let Some(program) = entry.lacks() {
                skip(&format!("{program} is not installed, which `{}` needs", entry.line));
                continue;
            }
            if entry.line.starts_with("cargo ") && has_settings_above() {
                skip(&format!(
                    "cargo finds settings above the project, which `{}` is not about",
                    entry.line
                ));
                continue;
            }
            let came = entry.tried(user, Path::new(env!("CARGO_BIN_EXE_ringfence")));
            wrong.extend(
                entry
                    .differences(&came)
                    .iter()
                    .map(|difference| format!("{}\n  {difference}\n", entry.line)),
            );
        }
        assert!(wrong.is_empty(), "{user}:\n{}", wrong.concat());
    });
}

/// Whether cargo finds the home of whoever runs this on its way up: projects of a test stand below
/// it where nobody else's can be made.
fn has_settings_above() -> bool {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    !TestUser::runner_is_root()
        && std::env::var_os("RINGFENCE_TEST_DIR").is_none()
        && home.is_some_and(|home| home.join(".cargo").exists())
}

/// Promise: P22
#[test]
fn reads() {
    check("reads");
}

/// Promise: P22
#[test]
fn writes() {
    check("writes");
}

/// Promise: P22
#[test]
fn names() {
    check("names");
}

/// Promise: P22
#[test]
fn removal() {
    check("removal");
}

/// Promise: P22
#[test]
fn calls() {
    check("calls");
}

/// Promise: P22
#[test]
fn what_is_read_only_as_a_whole() {
    check("read-only");
}

/// Promise: P22
#[test]
fn what_is_refused_nothing() {
    check("nothing");
}

/// Promise: P22
#[test]
fn tools_that_build() {
    check("building");
}

#[test]
fn every_section_is_tried() {
    let tried =
        ["reads", "writes", "names", "removal", "calls", "read-only", "nothing", "building"];
    for entry in corpus() {
        assert!(tried.contains(&entry.section.as_str()), "{}", entry.section);
    }
}
