//! `cargo xtask precision`: the precision of reported denials, over the whole corpus.
//!
//! The corpus and its runner are in the testkit: xtask depends on none of our crates.

use std::process::{Command, Stdio};

use crate::{TaskResult, workspace};

pub(crate) fn run() -> TaskResult {
    let ringfence = workspace::build("ringfence-cli", &["--bin", "ringfence"])?;
    let precision = workspace::build("ringfence-testkit", &["--bin", "precision"])?;
    let status = Command::new(precision).arg(ringfence).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("precision: not 100 %".into()) }
}
