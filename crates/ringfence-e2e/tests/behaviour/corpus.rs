//! The corpus: each command reports exactly its denials.

use std::path::Path;

use ringfence_testkit::{CorpusEntry, TestUser, corpus, each_user, fuse_for_all, skip};

/// Runs every entry of one section as every user, and reports all failures together.
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
            if let Some(program) = entry.missing_program() {
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
            let came = entry.run(user, Path::new(env!("CARGO_BIN_EXE_ringfence-e2e")));
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

/// Returns true if cargo finds settings above the project: where a test cannot make another home,
/// its projects are below the home of the user who runs the tests.
fn has_settings_above() -> bool {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    !TestUser::runner_is_root()
        && std::env::var_os("RINGFENCE_TEST_DIR").is_none()
        && home.is_some_and(|home| home.join(".cargo").exists())
}

/// Promise: exact-denials
#[test]
fn denied_reads_are_reported_exactly() {
    check("reads");
}

/// Promise: exact-denials
#[test]
fn denied_writes_are_reported_exactly() {
    check("writes");
}

/// Promise: exact-denials
#[test]
fn denied_names_are_reported_exactly() {
    check("names");
}

/// Promise: exact-denials
#[test]
fn denied_removals_are_reported_exactly() {
    check("removal");
}

/// Promise: exact-denials
#[test]
fn denied_syscalls_are_reported_exactly() {
    check("calls");
}

/// Promise: exact-denials
#[test]
fn read_only_mode_denials_are_reported_exactly() {
    check("read-only");
}

/// Promise: exact-denials
#[test]
fn allowed_commands_report_no_denials() {
    check("nothing");
}

/// Promise: exact-denials
#[test]
fn build_tools_report_no_false_denials() {
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
