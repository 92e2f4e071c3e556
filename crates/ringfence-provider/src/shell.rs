//! A shell in a sandbox, and the controls of a command.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;

use ringfence_api::{Outcome, OutputStream, ShellCommand, Signal};
use ringfence_policy::AbsPath;

use crate::ProviderError;

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

/// A shell that lives on from one command to the next. Dropping it ends the shell, but not the
/// processes it started.
pub trait SandboxShell: Send {
    /// Runs a command to its end, and passes its output to `sink` as it is written. The outcome has
    /// the state of the shell; it need not have the protections and gaps of the sandbox.
    fn execute(
        &mut self,
        line: &ShellCommand,
        sink: &mut OutputSink<'_>,
    ) -> Result<Outcome, ProviderError>;

    /// A handle to interrupt the command from another thread.
    fn interrupter(&self) -> Box<dyn Interrupter>;

    /// A handle to write the standard input of the next command that is fed.
    fn feeder(&mut self) -> io::Result<Arc<dyn StdinFeeder>>;

    /// A name for it, unique in its sandbox. A provider on this host uses the pid.
    fn id(&self) -> &str;

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
    fn signal(&self, signal: Signal);
}

/// Writes a command's standard input, from any thread.
pub trait StdinFeeder: Send + Sync {
    /// Writes `bytes`, also before the command has started. Fails once the command has ended or
    /// closed its input, and with `WouldBlock` while too much is unread.
    fn feed(&self, bytes: &[u8]) -> io::Result<()>;

    /// Closes the input.
    fn close(&self);
}
