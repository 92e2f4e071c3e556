//! `cargo xtask soak`: very many sandboxes in one program, and that nothing is left of them.
//!
//! What opens them is an example of the library: chores know none of our crates.

use std::process::{Command, Stdio};

use crate::{Done, workspace};

/// So many one after the other, then so many at once.
const TASK: [&str; 3] = ["soak", "1000", "200"];

pub(crate) fn run() -> Done {
    let many = workspace::build("ringfence", &["--release", "--example", "many"])?;
    // With a home of its own: what it leaves there would be seen, and the person's is left alone.
    let home = std::env::temp_dir().join(format!("ringfence-soak-{}", std::process::id()));
    let project = home.join("project");
    std::fs::create_dir_all(&project)?;
    let mut command = Command::new(many);
    command
        .args(TASK)
        .current_dir(&project)
        .env("HOME", &home)
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_STATE_HOME");
    let status = command.stdin(Stdio::null()).status();
    std::fs::remove_dir_all(&home)?;
    if status?.success() { Ok(()) } else { Err("soak: something went wrong or is left".into()) }
}
