//! Traits of sandbox providers.
//!
//! A [`Provider`] opens a [`PreparedSandbox`] for a policy, which runs commands. The checks in
//! [`conformance`] test every provider against the documented behaviour.

#![forbid(unsafe_code)]

pub mod conformance;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{
    Asker, CommandRequest, Denial, Gap, Outcome, OutputStream, QuarantinedFile, ShellCommand,
    ShellCommandResult, StdinInput, TerminalSize,
};
use ringfence_plan::{Plan, SandboxUser, limits};
use ringfence_policy::{AbsPath, Grants, PolicyChange};

/// A kind of sandbox.
///
/// The trait itself does not require `Send`, but sessions and the HTTP service take a
/// `Box<dyn Provider + Send>`.
pub trait Provider {
    /// A short, stable name.
    fn name(&self) -> &'static str;

    /// Prepares a sandbox for `grants`. Nothing runs yet.
    ///
    /// Grants without confinement ([`Grants::is_confined`] is false) go to the provider `process`
    /// only.
    fn open(
        &self,
        grants: &Grants,
        user: &SandboxUser,
    ) -> Result<Box<dyn PreparedSandbox>, ProviderError>;
}

/// A prepared sandbox.
pub trait PreparedSandbox {
    /// The enforced steps, and the gaps.
    fn plan(&self) -> &Plan;

    /// False if commands run without any confinement. The audit log records it.
    fn is_confined(&self) -> bool {
        true
    }

    /// From now on a denied access waits for the asker's answer, as far as the provider supports
    /// it.
    fn set_asker(&mut self, asker: Arc<dyn Asker>);

    /// Runs one command to its end. May be called many times, one command after the other.
    ///
    /// The command's standard input is the caller's fd 0.
    ///
    /// # Errors
    ///
    /// [`ProviderError::NotStarted`] if the sandbox cannot be created, also if the policy denies
    /// the working directory. [`ProviderError::NotExecuted`] if `execve` of the command fails.
    fn run(&mut self, request: &CommandRequest) -> Result<Outcome, ProviderError>;

    /// Starts a sandbox that lives until it is ended, for many commands.
    fn start_sandbox(&mut self, cwd: &AbsPath) -> Result<Box<dyn Sandbox>, ProviderError>;

    /// Takes the denials of a command that failed without an outcome, for the audit log. The number
    /// is that of [`Outcome::denials_dropped`].
    fn take_denials(&mut self) -> (Vec<Denial>, u64);
}

/// A live sandbox for many commands. Dropping it ends it.
pub trait Sandbox: Send {
    /// The enforced steps, and the gaps.
    fn plan(&self) -> &Plan;

    /// As [`PreparedSandbox::is_confined`].
    fn is_confined(&self) -> bool {
        true
    }

    /// Starts a shell in it.
    fn start_shell(&self, start: &ShellSpec) -> Result<Box<dyn SandboxShell>, ProviderError>;

    /// Starts a process outside the shells.
    fn start_process(
        &self,
        start: &ProcessSpec,
    ) -> Result<Box<dyn SandboxedProcess>, ProviderError>;

    /// Takes the denials since the last call, of all processes.
    fn take_denials(&self) -> (Vec<Denial>, u64);

    /// Gaps found since the plan was made.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }

    /// False once it is known to have ended: no command can run in it.
    fn is_alive(&self) -> bool {
        true
    }

    /// Removes the programs that an unfinished git operation (such as a rebase) would run, until
    /// the next command starts: the user may continue the operation outside meanwhile. A backend
    /// without a git sweep keeps the default.
    fn suspend_programs(&self) {}

    /// Restores what [`Sandbox::suspend_programs`] removed.
    fn resume_programs(&self) {}

    /// Applies another policy, as far as a live sandbox can. The changes include what could not be
    /// applied, with the reason.
    fn apply_policy(&self, grants: &Grants) -> Result<PolicyRevision, ProviderError>;

    /// Ends everything in it, and quarantines planted files.
    fn end(self: Box<Self>) -> Result<Vec<QuarantinedFile>, ProviderError>;
}

/// The result of a policy change.
#[derive(Debug, Clone, Default)]
pub struct PolicyRevision {
    /// Each added or removed rule.
    pub changes: Vec<PolicyChange>,
    /// The steps enforced now, and the gaps.
    pub plan: Plan,
}

/// The options of a new shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellSpec {
    /// The program: `bash`, `sh` or a compatible one.
    pub program: OsString,
    /// Its environment variables, already filtered.
    pub environment: Vec<(OsString, OsString)>,
    /// Its first directory.
    pub cwd: AbsPath,
}

/// The options of a new process outside the shells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Its environment variables, already filtered.
    pub environment: Vec<(OsString, OsString)>,
    /// Its first directory.
    pub cwd: AbsPath,
    /// Its standard streams.
    pub streams: ProcessStdio,
    /// Its time limit.
    pub deadline: Option<Duration>,
}

/// The standard streams of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessStdio {
    /// Pipes for all three streams.
    Pipes {
        /// The standard input.
        input: StdinInput,
        /// Bytes kept of each output stream.
        limit: usize,
    },
    /// Pipes, with standard error merged into standard output, so that both keep their order.
    Merged {
        /// The standard input.
        input: StdinInput,
        /// Bytes kept of the output.
        limit: usize,
    },
    /// A new terminal of this size.
    Terminal(TerminalSize),
}

/// A process outside the shells.
pub trait SandboxedProcess: Send {
    /// The master fd of its terminal, if it has one: for reading, writing and resizing.
    fn terminal(&self) -> Option<BorrowedFd<'_>>;

    /// A handle to interrupt it from another thread.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// A handle to write its standard input from another thread, if that is fed.
    fn feeder(&self) -> Option<Arc<dyn StdinFeeder>>;

    /// Waits for its end, and passes its output to `sink` as it is written.
    fn wait(
        self: Box<Self>,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError>;
}

/// A shell that lives on from one command to the next. Dropping it ends the shell, but not the
/// processes it started.
pub trait SandboxShell: Send {
    /// Runs a command to its end, and passes its output to `sink` as it is written.
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<ShellCommandResult, ProviderError>;

    /// A handle to interrupt the command from another thread.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// A handle to write the standard input of the next command that is fed.
    fn feeder(&mut self) -> io::Result<Arc<dyn StdinFeeder>>;

    /// Its pid on the host.
    fn pid(&self) -> i32;

    /// False once it is known to have ended.
    fn is_alive(&self) -> bool {
        true
    }

    /// Its current directory, unless it has ended.
    fn cwd(&self) -> Option<AbsPath>;
}

/// Receives output as it is written.
pub type OutputSink<'a> = dyn FnMut(OutputStream, &[u8]) + 'a;

/// Interrupts the command of a shell, from any thread. If none runs, it interrupts the next one, so
/// a caller must stop using it once its own command has ended.
pub trait Interrupter: Send + Sync {
    /// Interrupts like Ctrl-C; a command that ignores it is killed a little later.
    fn interrupt(&self);

    /// Sends a signal to all processes of the command, and nothing else. A shell itself gets none.
    fn signal(&self, number: i32);
}

/// Writes a command's standard input, from any thread.
pub trait StdinFeeder: Send + Sync {
    /// Writes `bytes`, also before the command has started. Fails once the command has ended or
    /// closed its input, and with `WouldBlock` while too much is unread.
    fn feed(&self, bytes: &[u8]) -> io::Result<()>;

    /// Closes the input.
    fn close(&self);
}

/// Why a provider could not run a command.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The registry has no provider of this name.
    #[error("Unknown sandbox provider: \"{name}\". Available: [{}]", available.join(", "))]
    UnknownProvider {
        /// The requested name.
        name: String,
        /// The registered names.
        available: Vec<String>,
    },
    /// The provider has no option of this name.
    #[error(
        "unknown option `{option}` of the sandbox provider `{provider}`; known options: {known}"
    )]
    UnknownOption {
        /// The provider.
        provider: String,
        /// The option.
        option: String,
        /// The known options.
        known: String,
    },
    /// The sandbox could not be created.
    #[error("cannot start the sandbox for `{command}`")]
    NotStarted {
        /// The command.
        command: String,
        /// Advice: a command line that helps.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The command could not be executed in the sandbox.
    #[error("cannot execute `{command}`")]
    NotExecuted {
        /// The command.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// A standard stream is a directory, which would lead out of the sandbox.
    #[error("standard {stream} is a directory")]
    StreamIsDirectory {
        /// `input`, `output` or `error`.
        stream: &'static str,
    },
    /// The text is not a shell command.
    #[error("not a shell command")]
    NotACommand {
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The sandbox or its shell has ended.
    #[error("the {what} has ended")]
    Gone {
        /// `sandbox` or `shell`.
        what: &'static str,
    },
    /// A terminal was requested without confinement.
    #[error("a terminal is available only in a sandbox")]
    TerminalNeedsSandbox,
    /// The command closed the fds that its shell uses to report exit statuses.
    #[error("the command closed the fds that its shell uses to report its exit status")]
    ReportFdsClosed,
    /// A port to publish from the sandbox is not available on the host.
    #[error("cannot listen on port {port} of the host's loopback")]
    PortTaken {
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// No CA certificates are available, so secrets cannot be sent to any host.
    #[error("cannot insert secrets into requests")]
    NoCaCertificates {
        /// Advice for the user.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host's upstream proxy cannot be used.
    #[error("cannot use the upstream proxy of this network")]
    UpstreamProxyUnusable {
        /// Advice for the user.
        hint: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A system operation failed.
    #[error("cannot {what}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
}

impl ProviderError {
    /// The error for an option that is not in `known`.
    pub fn unknown_option(provider: &str, option: &str, known: &[&str]) -> Self {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self::UnknownOption { provider: provider.to_owned(), option: option.to_owned(), known }
    }

    /// A stable error code: clients match on it, so a code stays even if its variant is renamed.
    pub fn code(&self) -> &'static str {
        match self {
            ProviderError::UnknownProvider { .. } => "unknown-provider",
            ProviderError::UnknownOption { .. } => "unknown-provider-option",
            ProviderError::NotStarted { .. } => "sandbox-not-started",
            ProviderError::NotExecuted { .. } => "command-not-executed",
            ProviderError::StreamIsDirectory { .. } => "stream-is-directory",
            ProviderError::NotACommand { .. } => "not-a-line",
            ProviderError::Gone { .. } => "gone",
            ProviderError::TerminalNeedsSandbox => "unconfined",
            ProviderError::ReportFdsClosed => "shell-mute",
            ProviderError::PortTaken { .. } => "port-taken",
            ProviderError::NoCaCertificates { .. } => "no-trust",
            ProviderError::UpstreamProxyUnusable { .. } => "no-way-out",
            ProviderError::System { .. } => "system",
        }
    }

    /// The next step for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            ProviderError::NotStarted { hint, .. }
            | ProviderError::NoCaCertificates { hint, .. }
            | ProviderError::UpstreamProxyUnusable { hint, .. } => Some(hint.clone()),
            ProviderError::UnknownProvider { .. } | ProviderError::UnknownOption { .. } => {
                Some("use `--provider local`; `ringfence policy show --origin` shows which file or flag chose it".into())
            }
            ProviderError::NotExecuted { source, .. }
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Some("`ringfence explain exec PATH` shows if a rule allows the program".into())
            }
            ProviderError::NotExecuted { .. } => None,
            ProviderError::StreamIsDirectory { .. } => {
                Some("redirect it from or to a file or /dev/null".into())
            }
            ProviderError::Gone { .. } | ProviderError::ReportFdsClosed => {
                Some("run the command again: it gets a new one".into())
            }
            ProviderError::TerminalNeedsSandbox => Some("run it in your own terminal".into()),
            ProviderError::System { source, .. } => limits::limit_hint(source).map(str::to_owned),
            ProviderError::PortTaken { port, .. } => {
                Some(format!("remove {port} from `bind`, or stop the program that listens on it"))
            }
            ProviderError::NotACommand { .. } => None,
        }
    }

    /// The exit status of the CLI: 127 not found, 126 not executable, 125 a ringfence error.
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
