//! Chores of this workspace.
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let status = Command::new("cargo").args(["nextest", "run", "--workspace"]).status();
    if status.is_ok_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
