//! `cargo xtask soak`: very many sandboxes in one program, and that nothing is left of them.
//!
//! What opens them is an example of the library: chores know none of our crates.

use std::process::{Command, Stdio};

use crate::{Done, workspace};

/// So many one after the other, then so many at once.
const TASK: [&str; 3] = ["soak", "1000", "200"];

pub(crate) fn run() -> Done {
    let many = workspace::build("ringfence", &["--release", "--example", "many"])?;
    let project = std::env::temp_dir().join(format!("ringfence-soak-{}", std::process::id()));
    std::fs::create_dir(&project)?;
    let status = Command::new(many).args(TASK).current_dir(&project).stdin(Stdio::null()).status();
    std::fs::remove_dir_all(&project)?;
    if status?.success() { Ok(()) } else { Err("soak: something went wrong or is left".into()) }
}
