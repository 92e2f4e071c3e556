//! `cargo xtask soak`: very many sandboxes in one program, and a check that nothing is left.
//!
//! An example of the library opens them: xtask depends on none of our crates.

use std::process::{Command, Stdio};

use crate::{TaskResult, workspace};

/// The number of sequential sandboxes, and of concurrent ones.
const TASK: [&str; 3] = ["soak", "1000", "200"];

pub(crate) fn run() -> TaskResult {
    let many = workspace::build("ringfence", &["--release", "--example", "many"])?;
    // With a temporary home, to see leftovers there and to keep the user's home unchanged.
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
    if status?.success() {
        Ok(())
    } else {
        Err("soak: a sandbox failed or left something behind".into())
    }
}
