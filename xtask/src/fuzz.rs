//! `cargo xtask fuzz`: generated command lines for the shell parser, and generated archives for the
//! skill store.
//!
//! The fuzzers are examples of those crates, because xtask depends on none of them. They are built
//! like tests, so that an overflow panics.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::workspace::{self, BuiltPrograms};
use crate::{TaskResult, stress};

/// Seconds for each target by default, and in CI.
pub(crate) const SECONDS: &str = "60";
const SECONDS_IN_CI: &str = "10";
/// The seed in CI is fixed, so a failure there is caused by the change under test.
const SEED_IN_CI: &str = "1";

/// Each target: the name of the example, and the crate it belongs to.
const TARGETS: &[(&str, &str)] =
    &[("commands", "ringfence-cmdline"), ("archives", "ringfence-skills")];

/// Fuzzes one target for so many seconds, with a given or a random seed.
pub(crate) fn run(target: &str, seconds: &str, seed: Option<&str>) -> TaskResult {
    let (name, package) = TARGETS
        .iter()
        .find(|(name, _)| *name == target)
        .ok_or_else(|| format!("no fuzz target `{target}`"))?;
    // Optimised, so that more inputs are tried; overflows still panic.
    let program =
        workspace::build(package, &["--example", name, "--config", "profile.dev.opt-level=2"])?;
    finish(name, start(&program, seconds, seed)?)
}

/// Fuzzes every target at the same time, briefly, with programs that are already built.
pub(crate) fn run_briefly(programs: &BuiltPrograms) -> TaskResult {
    let mut started = Vec::new();
    for (name, _) in TARGETS {
        started.push((*name, start(programs.find(name)?, SECONDS_IN_CI, Some(SEED_IN_CI))));
    }
    // Waits for each, even if another failed.
    let done: Vec<TaskResult> =
        started.into_iter().map(|(name, child)| finish(name, child?)).collect();
    done.into_iter().collect()
}

/// Fuzzes every target in turn, with random seeds.
pub(crate) fn run_all(seconds: &str) -> TaskResult {
    TARGETS.iter().try_for_each(|(name, _)| stress::step(name, || run(name, seconds, None)))
}

fn start(
    program: &Path,
    seconds: &str,
    seed: Option<&str>,
) -> Result<Child, Box<dyn std::error::Error>> {
    Ok(Command::new(program).args(["fuzz", seconds]).args(seed).stdin(Stdio::null()).spawn()?)
}

fn finish(target: &str, mut child: Child) -> TaskResult {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("fuzz {target}: {status}").into()) }
}
