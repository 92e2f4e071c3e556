//! `cargo xtask fuzz commands`: lines that nobody would write, for the parser of command lines.
//!
//! What reads them is an example of the policy: chores know none of our crates. It is built as
//! tests are, so that an overflow is seen.

use std::process::{Command, Stdio};

use crate::{Done, workspace};

/// How long in CI.
pub(crate) const SECONDS: &str = "60";
/// The same lines each time in CI: what a change breaks is that change's doing. Others are for
/// whoever looks for more.
pub(crate) const SEED: &str = "1";

/// For so many seconds, by this seed if one is given: a line that breaks something is told with it.
pub(crate) fn run(seconds: &str, seed: Option<&str>) -> Done {
    let commands = workspace::build("ringfence-policy", &["--example", "commands"])?;
    let status = Command::new(commands).args(["fuzz", seconds]).args(seed).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("fuzz commands: {status}").into()) }
}
