//! The location of the workspace, and calls of cargo.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// The top directory of the workspace: that of the `cargo run`, because a copied target directory
/// has the binary of another workspace.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let manifest = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        manifest.parent().expect("xtask is in the workspace").to_owned()
    })
}

/// A command of the cargo that started this program, in the top directory of the workspace.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // Build scripts that read the variables `cargo run` set for xtask would run again.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        }) {
            command.env_remove(name);
        }
    }
    command
}

/// Cargo's metadata of the workspace's own packages.
pub(crate) fn metadata() -> Result<Value, Box<dyn Error>> {
    let output = cargo(&["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err("cargo metadata failed".into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Builds `package` and returns the program it made.
pub(crate) fn build(package: &str, flags: &[&str]) -> Result<PathBuf, Box<dyn Error>> {
    let mut command = cargo(&["build", "--package", package]);
    command.args(flags);
    let programs = BuiltPrograms::build(command)?;
    programs
        .0
        .into_iter()
        .next_back()
        .map(|(_, path)| path)
        .ok_or_else(|| format!("{package} has no program").into())
}

/// The programs of one cargo build: binaries and examples, by name.
///
/// The paths come from cargo: they depend on the target, the profile and the user's settings.
pub(crate) struct BuiltPrograms(Vec<(String, PathBuf)>);

impl BuiltPrograms {
    /// Runs `command`, a `cargo build`, and reads the programs from its messages.
    pub(crate) fn build(mut command: Command) -> Result<BuiltPrograms, Box<dyn Error>> {
        let output = command
            .args(["--message-format", "json-render-diagnostics"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("cargo build: {}", output.status).into());
        }
        let messages = String::from_utf8(output.stdout)?;
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(BuiltPrograms(messages.filter_map(|message| program(&message)).collect()))
    }

    /// The program with this name.
    pub(crate) fn find(&self, name: &str) -> Result<&Path, Box<dyn Error>> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found
            .map(|(_, path)| path.as_path())
            .ok_or_else(|| format!("cargo built no program called {name}").into())
    }
}

/// Name and path of the program in a message of cargo; test binaries do not count.
fn program(message: &Value) -> Option<(String, PathBuf)> {
    let path = message["executable"].as_str()?;
    let is_test = message["profile"]["test"].as_bool() == Some(true);
    (!is_test).then(|| {
        (message["target"]["name"].as_str().unwrap_or_default().to_owned(), PathBuf::from(path))
    })
}
