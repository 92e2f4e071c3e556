//! The resolved policy: absolute rules with their origins, ready for planning and decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::disguise::Disguises;
use crate::glob::Glob;
use crate::limit::Limit;
pub use crate::network::{NetworkMode, NetworkRules, PortSelection};
use crate::path::AbsPath;
use crate::provider_spec::ProviderSpec;
use crate::tools::ToolRules;
use crate::tracked::TrackedFiles;

/// The resolved policy. Every path is absolute, and every rule has its origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grants {
    /// Write access to the workspace.
    pub mode: Mode,
    /// The project directory.
    pub workspace: AbsPath,
    /// The user's home directory.
    pub home: AbsPath,
    /// Rules on paths; see [`Grants::decide`] for their precedence.
    pub rules: Vec<Rule>,
    /// Rules on names. They apply in every opened tree, also to files created later.
    pub patterns: Vec<NameRule>,
    /// Globs that exempt a file from a name rule.
    pub exceptions: Vec<NameException>,
    /// Files that are open because git tracks them.
    pub tracked: TrackedFiles,
    /// Denied names that look absent or empty.
    pub disguises: Disguises,
    /// Configuration files of tools, and directories of such files, denied if they contain
    /// credentials.
    pub suspects: Vec<AbsPath>,
    /// Environment variables that pass.
    pub environment: EnvironmentRules,
    /// Rules on network access.
    pub network: NetworkRules,
    /// Rules on the text of command lines.
    pub commands: CommandRules,
    /// Tools that may not be used.
    pub tools: ToolRules,
    /// Resource limits of a command.
    pub limits: Limits,
    /// Action when this host cannot enforce a requested rule.
    pub on_gap: OnGap,
    /// Events to report.
    pub observe: Observe,
    /// Prompt on a denial.
    pub ask: Asking,
    /// Settings of the audit log.
    pub audit: AuditRules,
    /// True if commands run in a sandbox at all.
    pub enabled: bool,
    /// Rules on running without a sandbox.
    pub sandbox: SandboxRules,
    /// Warnings for the user, such as a rule without effect.
    pub warnings: Vec<String>,
}

/// Write access to the workspace.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Only the private `/tmp` is writable.
    ReadOnly,
    /// The workspace is writable.
    #[default]
    WorkspaceWrite,
    /// No sandbox restrictions.
    FullAccess,
}

/// Rules on running without a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxRules {
    /// True if nothing runs when no sandbox can be created.
    pub fail_if_unavailable: bool,
    /// True if the user may request a run without a sandbox.
    pub allow_unsandboxed: bool,
    /// True if an agent's sandboxed commands need no consent of the user.
    pub auto_allow: bool,
    /// The rule that disables the sandbox, if one does.
    pub off: Option<Origin>,
    /// The provider of the sandbox. Without a sandbox, `process` runs the commands.
    pub provider: ProviderSpec,
    /// Origin of the choice.
    pub provider_origin: Origin,
    /// True if no provider without confinement may run a command.
    pub is_required: bool,
    /// Commands of an agent's hook that share one sandbox.
    pub hook_session: HookSession,
    /// Idle time after which a shared sandbox is removed, in milliseconds.
    pub hook_session_idle_ms: u64,
}

/// Commands of an agent's hook that share one sandbox.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum HookSession {
    /// No sharing: each command has its own sandbox.
    Call,
    /// All commands of one conversation, in one shell.
    #[default]
    Conversation,
}

/// 30 minutes.
const HOOK_SESSION_IDLE_MS: u64 = 30 * 60 * 1000;

impl Default for SandboxRules {
    fn default() -> Self {
        Self {
            fail_if_unavailable: true,
            allow_unsandboxed: false,
            auto_allow: true,
            off: None,
            provider: ProviderSpec::default(),
            provider_origin: Origin::new(Source::BuiltIn, "sandbox.provider"),
            is_required: false,
            hook_session: HookSession::default(),
            hook_session_idle_ms: HOOK_SESSION_IDLE_MS,
        }
    }
}

/// Action when this host cannot enforce a requested rule.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnGap {
    /// Run nothing.
    #[default]
    Refuse,
    /// Run the command and report the rules that were not enforced.
    Run,
}

/// Events to report.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Observe {
    /// Denials, every file opened, every program started and every host contacted. Slower:
    /// ringfence intercepts each of these syscalls.
    All,
    /// Denials only.
    #[default]
    Denials,
}

/// Prompt on a denial.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Asking {
    /// No prompt: the access stays denied.
    #[default]
    Never,
    /// The user at the terminal answers while the process waits.
    Terminal,
}

/// Action when the audit log cannot be written.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// Run nothing.
    #[default]
    Refuse,
    /// Run the command and report that it was not recorded.
    Run,
}

/// Settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRules {
    /// Directory of the log files.
    pub directory: AbsPath,
    /// When to sync the log to disk.
    pub fsync: Fsync,
    /// Action when the log cannot be written.
    pub on_error: OnError,
    /// Size at which the log is rotated, in bytes.
    pub rotate_bytes: u64,
}

impl AuditRules {
    /// Default settings, with the log below the `state` directory.
    pub fn default_below(state: &AbsPath) -> Self {
        Self {
            directory: state.join("audit"),
            fsync: Fsync::Never,
            on_error: OnError::Refuse,
            rotate_bytes: 64 << 20,
        }
    }
}

/// When to sync the audit log to disk.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Fsync {
    /// After every record: no command starts before its record is on disk.
    Always,
    /// When a run ends.
    End,
    /// No explicit sync: only a crash of the whole machine loses records, those of the last
    /// seconds.
    #[default]
    Never,
}

/// One rule on a path and everything below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Path that the rule covers.
    pub root: AbsPath,
    /// Access that the rule gives or takes.
    pub effect: Effect,
    /// Position of the rule in its policy file.
    pub origin: Origin,
    /// True for a managed rule that no grant overrides.
    pub locked: bool,
}

/// Effect of a rule on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Readable and executable.
    Read,
    /// Readable and writable.
    Write,
    /// Readable, never writable; a missing path cannot be created either.
    Protect,
    /// Neither readable nor writable.
    Deny,
    /// Writes go to a directory private to the project; host files may be visible below it.
    Private {
        /// Directory that holds the sandbox's writes.
        store: AbsPath,
        /// True if the host's files are readable below the private ones.
        host_beneath: bool,
    },
}

/// A rule on names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameRule {
    /// Names that the rule matches.
    pub glob: Glob,
    /// Access that the rule takes away.
    pub effect: NameRuleEffect,
    /// Position of the rule in its policy file.
    pub origin: Origin,
    /// True for a managed rule that no grant overrides.
    pub locked: bool,
}

/// Effect of a rule on names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameRuleEffect {
    /// Neither readable nor writable.
    Deny,
    /// Readable, never writable; a missing path cannot be created either.
    Protect,
}

/// A glob that exempts a file from a name rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NameException {
    /// Names that the exception matches.
    pub glob: Glob,
    /// Position of the exception in its policy file.
    pub origin: Origin,
}

/// Position and reason of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The layer.
    pub source: Source,
    /// The rule as written in the file.
    pub text: String,
    /// The policy file, if the rule comes from one.
    pub file: Option<AbsPath>,
    /// Line in the file, from 1.
    pub line: Option<u32>,
    /// The reason given in the policy, if any.
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
    /// Built into ringfence.
    BuiltIn,
    /// Derived from the mode, for example the workspace itself.
    Mode,
    /// Derived from disallowed tools.
    Tools,
    /// A detected tool, by name (`cargo`, `git`, `node` …).
    Preset(String),
    /// `/etc/ringfence/policy.toml`.
    Managed,
    /// `~/.config/ringfence/policy.toml`.
    User,
    /// `.ringfence/policy.toml`.
    Project,
    /// A command-line flag of this run.
    Flag,
    /// The user's answer to a prompt during the session.
    Session,
}

impl Source {
    /// True if the rule comes from the user. Only such a rule may open a path that a built-in rule
    /// denies.
    pub fn is_user_choice(&self) -> bool {
        matches!(self, Source::User | Source::Flag | Source::Session)
    }
}

/// Environment variables that pass, resolved over all layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentRules {
    /// True if exactly the six documented variables pass.
    pub clean: bool,
    /// Name globs of variables that pass.
    pub allow: Vec<String>,
    /// Name globs of variables that never pass.
    pub deny: Vec<String>,
    /// Variables that the user listed by full name: they pass even if a deny glob matches.
    pub named: Vec<String>,
    /// Variables to set, with their values.
    pub set: BTreeMap<String, String>,
}

/// Rules on the text of command lines; `ringfence-cmdline` applies them. The text of each rule is
/// the text of its origin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRules {
    /// Patterns of commands to refuse.
    pub deny: Vec<Origin>,
    /// If not empty, the only programs that a command line may name.
    pub allow_binaries: Vec<Origin>,
    /// Texts that no argument may contain.
    pub deny_arguments: Vec<Origin>,
    /// Directory below which absolute paths in arguments must stay, if set.
    pub anchor_arguments: Option<Anchor>,
    /// Commands that run outside the sandbox when the caller requests it.
    pub excluded: Vec<Origin>,
    /// Action for a line that is only partly known before it runs.
    pub doubt: Doubt,
}

impl CommandRules {
    /// True if any rule may refuse a command.
    pub fn has_guards(&self) -> bool {
        let lists = [&self.deny, &self.allow_binaries, &self.deny_arguments];
        lists.iter().any(|list| !list.is_empty()) || self.anchor_arguments.is_some()
    }

    /// The same rules with `doubt = "refuse"`.
    pub fn with_doubt_refused(&self) -> Self {
        Self { doubt: Doubt::Refuse, ..self.clone() }
    }
}

/// Action for a command line that is only partly known before it runs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// ringfence refuses the line.
    #[default]
    Refuse,
    /// The line runs in the sandbox, and the audit log records it.
    Warn,
}

/// The directory below which absolute paths in arguments must stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// The directory.
    pub root: AbsPath,
    /// Position of the rule in its policy file.
    pub origin: Origin,
}

/// Resource limits; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall-clock time in milliseconds.
    pub wall_ms: Option<u64>,
    /// CPU time in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub processes: Option<u64>,
    /// Number of open files per process.
    pub open_files: Option<u64>,
    /// Size of one file in bytes.
    pub file_size: Option<u64>,
    /// Amount written to disk in bytes.
    pub disk: Option<u64>,
    /// Amount of output in bytes.
    pub output: Option<u64>,
}

impl Limits {
    /// The limits that are set, with their values.
    pub fn set_limits(&self) -> Vec<(Limit, u64)> {
        Limit::ALL.iter().filter_map(|limit| Some((*limit, self.get(*limit)?))).collect()
    }

    /// Value of one limit, if set.
    pub fn get(&self, limit: Limit) -> Option<u64> {
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

    /// Returns a copy with another value for one limit.
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
