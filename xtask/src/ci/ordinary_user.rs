//! A fast part of the tests as an ordinary user, when CI itself runs as root.
//!
//! The test programs are already built: nextest gets their paths and needs neither cargo nor a
//! compiler.

use std::error::Error;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::linted;
use crate::{TaskResult, workspace};

/// An id without an account, as in many containers.
const UID: u32 = 61_234;

/// Everyday behaviour; about a hundred tests.
const TESTS: &str =
    "binary(behaviour) & test(/^(work|secrets|status|outside|git|json|protect|environment)::/)";

/// Runs [`TESTS`] as [`UID`] in a temporary home directory.
pub(super) fn run() -> TaskResult {
    let home = std::env::temp_dir().join(format!("ringfence-ci-{}", std::process::id()));
    fs::create_dir_all(&home)?;
    let done = run_in(&home);
    fs::remove_dir_all(&home)?;
    done
}

fn run_in(home: &Path) -> TaskResult {
    // nextest writes the report of this run below the target directory.
    let reports = workspace::root().join("target/nextest/user");
    fs::create_dir_all(&reports)?;
    let binaries = [
        "nextest",
        "list",
        "--workspace",
        "--list-type",
        "binaries-only",
        "--message-format",
        "json",
    ];
    fs::write(home.join("binaries.json"), printed(linted(workspace::cargo(&binaries))?)?)?;
    // Crates of other platforms were never downloaded.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata =
        ["metadata", "--format-version", "1", "--offline", "--filter-platform", &platform];
    fs::write(home.join("cargo.json"), printed(workspace::cargo(&metadata))?)?;
    let nextest = home.join("cargo-nextest");
    fs::copy(find_nextest()?, &nextest)?;
    for path in [home, &reports] {
        chown(path, Some(UID), Some(UID))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new(nextest);
    command
        .args(["nextest", "run", "--profile", "user", "--cargo-metadata"])
        .arg(home.join("cargo.json"));
    command.arg("--binaries-metadata").arg(home.join("binaries.json")).args(["-E", TESTS]);
    command
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    // Without `CI`: tests that need root skip themselves and say so.
    command.env("RUST_BACKTRACE", "0");
    let status =
        command.current_dir(workspace::root()).uid(UID).gid(UID).stdin(Stdio::null()).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("tests as user {UID}: {status}; can that user enter {}?", reports.display())
            .into())
    }
}

fn printed(mut command: Command) -> Result<Vec<u8>, Box<dyn Error>> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!("{command:?}: {}", output.status).into())
    }
}

/// The program behind `cargo nextest`.
fn find_nextest() -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join("cargo-nextest"))
        .find(|program| program.is_file());
    found.ok_or_else(|| "cargo-nextest is not on PATH".into())
}
