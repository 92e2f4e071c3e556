//! The outcome of a command.

use std::fmt;

use ringfence_policy::{AbsPath, DecidingRule, Decision, Limit, Verdict};
use serde::{Deserialize, Serialize};

use crate::session_protocol::PolicyReport;
use crate::{AskAnswer, ShellState};

/// The outcome of a command. A provider fills in its own part and leaves the others at their
/// default; `session`, `confined`, `cwd`, `policy` and `refusal` are the engine's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The standard output.
    pub stdout: StreamOutput,
    /// The standard error.
    pub stderr: StreamOutput,
    /// The output of earlier commands' background processes, on either stream, since the previous
    /// command of the shell.
    pub background: StreamOutput,
    /// The name of the session in the audit log.
    pub session: String,
    /// The exit status.
    pub status: ExitStatus,
    /// The denials, up to a maximum number.
    pub denials: Vec<Denial>,
    /// The number of denials that are not listed.
    pub denials_dropped: u64,
    /// Accesses that an answer allowed.
    pub granted: Vec<GrantedAccess>,
    /// The allowed accesses, if the policy asks for them.
    pub observed: Option<ObservedAccesses>,
    /// The connections, including those that failed.
    pub connections: Vec<ConnectionRecord>,
    /// The number of connections that are not listed.
    pub connections_dropped: u64,
    /// True if the time limit ended the command. False after an interrupt or an exceeded output
    /// limit.
    pub timed_out: bool,
    /// The limits that the command exceeded.
    pub breaches: Vec<LimitBreach>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// The resource usage, as far as it is known.
    pub usage: ResourceUsage,
    /// The state of the shell that ran it; without a shell, `Ended`.
    pub shell: ShellState,
    /// The working directory of that shell.
    pub cwd: Option<AbsPath>,
    /// False if the command ran unconfined.
    pub confined: bool,
    /// The enforcement steps, as text.
    pub enforced: Vec<String>,
    /// The parts of the policy that could not be enforced.
    pub gaps: Vec<Gap>,
    /// Changes of policy files since the previous command of the session.
    pub policy: PolicyReport,
    /// Files that were moved away because they could have run on the host.
    pub quarantined: Vec<QuarantinedFile>,
    /// The reason why the command was not started, if a command rule refused it (see `denials`).
    pub refusal: Option<CommandRefusal>,
}

/// The reason why a command was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandRefusal {
    /// A sentence for the user.
    pub reason: String,
    /// The position of the refused part in the line, in characters from 0.
    pub position: usize,
    /// The length of the refused part, in characters.
    pub length: usize,
}

/// A file that the command created and that could have run on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedFile {
    /// The original path.
    pub path: String,
    /// The current path.
    pub moved_to: String,
    /// The reason.
    pub reason: String,
}

impl Outcome {
    /// Returns the exit status as a shell reports it: 128 + the signal, 124 for the time limit.
    pub fn exit_code(&self) -> i32 {
        if self.timed_out { ExitStatus::TIME_LIMIT } else { self.status.code() }
    }

    /// True if the sandbox blocked the command: it failed and an access was denied, or an explicit
    /// rule denied an access.
    pub fn is_blocked(&self) -> bool {
        self.blocked_by().is_some()
    }

    /// Returns the denial that blocked the command: the first by an explicit rule, or else, if the
    /// command failed, the first. Ignores denials that programs tolerate.
    pub fn blocked_by(&self) -> Option<&Denial> {
        let mut counting = self.denials.iter().filter(|denial| !denial.is_tolerated());
        let explicit = counting.clone().find(|denial| denial.explicit);
        explicit.or_else(|| counting.find(|_| self.exit_code() != 0))
    }
}

/// The first and the last bytes of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamOutput {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes, if the stream is longer than the limit.
    pub tail: Vec<u8>,
    /// The number of bytes dropped in between.
    pub dropped: u64,
}

impl StreamOutput {
    /// Returns all kept bytes.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), self.tail.as_slice()].concat()
    }
}

/// The exit status of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// Exited with this status.
    Exited(i32),
    /// Killed by this signal.
    Killed(i32),
}

impl Default for ExitStatus {
    fn default() -> Self {
        ExitStatus::Exited(0)
    }
}

impl ExitStatus {
    /// The exit code for a time limit.
    pub(crate) const TIME_LIMIT: i32 = 124;
    /// The exit code for a command that a rule refused to start.
    pub const REFUSED: i32 = 126;

    /// Returns the exit code as a shell reports it.
    pub(crate) fn code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code,
            ExitStatus::Killed(signal) => 128 + signal,
        }
    }
}

/// The resource usage of a command.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// The maximum resident set of a process, in kilobytes.
    pub max_rss_kb: u64,
}

/// A limit that a command exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitBreach {
    /// The limit.
    #[schemars(with = "String")]
    pub limit: Limit,
    /// The configured maximum: milliseconds, bytes or a count.
    pub configured: u64,
    /// The usage when the breach was detected.
    pub observed: u64,
}

impl fmt::Display for LimitBreach {
    /// Formats a sentence for the user.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, configured, observed } = *self;
        write!(
            f,
            "the limit `{limit}` of {} was reached: {}",
            limit.format_amount(configured),
            limit.format_amount(observed)
        )
    }
}

/// An access that the sandbox denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// The attempted operation.
    pub operation: Operation,
    /// The target: an absolute path, or host and port.
    pub target: String,
    /// The rule that denied it.
    pub rule: String,
    /// The origin of the rule.
    pub origin: String,
    /// True if an explicit rule denied it; false if no rule allowed it.
    pub explicit: bool,
    /// The process id on the host; 0 if unknown.
    pub pid: u32,
    /// The program of the process; empty if unknown.
    pub program: String,
    /// The time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The component that detected the denial.
    pub evidence: DenialEvidence,
    /// The number of attempts.
    pub count: u64,
    /// True if the program tries this by itself and does not need it: its own start-up file, or its
    /// check for a newer version. Such a denial is not why a command failed.
    #[serde(default)]
    pub optional: bool,
}

impl Denial {
    /// The rule text if no rule allows the access.
    pub const NO_RULE_ALLOWS: &str = "nothing opens it";
    /// The rule text for a directory that must not be renamed, whatever the policy allows.
    pub const GIT_DIRECTORY_IS_FIXED: &str = "a directory that git obeys keeps its name";
    /// The same, for a directory that contains a denied or protected file.
    pub const CONTAINS_DENIED: &str = "what holds something denied or protected keeps its name";
    /// The same, for a link.
    pub const LINK_IS_FIXED: &str = "a link with a denied or protected name keeps it";
    /// The rule text for a new entry above a denied or protected name.
    pub const ABOVE_DENIED: &str =
        "it would lie above what is denied or protected, or where git obeys it";
    /// The rule text for a name that git would use as its own.
    pub const GIT_RESERVED_NAME: &str = "git would obey it";
    /// The rule text for a name that is a mount point of the sandbox.
    pub const IS_MOUNT_POINT: &str = "what is opened by itself keeps its name";
    /// The rule text for a masked socket of the host.
    pub const HOST_SOCKET: &str = "no rule opens this socket of the host";
    /// The rule text for an allowed path that leads to a denied one.
    pub const ALIAS_OF_DENIED: &str = "another name of something denied";
    /// The rule text for a write that would also change a file outside, through a hard link.
    pub const HARD_LINK_OUTSIDE: &str =
        "the file has another name (a hard link) outside the writable trees";
    /// The rule text for a directory that was to ignore case.
    pub const CASEFOLD_DIRECTORY: &str =
        "rules compare names by case, so no directory is made to ignore it";
    /// The rule text for a change of a private directory without a mount.
    pub const NEEDS_MOUNT: &str =
        "a private directory needs a mount, which this engine cannot make";
    /// The rule texts that follow from the sandbox itself: no rule about the path can change them.
    pub const SANDBOX_RULES: &[&str] = &[
        Self::GIT_DIRECTORY_IS_FIXED,
        Self::CONTAINS_DENIED,
        Self::LINK_IS_FIXED,
        Self::ABOVE_DENIED,
        Self::GIT_RESERVED_NAME,
        Self::IS_MOUNT_POINT,
        Self::HOST_SOCKET,
        Self::ALIAS_OF_DENIED,
        Self::HARD_LINK_OUTSIDE,
        Self::CASEFOLD_DIRECTORY,
        Self::NEEDS_MOUNT,
    ];

    /// The rule text of a policy without network access.
    pub const NETWORK_NONE: &'static str = "network.mode = none";

    /// Returns the rule, its origin, and true if the rule is explicit, for the denial that follows
    /// from a decision.
    pub fn rule_from_decision(decision: &Decision) -> (String, String, bool) {
        let (rule, origin) = match &decision.rule {
            Some(because) => (because.origin().text.clone(), because.origin().to_string()),
            None if decision.verdict == Verdict::Absent => {
                (Self::NO_RULE_ALLOWS.to_owned(), "built in".to_owned())
            }
            None => (Self::ALIAS_OF_DENIED.to_owned(), "built in".to_owned()),
        };
        let is_opener =
            |because: &DecidingRule| matches!(because, DecidingRule::Rule(rule) if rule.opens());
        let explicit =
            decision.verdict != Verdict::Absent && !decision.rule.as_ref().is_some_and(is_opener);
        (rule, origin, explicit)
    }

    /// Returns `refused by **/.env (built in)`, or that no rule allows it. `shown` escapes
    /// untrusted text.
    pub fn describe_rule(&self, shown: impl Fn(&str) -> String) -> String {
        if self.rule == Self::NO_RULE_ALLOWS {
            return self.rule.clone();
        }
        format!("refused by {} ({})", shown(&self.rule), shown(&self.origin))
    }

    /// Returns the rank in a report that lists likely causes of a failure first: hosts, then files,
    /// then caches and state without a rule, then accesses that programs tolerate.
    pub fn report_order(&self) -> u8 {
        match self.operation {
            _ if self.is_tolerated() => 3,
            Operation::Connect | Operation::Call | Operation::Command => 0,
            Operation::Create | Operation::Write | Operation::Rename if !self.explicit => 2,
            _ => 1,
        }
    }

    /// True if programs tolerate this denial: it is not why a command failed.
    pub fn is_tolerated(&self) -> bool {
        use Operation::{Create, Read, Write};
        let has_part = |part: &str| self.target.split('/').any(|name| name == part);
        match self.operation {
            _ if self.optional => true,
            // Runtimes read the machine's size there.
            Read => self.rule == Self::NO_RULE_ALLOWS && self.target.starts_with("/sys/"),
            // Python's compiled modules, and cargo's locks of private caches.
            Create | Write if !self.explicit => {
                ["__pycache__", ".package-cache", ".package-cache-mutate", ".global-cache"]
                    .into_iter()
                    .any(has_part)
            }
            _ => false,
        }
    }
}

/// An access that an answer allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedAccess {
    /// The denial that the answer prevented; its count is the number of allowed accesses.
    pub denial: Denial,
    /// The answer.
    pub answer: AskAnswer,
}

/// The allowed accesses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedAccesses {
    /// Each access once, in the order of its first occurrence.
    pub allowed: Vec<Allowance>,
    /// The number of accesses that are not listed.
    pub dropped: u64,
}

/// An access that the sandbox allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allowance {
    /// The operation.
    pub operation: Operation,
    /// The target: the real path, or host and port.
    pub target: String,
    /// The rule that allows it.
    pub rule: String,
    /// The origin of the rule.
    pub origin: String,
    /// The id of the first process, on the host.
    pub pid: u32,
    /// The program of the process.
    pub program: String,
    /// The time of the first access, in milliseconds since 1970.
    pub time_ms: u64,
    /// The number of accesses.
    pub count: u64,
}

/// A connection that the policy or an answer allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionRecord {
    /// Host and port, with the name that was resolved.
    pub target: String,
    /// The address and port; `None` if the connection failed.
    pub address: Option<String>,
    /// The rule that allows it.
    pub rule: String,
    /// The origin of the rule.
    pub origin: String,
    /// The id of the first process, on the host.
    pub pid: u32,
    /// The program of the process.
    pub program: String,
    /// The time of the first connection, in milliseconds since 1970.
    pub time_ms: u64,
    /// The number of bytes sent, if counted: only on connections through the proxy.
    pub sent: Option<u64>,
    /// The number of bytes received, if counted.
    pub received: Option<u64>,
    /// The error, if the connection failed.
    pub failed: Option<String>,
    /// The environment variables whose values were inserted into requests.
    pub secrets: Vec<String>,
    /// The number of connections; 0 for the end of one that was reported before.
    pub count: u64,
}

/// An operation on a file, a host or a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Open for reading.
    Read,
    /// Open for writing.
    Write,
    /// Create a file, directory or link.
    Create,
    /// Rename.
    Rename,
    /// Run a program.
    Execute,
    /// Connect to a host.
    Connect,
    /// Make a syscall that is not allowed, or call a denied tool.
    Call,
    /// Start the command: a rule refuses its text.
    Command,
}

impl Operation {
    /// Every operation.
    pub const ALL: &[Operation] = &[
        Operation::Read,
        Operation::Write,
        Operation::Create,
        Operation::Rename,
        Operation::Execute,
        Operation::Connect,
        Operation::Call,
        Operation::Command,
    ];

    /// Returns the word used in all protocols.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Create => "create",
            Operation::Rename => "rename",
            Operation::Execute => "execute",
            Operation::Connect => "connect",
            Operation::Call => "call",
            Operation::Command => "command",
        }
    }
}

/// The component that detected a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DenialEvidence {
    /// The kernel asked, and ringfence denied.
    Kernel,
    /// The proxy denied.
    Proxy,
    /// A command rule, before the command started.
    Guard,
    /// The command failed, its standard error names the path next to an errno text, and the policy
    /// denies that path. Used only if the kernel does not report denials.
    Guessed,
    /// A ringfence tool denied, after the kernel had opened the file.
    Tool,
}

/// A part of the policy that cannot be enforced on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// The affected setting, as a stable word.
    pub what: String,
    /// The reason.
    pub why: String,
    /// The fix.
    pub hint: String,
    /// The kind of loss.
    #[serde(rename = "loss")]
    pub kind: GapKind,
}

impl Gap {
    /// True if nothing runs because of it, unless the policy accepts it.
    pub fn refuses_run(&self) -> bool {
        self.kind == GapKind::Enforcement
    }
}

/// The kind of loss that a gap causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GapKind {
    /// A part of the policy is not enforced.
    Enforcement,
    /// Everything is enforced, but not every denial is reported. This is reported and never refuses
    /// a run.
    Reporting,
}
