//! Every known way out of the sandbox must fail: one file per family, one guarantee per test,
//! tried as the superuser and as an ordinary user.

mod below_denied_names;
mod connecting;
mod devices;
mod file_systems;
mod foreign_calls;
mod git_index;
mod git_state;
mod git_worktrees;
mod hard_links;
mod ipc;
mod kernel;
mod left_over;
mod making;
mod mounts;
mod network;
mod next_run;
mod notify_handler;
mod planted;
mod privilege;
mod processes;
mod races;
mod reading;
mod sweep;
mod terminal;
mod tracked_files;
mod two_sandboxes;
mod unfinished;

use ringfence_testkit::{TestProject, TestUser};

/// A fresh project with the binary under test.
fn project(user: TestUser) -> TestProject {
    TestProject::new(user, env!("CARGO_BIN_EXE_ringfence-e2e"))
}
