//! Request and outcome types, shared by the CLI, the library and all protocols (camelCase there).
//!
//! Three things are never mixed: a [`Denial`] (the sandbox denied an access), a [`Gap`] (a part of
//! the policy cannot be enforced on this host) and an error (ringfence itself failed).

#![forbid(unsafe_code)]

mod ask;
pub mod ca_bundle;
mod enforcement;
mod execute_result;
mod host_facts;
pub mod host_limits;
mod line;
mod lock;
mod optional;
mod outcome;
mod path_map;
mod permission;
mod sealed;
pub mod session_protocol;
mod signal;
mod text;
pub mod violations;

pub use ask::{Ask, AskAnswer, Asker};
pub use enforcement::Enforcement;
pub use execute_result::{CapturedOutput, ExecuteResult};
pub use host_facts::{CaTrust, HostFacts, SettingsCopy};
pub use line::{Errors, OutputStream, ShellCommand, ShellState, StdinInput};
pub use lock::lock;
pub use optional::Attempt;
pub use outcome::{
    Allowance, CommandRefusal, ConnectionRecord, Denial, DenialEvidence, ExitStatus, Gap, GapKind,
    GrantedAccess, LimitBreach, ObservedAccesses, Operation, Outcome, QuarantinedFile,
    ResourceUsage, StreamOutput,
};
pub use path_map::{MappedDir, PathMap};
pub use permission::{Permission, PermissionKind, PermissionStatus, RequiresPermission};
pub use sealed::SecretValue;
pub use signal::Signal;
pub use text::{
    base64, causes, decode_base64, error_chain, escape_hidden, is_hidden, shell_quote, shell_word,
};

use std::ffi::OsString;
use std::time::Duration;

use ringfence_policy::AbsPath;
use serde::{Deserialize, Serialize};

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRequest {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// The working directory.
    pub cwd: AbsPath,
    /// The environment variables, already filtered.
    pub variables: Vec<(OsString, OsString)>,
    /// The standard streams.
    pub stdio: StdioMode,
    /// The time limit.
    pub deadline: Option<Duration>,
}

/// The standard streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdioMode {
    /// The caller's own fds.
    Inherit,
    /// The caller's standard input; output is kept up to a limit.
    Capture {
        /// The number of bytes kept of each stream.
        limit: usize,
    },
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters per line.
    pub columns: u16,
}
