//! Where the workspace is and how its cargo is called.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The workspace's top directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that started us, in the workspace's top directory.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // What `cargo run` told us of ourselves is none of its business: build scripts that look at it would run anew.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// What cargo knows of the workspace's own packages.
pub(crate) fn metadata() -> Result<Value, Box<dyn Error>> {
    let output =
        cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"]).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err("cargo metadata failed".into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Builds `package` and answers the program it made.
///
/// Cargo is asked for the path: it depends on the target, the profile and the
/// caller's own settings.
pub(crate) fn build(package: &str, flags: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let mut arguments = vec!["build", "--package", package, "--message-format", "json-render-diagnostics"];
    arguments.extend(flags);
    let output = cargo(&arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("cannot build {package}").into());
    }
    String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .ok_or_else(|| format!("{package} has no program").into())
}
