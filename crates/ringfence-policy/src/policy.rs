//! The policy as it is written.
//!
//! These types are the contract of the file format: the parser, the JSON Schema and the
//! renderer all come from them.

mod network;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::command::Platform;
use crate::disguise::Disguise;
use crate::grants::{Asking, Doubt, Fsync, HookSession, Mode, Observe, OnError, OnGap};
use crate::tracked::TrackedMode;
pub use network::{NetworkSection, PortChoice, SecretSection};

/// The one version of the format there is.
pub const VERSION: u32 = 1;

/// A policy file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// The one project that this file is about, by its absolute path: in files below
    /// `~/.config/ringfence/projects` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Other policy files that lie beneath this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<String>,
    /// How much of the workspace may be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// What to do when something asked for cannot be enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_gap: Option<OnGap>,
    /// What is told of a run: what was refused, or all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
    /// Who is asked about what is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Asking>,
    /// Whether there is a sandbox.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox: SandboxSection,
    /// Files and directories.
    #[serde(default, skip_serializing_if = "is_default")]
    pub filesystem: FilesystemSection,
    /// Variables.
    #[serde(default, skip_serializing_if = "is_default")]
    pub environment: EnvironmentSection,
    /// The network.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: NetworkSection,
    /// Guards on the command's text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub commands: CommandsSection,
    /// Tools of agents.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tools: ToolsSection,
    /// Ceilings on what a command may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsSection,
    /// The log of what was run and refused.
    #[serde(default, skip_serializing_if = "is_default")]
    pub audit: AuditSection,
    /// Values that stay outside and are put into requests on the way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretSection>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            version: VERSION,
            project: None,
            extends: Vec::new(),
            mode: None,
            on_gap: None,
            observe: None,
            ask: None,
            sandbox: SandboxSection::default(),
            filesystem: FilesystemSection::default(),
            environment: EnvironmentSection::default(),
            network: NetworkSection::default(),
            commands: CommandsSection::default(),
            tools: ToolsSection::default(),
            limits: LimitsSection::default(),
            audit: AuditSection::default(),
            secrets: Vec::new(),
        }
    }
}

/// `[sandbox]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SandboxSection {
    /// Whether commands are confined at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// If given: the only systems on which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_platforms: Option<Vec<Platform>>,
    /// Whether nothing runs where a sandbox cannot be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_if_unavailable: Option<bool>,
    /// Whether somebody may ask for a command, or an agent, to run without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsandboxed_commands: Option<bool>,
    /// Whether what an agent runs in the sandbox needs nobody's consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_allow_bash_if_sandboxed: Option<bool>,
    /// Which commands of an agent that calls hooks share a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_session: Option<HookSession>,
    /// How long such a sandbox stands with no command running in it (`30m`); eight times as long
    /// while processes run in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_session_idle: Option<Amount>,
}

/// `[filesystem]`: paths, and for `deny`, `hide`, `protect` and `except` also globs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FilesystemSection {
    /// Readable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathEntry>,
    /// Readable and writable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathEntry>,
    /// Nothing at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<PathEntry>,
    /// As `deny`, but a hidden name looks absent to programs that read it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hide: Vec<PathEntry>,
    /// Readable, never writable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<PathEntry>,
    /// Re-opens what a glob in `deny`, `hide` or `protect` caught.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<PathEntry>,
    /// Files that git tracks unchanged and that a built-in pattern would deny: `open` (the default)
    /// or `deny`. A project's policy may only choose `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracked: Option<TrackedMode>,
    /// How a denied `.env`, `.env.*` or `.envrc` answers a program that reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_files: Option<Disguise>,
}

/// A path or glob, alone or with more to say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a path, or a table such as { path = \"...\", reason = \"...\" }"
)]
pub enum PathEntry {
    /// `"~/data"`
    Text(String),
    /// `{ path = "~/data", reason = "..." }`
    Table(EntryTable),
}

/// A path or glob with more to say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EntryTable {
    /// The path or glob.
    pub path: String,
    /// Whether no grant lifts it; in the managed policy only.
    #[serde(default, skip_serializing_if = "is_default")]
    pub locked: bool,
    /// Why it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl PathEntry {
    /// The path or glob.
    pub fn path(&self) -> &str {
        match self {
            PathEntry::Text(path) => path,
            PathEntry::Table(table) => &table.path,
        }
    }

    /// Whether no grant lifts it.
    pub fn is_locked(&self) -> bool {
        matches!(self, PathEntry::Table(EntryTable { locked: true, .. }))
    }

    /// Why it is there.
    pub fn reason(&self) -> Option<&str> {
        match self {
            PathEntry::Text(_) => None,
            PathEntry::Table(table) => table.reason.as_deref(),
        }
    }
}

impl From<&str> for PathEntry {
    fn from(path: &str) -> Self {
        PathEntry::Text(path.to_owned())
    }
}

/// `[environment]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EnvironmentSection {
    /// `default` filters, `clean` passes exactly six variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<EnvironmentProfile>,
    /// Names that pass, `*` and `?` allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Names that never pass, `*` and `?` allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Variables that are set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

/// Which variables pass to begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentProfile {
    /// What tools need, no secrets.
    Default,
    /// Exactly six variables.
    Clean,
}

/// `[commands]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CommandsSection {
    /// Patterns that are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// If not empty: the only programs that may be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_binaries: Vec<String>,
    /// Texts no argument may hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_arguments: Vec<String>,
    /// Absolute paths in arguments must stay below this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_arguments: Option<String>,
    /// Commands that run outside the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Answer of `deny` to a line of which a part cannot be known: `"warn"` (the default) runs it
    /// in the sandbox and records it, `"refuse"` does not run it. The strictest file wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

/// `[tools]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ToolsSection {
    /// If given: the only tools that may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// Tools that may not be used; without `Write` and `Edit` the workspace is read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed: Vec<String>,
}

/// `[limits]`: durations such as `"5m"`, sizes such as `"512MiB"`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LimitsSection {
    /// Wall time; a number is seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Amount>,
    /// CPU time; a number is seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    /// Memory; a number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Open files of one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// One file; a number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Amount>,
    /// Written to disk; a number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Amount>,
    /// Output that is kept; a number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Amount>,
}

/// `[audit]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AuditSection {
    /// When the log is forced onto the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<Fsync>,
    /// What to do when the log cannot be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// The size at which another file is begun, at least 64 KiB; a number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_size: Option<Amount>,
}

/// A number, or a number with a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number, or a text such as \"5m\" or \"512MiB\"")]
pub enum Amount {
    /// Seconds or bytes.
    Number(u64),
    /// `"5m"`, `"512MiB"`
    Text(String),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
