//! Compiles the portable crates for the systems that ringfence does not run on yet.

use std::process::{Command, Stdio};

use super::{finish, is_ci, linted};
use crate::{TaskResult, workspace};

/// The crates that compile for every system.
const CRATES: &[&str] = &[
    "ringfence-policy",
    "ringfence-api",
    "ringfence-cmdline",
    "ringfence-plan",
    "ringfence-audit",
    "ringfence-provider",
    "ringfence-engine",
    "ringfence-client",
];
/// Windows and macOS; the other steps compile for Linux.
const TARGETS: &[&str] = &["x86_64-pc-windows-gnu", "aarch64-apple-darwin"];

/// Checks the crates for all targets. Outside of CI, a target that cannot be installed skips the
/// step with a message.
pub(super) fn run() -> TaskResult {
    if let Err(error) = install_targets() {
        let what = format!("cannot compile for {}: {error}", TARGETS.join(" and "));
        if is_ci() {
            return Err(what.into());
        }
        println!("skipped: {what}");
        println!("hint: `rustup target add {}`", TARGETS.join(" "));
        return Ok(());
    }
    let mut arguments = vec!["check"];
    arguments.extend(TARGETS.iter().flat_map(|target| ["--target", target]));
    arguments.extend(CRATES.iter().flat_map(|name| ["--package", name]));
    println!("$ cargo {}", arguments.join(" "));
    finish("check", linted(workspace::cargo(&arguments))?)
}

/// Adds the missing targets to the toolchain that runs this task.
fn install_targets() -> TaskResult {
    let mut list = Command::new("rustup");
    list.args(["target", "list", "--installed"]).stderr(Stdio::inherit());
    let output = list
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run rustup: {error}"))?;
    if !output.status.success() {
        return Err(format!("rustup target list: {}", output.status).into());
    }
    let missing = missing_targets(&String::from_utf8(output.stdout)?);
    if missing.is_empty() {
        return Ok(());
    }
    println!("$ rustup target add {}", missing.join(" "));
    let status = Command::new("rustup")
        .args(["target", "add"])
        .args(&missing)
        .current_dir(workspace::root())
        .stdin(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(format!("rustup target add: {status}").into()) }
}

/// The targets that are not in the output of `rustup target list --installed`.
fn missing_targets(installed: &str) -> Vec<&'static str> {
    let is_missing = |target: &&&str| !installed.lines().any(|line| line.trim() == **target);
    TARGETS.iter().filter(is_missing).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, missing_targets};

    #[test]
    fn only_missing_targets_are_installed() {
        assert_eq!(missing_targets("x86_64-unknown-linux-gnu\n"), TARGETS);
        let one = "aarch64-apple-darwin\nx86_64-pc-windows-gnullvm\nx86_64-unknown-linux-gnu\n";
        assert_eq!(missing_targets(one), ["x86_64-pc-windows-gnu"]);
        assert!(missing_targets(&TARGETS.join("\n")).is_empty());
    }
}
