//! Every known way out, each of which must fail: one file per family, each test named by
//! what must not happen, tried as the superuser and as an ordinary user.

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
mod usher;

use ringfence_testkit::{TestProject, TestUser};

/// A fresh project in which the binary under test is at hand.
fn project(user: TestUser) -> TestProject {
    TestProject::new(user, env!("CARGO_BIN_EXE_ringfence"))
}
