//! What a policy means here: absolute rules with their origins, ready to be planned or asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::disguise::Disguises;
use crate::glob::Glob;
use crate::limit::Limit;
pub use crate::network::{NetworkMode, NetworkRules, PortSelection};
use crate::path::AbsPath;
use crate::tools::ToolRules;
use crate::tracked::TrackedFiles;

/// The resolved policy: every path absolute, every rule with the place it came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grants {
    /// How much of the workspace may be written.
    pub mode: Mode,
    /// The project that is worked on.
    pub workspace: AbsPath,
    /// The user's home directory.
    pub home: AbsPath,
    /// Rules on paths; see [`Grants::decide`] for who wins.
    pub rules: Vec<Rule>,
    /// Rules on names, which hold in every opened tree, also for files that appear later.
    pub patterns: Vec<NameRule>,
    /// What re-opens a file that a pattern caught.
    pub exceptions: Vec<NameException>,
    /// Files that are open because git tracks them.
    pub tracked: TrackedFiles,
    /// Which denied names look absent, or empty.
    pub disguises: Disguises,
    /// Files of tools, and directories of such files, that are denied if they hold credentials.
    pub suspects: Vec<AbsPath>,
    /// Which variables pass.
    pub environment: EnvironmentRules,
    /// What of the network is open.
    pub network: NetworkRules,
    /// Guards on the command's text.
    pub commands: CommandRules,
    /// Tools that may not be used.
    pub tools: ToolRules,
    /// Ceilings on what a command may use.
    pub limits: Limits,
    /// What to do when something asked for cannot be enforced.
    pub on_gap: OnGap,
    /// What is told of a run.
    pub observe: Observe,
    /// Who is asked about what is refused.
    pub ask: Asking,
    /// How the audit log is kept.
    pub audit: AuditRules,
    /// Whether commands are confined at all.
    pub enabled: bool,
    /// Who may do without.
    pub sandbox: SandboxRules,
    /// Things worth telling the person, such as a rule that had no effect.
    pub warnings: Vec<String>,
}

/// How much of the workspace may be written.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing but the private `/tmp` is writable.
    ReadOnly,
    /// The workspace is writable.
    #[default]
    WorkspaceWrite,
    /// No confinement at all.
    FullAccess,
}

/// Who may do without a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRules {
    /// Whether nothing runs where one cannot be made.
    pub fail_if_unavailable: bool,
    /// Whether somebody may ask to run without.
    pub allow_unsandboxed: bool,
    /// Whether what an agent runs in it needs nobody's consent.
    pub auto_allow: bool,
    /// Why there is none, where the policy switches it off.
    pub off: Option<Origin>,
    /// Which commands of an agent that calls hooks share one.
    pub hook_session: HookSession,
    /// How long a shared one stands with no command running in it, in milliseconds.
    pub hook_session_idle_ms: u64,
}

/// Which commands of an agent that calls hooks share a sandbox.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HookSession {
    /// None: each command has a sandbox of its own.
    Call,
    /// Those of one conversation, in one shell.
    #[default]
    Conversation,
}

/// Half an hour.
const HOOK_SESSION_IDLE_MS: u64 = 30 * 60 * 1000;

impl Default for SandboxRules {
    fn default() -> Self {
        Self {
            fail_if_unavailable: true,
            allow_unsandboxed: false,
            auto_allow: true,
            off: None,
            hook_session: HookSession::default(),
            hook_session_idle_ms: HOOK_SESSION_IDLE_MS,
        }
    }
}

/// What to do when something asked for cannot be enforced on this host.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnGap {
    /// Run nothing.
    #[default]
    Refuse,
    /// Run, and say what was not enforced.
    Run,
}

/// What is told of a run.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Observe {
    /// Also every file that was opened, every program that was started and every host that was
    /// reached: each of these calls is asked about, and takes longer.
    All,
    /// What was refused.
    #[default]
    Denials,
}

/// Who is asked about what is refused.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Asking {
    /// Nobody: it stays refused.
    #[default]
    Never,
    /// The person at the terminal, while whoever wanted it waits.
    Terminal,
}

/// What to do when the audit log cannot be written.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// Run nothing.
    #[default]
    Refuse,
    /// Run, and say that it was not recorded.
    Run,
}

/// How the audit log is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRules {
    /// Where it is.
    pub directory: AbsPath,
    /// When it is forced onto the disk.
    pub fsync: Fsync,
    /// What to do when it cannot be written.
    pub on_error: OnError,
    /// The size at which another file is begun, in bytes.
    pub rotate_bytes: u64,
}

impl AuditRules {
    /// What holds where no policy says otherwise, for what is kept in `state`.
    pub fn default_in(state: &AbsPath) -> Self {
        Self {
            directory: state.join("audit"),
            fsync: Fsync::Never,
            on_error: OnError::Refuse,
            rotate_bytes: 64 << 20,
        }
    }
}

/// When the audit log is forced onto the disk.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// After every record: nothing starts before the disk has its record.
    Always,
    /// When a run has ended.
    End,
    /// When the system sees fit: only a crash of the whole machine loses records, those of
    /// its last seconds.
    #[default]
    Never,
}

/// One rule on a path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Where the rule begins.
    pub root: AbsPath,
    /// What it does.
    pub effect: Effect,
    /// Where it was written.
    pub origin: Origin,
    /// A managed rule that no grant lifts.
    pub locked: bool,
}

/// What a rule on a path does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Readable and executable.
    Read,
    /// Readable and writable.
    Write,
    /// Readable, never writable, also while absent.
    Protect,
    /// Nothing at all.
    Deny,
    /// Writable in a place private to the project; what the host has may show through.
    Private {
        /// Where the sandbox's own writes are kept.
        store: AbsPath,
        /// Whether the host's files are readable underneath.
        host_beneath: bool,
    },
}

/// A rule on names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameRule {
    /// What it matches.
    pub glob: Glob,
    /// [`PatternEffect::Deny`] or [`PatternEffect::Protect`].
    pub effect: NameRuleEffect,
    /// Where it was written.
    pub origin: Origin,
    /// A managed rule that no grant lifts.
    pub locked: bool,
}

/// What a rule on names does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameRuleEffect {
    /// Nothing at all.
    Deny,
    /// Readable, never writable, also while absent.
    Protect,
}

/// What re-opens a file that a pattern caught.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameException {
    /// What it matches.
    pub glob: Glob,
    /// Where it was written.
    pub origin: Origin,
}

/// Where a rule was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Which layer.
    pub source: Source,
    /// The rule as it was written.
    pub text: String,
    /// The file, where there is one.
    pub file: Option<AbsPath>,
    /// Line in the file, from 1.
    pub line: Option<u32>,
    /// Why it is there, in the words of whoever wrote it.
    pub reason: Option<String>,
}

impl Origin {
    /// An origin without a file.
    pub fn new(source: Source, text: impl Into<String>) -> Self {
        Self { source, text: text.into(), file: None, line: None, reason: None }
    }
}

/// The layer a rule comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Part of ringfence.
    BuiltIn,
    /// Follows from the mode, e.g. the workspace itself.
    Mode,
    /// Follows from tools that were taken away.
    Tools,
    /// A tool that was found, by name (`cargo`, `git`, `node` …).
    Preset(String),
    /// `/etc/ringfence/policy.toml`.
    Managed,
    /// `~/.config/ringfence/policy.toml`.
    User,
    /// `.ringfence/policy.toml`.
    Project,
    /// A flag of this run.
    Flag,
    /// A person said yes in the middle.
    Session,
}

impl Source {
    /// Whether a person stands behind the rule: only then may it open a built-in deny.
    pub fn is_person(&self) -> bool {
        matches!(self, Source::User | Source::Flag | Source::Session)
    }
}

/// Which variables pass, resolved over all layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentRules {
    /// Exactly the documented six variables and nothing else.
    pub clean: bool,
    /// Name globs that pass.
    pub allow: Vec<String>,
    /// Name globs that never pass.
    pub deny: Vec<String>,
    /// Names a person asked for by name: they pass even if a deny matches.
    pub named: Vec<String>,
    /// Variables that are set.
    pub set: BTreeMap<String, String>,
}

/// Guards on the command's text; see [`command`](crate::command). Each rule is the text of its
/// origin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRules {
    /// Patterns that are refused.
    pub deny: Vec<Origin>,
    /// If not empty: the only programs that may be named.
    pub allow_binaries: Vec<Origin>,
    /// Texts no argument may hold.
    pub deny_arguments: Vec<Origin>,
    /// Where absolute paths in arguments must stay.
    pub anchor_arguments: Option<Anchor>,
    /// Commands that run outside the sandbox, where somebody asks.
    pub excluded: Vec<Origin>,
    /// Treatment of a line of which a part cannot be known.
    pub doubt: Doubt,
}

/// Treatment of a command line of which a part cannot be known before it runs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// It is refused.
    #[default]
    Refuse,
    /// It runs in the sandbox, and the log says so.
    Warn,
}

/// The directory below which absolute paths in arguments must stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The directory.
    pub root: AbsPath,
    /// Where it was written.
    pub origin: Origin,
}

/// Ceilings; `None` is no ceiling.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time in milliseconds.
    pub wall_ms: Option<u64>,
    /// CPU time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
    /// Bytes written to disk.
    pub disk: Option<u64>,
    /// Bytes of output.
    pub output: Option<u64>,
}

impl Limits {
    /// Those that were asked for.
    pub fn asked(&self) -> Vec<(Limit, u64)> {
        Limit::ALL.iter().filter_map(|limit| Some((*limit, self.of(*limit)?))).collect()
    }

    /// One of them.
    pub fn of(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Wall => self.wall_ms,
            Limit::Cpu => self.cpu_ms,
            Limit::Memory => self.memory,
            Limit::Processes => self.processes,
            Limit::OpenFiles => self.open_files,
            Limit::FileSize => self.file_size,
            Limit::Disk => self.disk,
            Limit::Output => self.output,
        }
    }

    /// The same with another number for one of them.
    #[must_use]
    pub fn with(mut self, limit: Limit, most: Option<u64>) -> Self {
        *match limit {
            Limit::Wall => &mut self.wall_ms,
            Limit::Cpu => &mut self.cpu_ms,
            Limit::Memory => &mut self.memory,
            Limit::Processes => &mut self.processes,
            Limit::OpenFiles => &mut self.open_files,
            Limit::FileSize => &mut self.file_size,
            Limit::Disk => &mut self.disk,
            Limit::Output => &mut self.output,
        } = most;
        self
    }
}
