//! The words that go in and come out: the same on the command line, in the library and on
//! every wire (camelCase there).
//!
//! Three things never mix: a [`Denial`] (the sandbox refused something), a [`Gap`]
//! (something asked for cannot be enforced here) and an error (ringfence itself failed).

#![forbid(unsafe_code)]

mod ask;
mod line;
mod optional;
mod outcome;
mod permission;
mod sealed;
mod text;
pub mod violations;

pub use ask::{Ask, AskAnswer, Asker};
pub use line::{Errors, OutputStream, ShellCommand, ShellCommandResult, ShellState, StdinInput};
pub use optional::Attempt;
pub use outcome::{
    Allowance, CommandRefusal, ConnectionRecord, Denial, DenialEvidence, ExitStatus, Gap, GapKind,
    GrantedAccess, LimitBreach, ObservedAccesses, Operation, Outcome, QuarantinedFile,
    ResourceUsage, StreamOutput,
};
pub use permission::{Permission, PermissionKind, PermissionStatus, RequiresPermission};
pub use sealed::SecretValue;
pub use text::{base64, causes, is_hidden, quoted, typed, visible, whole};

use std::ffi::OsString;
use std::time::Duration;

use ringfence_policy::AbsPath;

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Where it starts.
    pub cwd: AbsPath,
    /// Its variables, already filtered.
    pub variables: Vec<(OsString, OsString)>,
    /// Where its input and output go.
    pub stdio: StdioMode,
    /// How long it may take.
    pub deadline: Option<Duration>,
}

/// Where a command's input and output go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioMode {
    /// To the caller's own descriptors.
    Inherit,
    /// Input is the caller's, output is kept up to this many bytes of each stream.
    Capture {
        /// Bytes kept of each stream.
        limit: usize,
    },
}
