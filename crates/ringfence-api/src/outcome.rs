//! What became of a command.

use std::fmt;

use ringfence_policy::{DecidingRule, Decision, Limit, Verdict};
use serde::{Deserialize, Serialize};

use crate::AskAnswer;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// What was written to standard output.
    pub stdout: StreamOutput,
    /// What was written to standard error.
    pub stderr: StreamOutput,
    /// How it ended.
    pub status: ExitStatus,
    /// What was refused, as much of it as anybody will read.
    pub denials: Vec<Denial>,
    /// How often something else was refused that is not among them.
    pub denials_dropped: u64,
    /// What was about to be refused, and went through because somebody said so.
    #[serde(default)]
    pub granted: Vec<GrantedAccess>,
    /// What went through, where the policy wants to know.
    pub observed: Option<ObservedAccesses>,
    /// Whom it was connected to, or would have been had they answered.
    #[serde(default)]
    pub connections: Vec<ConnectionRecord>,
    /// How many other connections there were.
    #[serde(default)]
    pub connections_dropped: u64,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// The limits that it went beyond.
    #[serde(default)]
    pub breaches: Vec<LimitBreach>,
    /// How long it took.
    pub duration_ms: u64,
    /// What it used.
    pub usage: ResourceUsage,
    /// The steps that were enforced, in words.
    pub enforced: Vec<String>,
    /// What was asked for and could not be enforced.
    pub gaps: Vec<Gap>,
    /// What was moved away before anyone could stumble over it.
    pub quarantined: Vec<QuarantinedFile>,
    /// Why it was not started, if a rule on its text refused it; the rule is among the denials.
    #[serde(default)]
    pub refusal: Option<CommandRefusal>,
}

/// Why a command was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandRefusal {
    /// A sentence for people.
    pub reason: String,
    /// Where in the line it stands that was refused, in characters from 0.
    pub position: usize,
    /// How many characters it has.
    pub length: usize,
}

/// Something the command planted that would have run on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuarantinedFile {
    /// Where it stood.
    pub path: String,
    /// Where it is now.
    pub moved_to: String,
    /// Why it was moved.
    pub reason: String,
}

impl Outcome {
    /// The exit status as a shell would see it: 128 + the signal, 124 for the time limit.
    pub fn exit_code(&self) -> i32 {
        if self.timed_out { ExitStatus::TIME_LIMIT } else { self.status.code() }
    }

    /// Whether the sandbox stood in the way: the command failed and something was refused,
    /// or an explicit rule was hit.
    pub fn blocked(&self) -> bool {
        self.blocked_by().is_some()
    }

    /// The denial that stood in the way: the first of an explicit rule, or else the first of a
    /// command that failed. A denial that programs do without never does.
    pub fn blocked_by(&self) -> Option<&Denial> {
        let mut counting = self.denials.iter().filter(|denial| !denial.is_done_without());
        let explicit = counting.clone().find(|denial| denial.explicit);
        explicit.or_else(|| counting.find(|_| self.exit_code() != 0))
    }
}

/// Bytes of one stream: the first and the last that were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamOutput {
    /// What was kept, from the start.
    pub head: Vec<u8>,
    /// What was kept, from the end, where not all could be.
    pub tail: Vec<u8>,
    /// How many bytes between the two were dropped.
    pub dropped: u64,
}

impl StreamOutput {
    /// All that was kept.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.as_slice(), self.tail.as_slice()].concat()
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExitStatus {
    /// With this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl ExitStatus {
    /// What a shell sees of a command that its time limit ended.
    pub(crate) const TIME_LIMIT: i32 = 124;
    /// What a shell sees of a command that was not started because it may not be.
    pub const REFUSED: i32 = 126;

    /// What a shell sees of it.
    pub(crate) fn code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code,
            ExitStatus::Killed(signal) => 128 + signal,
        }
    }
}

/// What a command used.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
    /// The most memory one process had, in kilobytes.
    pub max_rss_kb: u64,
}

/// A limit that a command went beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LimitBreach {
    /// Which.
    #[schemars(with = "String")]
    pub limit: Limit,
    /// How much there may be: milliseconds, bytes or pieces.
    pub configured: u64,
    /// How much there was when it was noticed.
    pub observed: u64,
}

impl fmt::Display for LimitBreach {
    /// A sentence for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, configured, observed } = *self;
        write!(
            f,
            "the limit `{limit}` of {} was reached: {}",
            limit.show(configured),
            limit.show(observed)
        )
    }
}

/// Something the sandbox refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Denial {
    /// What was tried.
    pub operation: Operation,
    /// On what: a full path, or host and port.
    pub target: String,
    /// The rule that refused.
    pub rule: String,
    /// Where the rule was written.
    pub origin: String,
    /// Whether a written rule refused, not the mere absence of one.
    pub explicit: bool,
    /// The process that tried, as the host numbers it; 0 where it is not known.
    pub pid: u32,
    /// Its program; empty where it is not known.
    pub program: String,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    /// How ringfence knows.
    pub evidence: DenialEvidence,
    /// How often the same was tried.
    pub count: u64,
    /// True if the program tries this by itself and runs without it: its own start-up file, or
    /// its check for a newer version. Such a denial is not why a command failed.
    #[serde(default)]
    pub optional: bool,
}

impl Denial {
    /// The rule where there is none.
    pub const NOTHING_OPENS_IT: &str = "nothing opens it";
    /// The rule where a directory must stay where it is, whatever the policy says of it.
    pub const KEEPS_ITS_NAME: &str = "a directory that git obeys keeps its name";
    /// The same of one with a denied or protected file in it.
    pub const HOLDS_DENIED: &str = "what holds something denied or protected keeps its name";
    /// The same of a link.
    pub const LINK_STAYS: &str = "a link with a denied or protected name keeps it";
    /// The rule where something was to come to lie above a denied or protected name.
    pub const IN_THE_WAY: &str =
        "it would lie above what is denied or protected, or where git obeys it";
    /// The rule where git would take the name for one of its own.
    pub const GIT_WOULD_OBEY: &str = "git would obey it";
    /// The rule where a mount of the sandbox stands on the name.
    pub const OPENED_BY_ITSELF: &str = "what is opened by itself keeps its name";
    /// The rule where a socket of the host is covered.
    pub const HOST_SOCKET: &str = "no rule opens this socket of the host";
    /// The rule where a path is open and what it leads to is not.
    pub const ANOTHER_NAME: &str = "another name of something denied";
    /// The rule where a write would also change a file outside, which is a hard link of it.
    pub const NAMES_OUTSIDE: &str =
        "the file has another name (a hard link) outside the writable trees";
    /// The rule where a directory was to ignore case.
    pub const IGNORES_CASE: &str =
        "rules compare names by case, so no directory is made to ignore it";
    /// Those of them that follow from how a sandbox is made: no rule about the path says so.
    pub const OF_THE_SANDBOX: &[&str] = &[
        Self::KEEPS_ITS_NAME,
        Self::HOLDS_DENIED,
        Self::LINK_STAYS,
        Self::IN_THE_WAY,
        Self::GIT_WOULD_OBEY,
        Self::OPENED_BY_ITSELF,
        Self::HOST_SOCKET,
        Self::ANOTHER_NAME,
        Self::NAMES_OUTSIDE,
        Self::IGNORES_CASE,
    ];

    /// The rule of a policy that lets nobody out.
    pub const NETWORK_SHUT: &'static str = "network.mode = none";

    /// What a decision says of a refusal: the rule, where it was written, and whether a written
    /// rule refused or the mere absence of one.
    pub fn because(decision: &Decision) -> (String, String, bool) {
        let (rule, origin) = match &decision.rule {
            Some(because) => (because.origin().text.clone(), because.origin().to_string()),
            None if decision.verdict == Verdict::Absent => {
                (Self::NOTHING_OPENS_IT.to_owned(), "built in".to_owned())
            }
            None => (Self::ANOTHER_NAME.to_owned(), "built in".to_owned()),
        };
        let is_opener =
            |because: &DecidingRule| matches!(because, DecidingRule::Rule(rule) if rule.opens());
        let explicit =
            decision.verdict != Verdict::Absent && !decision.rule.as_ref().is_some_and(is_opener);
        (rule, origin, explicit)
    }

    /// `refused by **/.env (built in)`, or that nothing opens it; what others have written goes
    /// through `shown`.
    pub fn refused_by(&self, shown: impl Fn(&str) -> String) -> String {
        if self.rule == Self::NOTHING_OPENS_IT {
            return self.rule.clone();
        }
        format!("refused by {} ({})", shown(&self.rule), shown(&self.origin))
    }

    /// Position in a list that begins with the likely reason of a failure: hosts, then files, then
    /// caches and state that no rule lets a program keep, then what programs do without.
    pub fn report_order(&self) -> u8 {
        match self.operation {
            _ if self.is_done_without() => 3,
            Operation::Connect | Operation::Call | Operation::Command => 0,
            Operation::Create | Operation::Write | Operation::Rename if !self.explicit => 2,
            _ => 1,
        }
    }

    /// Whether programs try this and do without: that it was refused says nothing about why
    /// a command failed.
    pub fn is_done_without(&self) -> bool {
        use Operation::{Create, Read, Write};
        let has_part = |part: &str| self.target.split('/').any(|name| name == part);
        match self.operation {
            _ if self.optional => true,
            // Runtimes ask the kernel there how large the machine is.
            Read => self.rule == Self::NOTHING_OPENS_IT && self.target.starts_with("/sys/"),
            // Python's compiled modules, and cargo's locks of caches that nobody else uses.
            Create | Write if !self.explicit => {
                ["__pycache__", ".package-cache", ".package-cache-mutate", ".global-cache"]
                    .into_iter()
                    .any(has_part)
            }
            _ => false,
        }
    }
}

/// Something that went through because somebody said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantedAccess {
    /// What would have been refused; its count is how often this answer let it through.
    pub denial: Denial,
    /// What was said.
    pub answer: AskAnswer,
}

/// What went through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObservedAccesses {
    /// Each thing once, in the order in which it first happened.
    pub allowed: Vec<Allowance>,
    /// How many accesses are not among them: there is an end to what is kept.
    pub dropped: u64,
}

/// Something the sandbox let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allowance {
    /// What was done.
    pub operation: Operation,
    /// With what: the real path, or host and port.
    pub target: String,
    /// The rule that allows it.
    pub rule: String,
    /// Where the rule was written.
    pub origin: String,
    /// The process that did it first, as the host numbers it.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// When first, in milliseconds since 1970.
    pub time_ms: u64,
    /// How often.
    pub count: u64,
}

/// A connection that the policy, or somebody who was asked, let through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionRecord {
    /// Host and port, by the name that was looked up.
    pub target: String,
    /// The address and port that it led to; `None` where nobody was reached.
    pub address: Option<String>,
    /// The rule that allows it.
    pub rule: String,
    /// Where the rule was written.
    pub origin: String,
    /// The process that connected first, as the host numbers it.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// When first, in milliseconds since 1970.
    pub time_ms: u64,
    /// Bytes that went out, where they are counted: on connections that are looked at on the way.
    pub sent: Option<u64>,
    /// Bytes that came in, where they are counted.
    pub received: Option<u64>,
    /// Why nobody was reached, if nobody was.
    pub failed: Option<String>,
    /// The variables whose values were put into what was sent.
    pub secrets: Vec<String>,
    /// How often; 0 of one that was told of before and has ended since.
    pub count: u64,
}

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Open for reading.
    Read,
    /// Open for writing.
    Write,
    /// Make a new name.
    Create,
    /// Give something another name.
    Rename,
    /// Start a program.
    Execute,
    /// Reach a host.
    Connect,
    /// Make a system call that no command needs, or call a tool that was taken away.
    Call,
    /// Be started at all: the text of the command is refused.
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

    /// Its word on every wire.
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

/// How ringfence knows of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DenialEvidence {
    /// The kernel asked, and ringfence refused.
    Kernel,
    /// The proxy refused.
    Proxy,
    /// The text of the command was read before it was started.
    Guard,
    /// The command failed, its standard error names the path beside an error of the operating
    /// system, and the policy shuts that path. Where the kernel tells, nothing is guessed.
    Guessed,
    /// A tool of ringfence's own refused, by what the kernel had opened for it.
    Tool,
}

/// Something asked for that cannot be enforced here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// What was asked for, as a stable word.
    pub what: String,
    /// Why it cannot be had.
    pub why: String,
    /// What helps.
    pub hint: String,
    /// What it takes away.
    pub loss: GapKind,
}

impl Gap {
    /// Whether nothing runs because of it, unless the policy accepts it.
    pub fn refuses(&self) -> bool {
        self.loss == GapKind::Enforcement
    }
}

/// What a gap takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GapKind {
    /// Something that the policy asks for does not hold.
    Enforcement,
    /// All of it holds, but not everything that is refused is told of. It is said, and stops
    /// nobody: a command is as confined as ever.
    Telling,
}
