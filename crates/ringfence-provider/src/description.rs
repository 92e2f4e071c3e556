//! Paths and protections of a sandbox, as plain data for the user.

use std::path::PathBuf;

use ringfence_api::Enforcement;
use ringfence_policy::AbsPath;
use serde_json::{Value, json};

/// Paths and protections of a sandbox, for `ringfence plan`, `explain` and `test`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SandboxDescription {
    /// The separation from the host, one line each.
    pub isolation: Vec<String>,
    /// Paths with a role of their own.
    pub paths: Vec<DescribedPath>,
    /// Resource limits.
    pub limits: Vec<String>,
    /// Further protections, one line each.
    pub hardening: Vec<HardeningLine>,
    /// The provider's own data, for `ringfence plan --json`.
    pub detail: Value,
}

impl SandboxDescription {
    /// The description by a provider that has no more than the lines of its enforcements.
    pub fn from_enforced(enforced: &[Enforcement]) -> Self {
        let line = |one: &Enforcement| HardeningLine { text: one.text.clone(), paths: Vec::new() };
        Self {
            hardening: enforced.iter().map(line).collect(),
            detail: json!(enforced),
            ..Self::default()
        }
    }
}

/// A path with a role of its own in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedPath {
    /// The path in the sandbox.
    pub path: AbsPath,
    /// Its role.
    pub role: PathRole,
}

/// The role of a path in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathRole {
    /// The host's, to read and write.
    ReadWrite,
    /// The host's, to read.
    ReadOnly,
    /// Writable and private to the project.
    Private {
        /// Its place on the host.
        store: AbsPath,
        /// The host's directory that shows through, if any.
        beneath: Option<AbsPath>,
    },
    /// Writable, and gone when the sandbox ends.
    Scratch,
    /// A symbolic link.
    Link {
        /// Its target.
        target: PathBuf,
    },
    /// A file that the provider generates.
    GeneratedFile,
    /// A directory that the provider generates.
    GeneratedDir,
    /// The files of the sandbox's own processes.
    Processes,
    /// Devices.
    Devices {
        /// The names of those that exist.
        names: &'static [&'static str],
    },
    /// Denied, in a tree that is allowed otherwise.
    Masked,
    /// Denied, outside the allowed trees.
    Denied,
    /// Read-only, in a tree that is writable otherwise.
    Protected,
    /// As [`PathRole::Protected`], without the mounts below it.
    ProtectedShallow,
}

/// A line about a protection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardeningLine {
    /// The text.
    pub text: String,
    /// Paths that end the line.
    pub paths: Vec<AbsPath>,
}
