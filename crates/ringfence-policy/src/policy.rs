//! The policy file format.
//!
//! The parser, the JSON Schema and the renderer all derive from these types.

mod network;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::disguise::Disguise;
use crate::facts::Platform;
use crate::grants::{Asking, Doubt, Fsync, HookSession, Mode, Observe, OnError, OnGap};
use crate::tracked::TrackedMode;
pub use network::{NetworkSection, PortChoice, SecretSection};

/// The only supported version of the format.
pub const VERSION: u32 = 1;

/// A policy file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// Version of the format: 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// Absolute path of the project that this file applies to. Only allowed in files below
    /// `~/.config/ringfence/projects`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Base policy files, and tools whose own settings apply as well: `claude-code`, `codex`, `uds`,
    /// `synapse`. Their lists are added to, their settings are overridden by this file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<String>,
    /// Write access to the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Action when this host cannot enforce a requested rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_gap: Option<OnGap>,
    /// Events to report: denials only, or all events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<Observe>,
    /// Prompt on a denial: never, or on the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Asking>,
    /// Use of the sandbox.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sandbox: SandboxSection,
    /// Access to files and directories.
    #[serde(default, skip_serializing_if = "is_default")]
    pub filesystem: FilesystemSection,
    /// Environment variables of the command.
    #[serde(default, skip_serializing_if = "is_default")]
    pub environment: EnvironmentSection,
    /// Access to the network.
    #[serde(default, skip_serializing_if = "is_default")]
    pub network: NetworkSection,
    /// Rules on the text of command lines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub commands: CommandsSection,
    /// Tools that an agent may use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tools: ToolsSection,
    /// Resource limits of a command.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsSection,
    /// Audit log of runs and denials.
    #[serde(default, skip_serializing_if = "is_default")]
    pub audit: AuditSection,
    /// Secrets that stay outside the sandbox. ringfence inserts them into outgoing requests.
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
    /// `false` runs commands without a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// If set, the sandbox is only used on these platforms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled_platforms: Option<Vec<Platform>>,
    /// The provider of the sandbox, with its options: `NAME` or `NAME:key=value,…`. A repository's
    /// file cannot choose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `true` refuses to run a command if no sandbox can be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_if_unavailable: Option<bool>,
    /// `true` lets the user request a run of a command or an agent without a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_unsandboxed_commands: Option<bool>,
    /// `true` lets an agent run sandboxed commands without the user's consent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_allow_bash_if_sandboxed: Option<bool>,
    /// Commands of an agent that share one sandbox. Applies to agents that start ringfence from a
    /// hook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_session: Option<HookSession>,
    /// Idle time after which a shared sandbox is removed (`30m`). Eight times as long while
    /// background processes run in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hook_session_idle: Option<Amount>,
}

/// `[filesystem]`: paths. `deny`, `hide`, `protect` and `except` also take globs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FilesystemSection {
    /// Readable paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<PathEntry>,
    /// Readable and writable paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<PathEntry>,
    /// Paths that are neither readable nor writable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<PathEntry>,
    /// As `deny`, but the path looks absent to programs that read it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hide: Vec<PathEntry>,
    /// Readable paths that are never writable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<PathEntry>,
    /// Exceptions to the globs in `deny`, `hide` and `protect`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<PathEntry>,
    /// Files that git tracks without local changes and that a built-in pattern denies: `open` (the
    /// default) or `deny`. A project's policy may only set `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracked: Option<TrackedMode>,
    /// Result of reading a denied `.env`, `.env.*` or `.envrc` file: `deny` (EACCES, the default),
    /// `hide` (looks absent) or `empty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_files: Option<Disguise>,
}

/// A path or glob, alone or in a table with options.
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

/// A path or glob with options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EntryTable {
    /// The path or glob.
    pub path: String,
    /// `true` if no grant may override this entry. Only allowed in the managed policy.
    #[serde(default, skip_serializing_if = "is_default")]
    pub locked: bool,
    /// Reason for this entry, shown in denials.
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

    /// True if no grant may override this entry.
    pub fn is_locked(&self) -> bool {
        matches!(self, PathEntry::Table(EntryTable { locked: true, .. }))
    }

    /// The reason for this entry, if given.
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
    /// `default` filters out secrets, `clean` passes exactly six variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<EnvironmentProfile>,
    /// Names of variables to pass; `*` and `?` are wildcards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Names of variables that never pass; `*` and `?` are wildcards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Variables to set, with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, String>,
}

/// Base set of variables that pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EnvironmentProfile {
    /// Variables that common tools need, without secrets.
    Default,
    /// Exactly six variables.
    Clean,
}

/// `[commands]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CommandsSection {
    /// Patterns of commands to refuse.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// If not empty, the only programs that a command line may name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow_binaries: Vec<String>,
    /// Texts that no argument may contain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny_arguments: Vec<String>,
    /// Absolute paths in arguments must stay below this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor_arguments: Option<String>,
    /// Commands that run outside the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    /// Action of `deny` when a part of the line is only known at run time: `"warn"` (the default)
    /// runs the line in the sandbox and records it, `"refuse"` does not run it. The strictest
    /// policy file wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

/// `[tools]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ToolsSection {
    /// If set, the only tools that may be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// Tools that may not be used. If `Write` or `Edit` is listed, the workspace is read-only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disallowed: Vec<String>,
}

/// `[limits]`: durations such as `"5m"`, sizes such as `"512MiB"`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LimitsSection {
    /// Wall-clock time; a plain number is seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall: Option<Amount>,
    /// CPU time; a plain number is seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Amount>,
    /// Memory; a plain number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Amount>,
    /// Number of processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Number of open files per process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Size of one file; a plain number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_size: Option<Amount>,
    /// Amount written to disk; a plain number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Amount>,
    /// Amount of output to keep; a plain number is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Amount>,
}

/// `[audit]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AuditSection {
    /// When to sync the log to disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<Fsync>,
    /// Action when the log cannot be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// Size at which the log is rotated, at least 64 KiB; a plain number is bytes.
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
