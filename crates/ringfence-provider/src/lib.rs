//! Places where commands run.
//!
//! A [`Provider`] opens a [`Session`] for a policy; a session runs commands. This trait is
//! the only dynamic call on the way of a command. What the words of the traits promise, each
//! place is put to by the checks in [`conformance`].

#![forbid(unsafe_code)]

pub mod conformance;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{
    Asker, CommandRequest, Denial, Gap, Outcome, OutputStream, QuarantinedFile, ShellCommand,
    ShellCommandResult, StdinInput,
};
pub use ringfence_enforce::apply::TerminalSize;
use ringfence_enforce::{Plan, SandboxUser, limits};
use ringfence_policy::{AbsPath, Grants, PolicyChange};

/// A kind of place.
pub trait Provider {
    /// Its name in the registry and in messages.
    fn name(&self) -> &'static str;

    /// Makes ready what `grants` ask for. Nothing runs yet.
    fn open(
        &self,
        grants: &Grants,
        person: &SandboxUser,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError>;
}

/// A sandbox that was opened.
pub trait PreparedSandbox {
    /// What will be enforced, and the gaps.
    fn plan(&self) -> &Plan;

    /// From now on, whoever is about to be refused waits for an answer, as far as a place
    /// can let it wait.
    fn ask(&mut self, asker: Arc<dyn Asker>);

    /// Runs one command to its end.
    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError>;

    /// Raises a sandbox that stands until it is ended, for many commands.
    fn raise(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError>;

    /// What was refused to a command that ended in an error, and so has no outcome: for the
    /// record. The second number is that of [`Outcome::denials_dropped`].
    fn refused(&mut self) -> (Vec<Denial>, u64);
}

/// A sandbox that stands until it is ended, and runs many commands. Dropping it ends it too.
pub trait Sandbox: Send {
    /// What is enforced, and the gaps.
    fn plan(&self) -> &Plan;

    /// Starts a shell in it.
    fn shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError>;

    /// Starts a process beside the shells.
    fn start(&self, start: &ProcessSpec) -> Result<Box<dyn SandboxedProcess>, ProviderError>;

    /// What was refused since this was asked for last, to whomever.
    fn refused(&self) -> (Vec<Denial>, u64);

    /// What has turned out meanwhile not to be done as the plan has it.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// False once it is known to have ended: a command that is started in it cannot run.
    fn is_alive(&self) -> bool {
        true
    }

    /// Takes programs away that commands left in unfinished operations, until the next one begins:
    /// the user may continue the operation outside meanwhile.
    fn suspend_programs(&self) {}

    /// Puts back what [`Standing::suspend_programs`] took away.
    fn resume_programs(&self) {}

    /// Lets another policy hold, as far as that can be done while things run. What stays as
    /// it was is among the changes, with the reason.
    fn revise(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError>;

    /// Ends everything in it, and moves away what was planted.
    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError>;
}

/// What became of a policy that was changed.
#[derive(Debug, Clone, Default)]
pub struct PolicyRevision {
    /// Each rule that came or went.
    pub changes: Vec<PolicyChange>,
    /// What is enforced by now, and the gaps.
    pub plan: Plan,
}

/// How a shell is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellSpec {
    /// The program: `bash`, `sh` or another that speaks as they do.
    pub program: OsString,
    /// Its variables, already filtered.
    pub variables: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: AbsPath,
}

/// How a process is to be started beside the shells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Its variables, already filtered.
    pub variables: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: AbsPath,
    /// What it has for standard streams.
    pub streams: ProcessStdio,
    /// How long it may take.
    pub deadline: Option<Duration>,
}

/// What a process has for standard streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessStdio {
    /// It reads this; of what it writes to each stream so many bytes are kept.
    Pipes {
        /// What it reads.
        input: StdinInput,
        /// How many bytes are kept.
        limit: usize,
    },
    /// The same, with standard error in standard output, so that both keep their order.
    Merged {
        /// What it reads.
        input: StdinInput,
        /// How many bytes are kept.
        limit: usize,
    },
    /// A terminal of its own, of this size.
    Terminal(TerminalSize),
}

/// A process beside the shells.
pub trait SandboxedProcess: Send {
    /// Our end of its terminal, if it has one: whoever has it reads, writes and resizes it.
    fn terminal(&self) -> Option<BorrowedFd<'_>>;

    /// For somebody who does not want to wait.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// For somebody else, who has what it reads, if it is to be fed.
    fn feeder(&self) -> Option<Arc<dyn StdinFeeder>>;

    /// Stays with it to its end, and passes on what it writes as it comes.
    fn wait(
        self: Box<Self>,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError>;
}

/// A shell that lives on from one command to the next. Dropping it ends it, and leaves what
/// it started to itself.
pub trait SandboxShell: Send {
    /// Runs a command to its end, and passes on what it writes as it comes.
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError>;

    /// For somebody else, who does not want to wait.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// For somebody else, who has what the next command reads that is to be fed.
    fn feeder(&mut self) -> io::Result<Arc<dyn StdinFeeder>>;

    /// Its number on the host.
    fn pid(&self) -> i32;

    /// False once it is known to have ended.
    fn is_alive(&self) -> bool {
        true
    }

    /// Where it is, unless it has ended.
    fn cwd(&self) -> Option<AbsPath>;
}

/// Whoever wants to see output as it comes.
pub type OutputSink<'a> = dyn FnMut(OutputStream, &[u8]) + 'a;

/// Interrupts what a shell is doing, from any thread: the command that runs, or else the next
/// one, so whoever has one uses it only until their own command has ended.
pub trait Interrupter: Send + Sync {
    /// As if somebody had typed Ctrl-C; a command that does not mind is ended a little later.
    fn interrupt(&self);

    /// Sends a signal to all that the command has started, and has no other meaning. A shell
    /// itself gets none.
    fn signal(&self, number: i32);
}

/// Feeds a command with what it reads, from any thread.
pub trait StdinFeeder: Send + Sync {
    /// Gives it more, also before it has begun. Fails once it has ended or nobody reads it any
    /// more, and with `WouldBlock` while it has not yet read enough of what it was given.
    fn feed(&self, bytes: &[u8]) -> io::Result<()>;

    /// Nothing more comes.
    fn shut(&self);
}

/// Why a place could not run a command.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The sandbox could not be made.
    #[error("cannot start the sandbox for `{command}`")]
    NotStarted {
        /// The command.
        command: String,
        /// A command line that helps.
        hint: String,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The command itself could not be executed in the sandbox.
    #[error("cannot execute `{command}`")]
    NotExecuted {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A standard stream is a directory, which would lead out of the sandbox.
    #[error("standard {stream} is a directory")]
    StreamIsDirectory {
        /// `input`, `output` or `error`.
        stream: &'static str,
    },
    /// What is no command for a shell.
    #[error("not a command for a shell")]
    NoLine {
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The sandbox, or the shell in it, is gone.
    #[error("the {what} is gone")]
    Gone {
        /// Which.
        what: &'static str,
    },
    /// A terminal is wanted where nothing is confined.
    #[error("nothing is confined here, and no terminal is made for it")]
    Unconfined,
    /// A command has taken away what its shell speaks with us by.
    #[error("the command has closed the descriptors by which its shell tells of an end")]
    Mute,
    /// A port that is to lead into the sandbox cannot be had on the host.
    #[error("port {port} of this machine's loopback cannot be opened")]
    PortTaken {
        /// Which.
        port: u16,
        /// Why not.
        source: io::Error,
    },
    /// It is not known whom to trust, so values cannot be sent to anybody.
    #[error("cannot put secrets into requests")]
    NoTrust {
        /// What to do.
        hint: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The proxy by which the host's network is left is none that can be used.
    #[error("no host can be reached from this network")]
    NoWayOut {
        /// What to do.
        hint: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Talking to the operating system failed in the middle.
    #[error("cannot {what}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl ProviderError {
    /// A stable word for it.
    pub fn code(&self) -> &'static str {
        match self {
            ProviderError::NotStarted { .. } => "sandbox-not-started",
            ProviderError::NotExecuted { .. } => "command-not-executed",
            ProviderError::StreamIsDirectory { .. } => "stream-is-directory",
            ProviderError::NoLine { .. } => "not-a-line",
            ProviderError::Gone { .. } => "gone",
            ProviderError::Unconfined => "unconfined",
            ProviderError::Mute => "shell-mute",
            ProviderError::PortTaken { .. } => "port-taken",
            ProviderError::NoTrust { .. } => "no-trust",
            ProviderError::NoWayOut { .. } => "no-way-out",
            ProviderError::System { .. } => "system",
        }
    }

    /// What to type next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProviderError::NotStarted { hint, .. }
            | ProviderError::NoTrust { hint, .. }
            | ProviderError::NoWayOut { hint, .. } => Some(hint.clone()),
            ProviderError::NotExecuted { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some("`ringfence explain exec PATH` shows whether a rule opens the program".into())
            }
            ProviderError::NotExecuted { .. } => None,
            ProviderError::StreamIsDirectory { .. } => {
                Some("redirect it from a file or from /dev/null".into())
            }
            ProviderError::Gone { .. } | ProviderError::Mute => {
                Some("the next command gets a new one".into())
            }
            ProviderError::Unconfined => Some("run it in your own".into()),
            ProviderError::System { source, .. } => limits::hint(source).map(str::to_owned),
            ProviderError::PortTaken { port, .. } => {
                Some(format!("take {port} out of `bind`, or end what listens there"))
            }
            ProviderError::NoLine { .. } => None,
        }
    }

    /// The exit status of the command line: 127 not found, 126 not executable, 125 ours.
    pub fn status(&self) -> i32 {
        match self {
            ProviderError::NotExecuted { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                127
            }
            ProviderError::NotExecuted { .. } => 126,
            _ => 125,
        }
    }
}
