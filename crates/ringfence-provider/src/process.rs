//! A process in a sandbox, next to its shells.

use std::ffi::OsString;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ringfence_api::{Outcome, StdinInput, TerminalSize};
use ringfence_policy::AbsPath;

use crate::{Interrupter, OutputSink, ProviderError, StdinFeeder};

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
    /// A handle of its terminal, if it has one. Each call returns another handle.
    fn terminal(&self) -> Option<Box<dyn Terminal>>;

    /// A handle to interrupt it from another thread.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// A handle to write its standard input from another thread, if that is fed.
    fn feeder(&self) -> Option<Arc<dyn StdinFeeder>>;

    /// Waits for its end, and passes its output to `sink` as it is written.
    fn wait(self: Box<Self>, sink: &mut OutputSink<'_>) -> Result<Outcome, ProviderError>;
}

/// The near end of a process's terminal.
pub trait Terminal: io::Read + io::Write + Send {
    /// Changes the size.
    fn resize(&mut self, size: TerminalSize) -> io::Result<()>;

    /// The fd, if the terminal is a pseudo-terminal of this host. It can be polled, and passed to
    /// another process, without copying each byte.
    #[cfg(unix)]
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
