//! `cargo xtask precision`: how well refusals are known, over the whole corpus.
//!
//! The corpus and what tries it are the testkit's: chores know none of our crates.

use std::process::{Command, Stdio};

use crate::{Done, workspace};

pub(crate) fn run() -> Done {
    let ringfence = workspace::build("ringfence-cli", &["--bin", "ringfence"])?;
    let precision = workspace::build("ringfence-testkit", &["--bin", "precision"])?;
    let status = Command::new(precision).arg(ringfence).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err("precision: not 100 %".into()) }
}
