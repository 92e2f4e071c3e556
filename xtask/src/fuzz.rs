//! `cargo xtask fuzz`: lines that nobody would write, for the parser of command lines, and
//! archives that nobody would make, for the store of skills.
//!
//! What reads them are examples of those crates: chores know none of our crates. They are built as
//! tests are, so that an overflow is seen.

use std::process::{Child, Command, Stdio};

use crate::{Done, workspace};

/// How long in CI.
pub(crate) const SECONDS: &str = "60";
/// The same each time in CI: what a change breaks is that change's doing. Others are for whoever
/// looks for more.
pub(crate) const SEED: &str = "1";

/// What is fuzzed: its name, which is that of the example, and the crate that has it.
const TARGETS: &[(&str, &str)] = &[("commands", "ringfence-policy"), ("archives", "ringfence-skills")];

/// For so many seconds, by this seed if one is given: what breaks something is told with it.
pub(crate) fn run(target: &str, seconds: &str, seed: Option<&str>) -> Done {
    let known = TARGETS.iter().find(|(name, _)| *name == target);
    let known = known.ok_or_else(|| format!("nothing called {target} can be fuzzed"))?;
    finish(known.0, start(known, seconds, seed)?)
}

/// All of them at the same time, so that CI takes as long as one.
pub(crate) fn all() -> Done {
    let mut started = Vec::new();
    for target in TARGETS {
        started.push((target.0, start(target, SECONDS, Some(SEED))));
    }
    // Each is waited for, whatever became of the others.
    let done: Vec<Done> = started.into_iter().map(|(name, child)| finish(name, child?)).collect();
    done.into_iter().collect()
}

fn start((target, package): &(&str, &str), seconds: &str, seed: Option<&str>) -> Result<Child, Box<dyn std::error::Error>> {
    let program = workspace::build(package, &["--example", target])?;
    Ok(Command::new(program).args(["fuzz", seconds]).args(seed).stdin(Stdio::null()).spawn()?)
}

fn finish(target: &str, mut child: Child) -> Done {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("fuzz {target}: {status}").into()) }
}
