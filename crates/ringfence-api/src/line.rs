//! Commands of a persistent shell.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    ConnectionRecord, Denial, ExitStatus, GrantedAccess, LimitBreach, ResourceUsage, StreamOutput,
};

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The text as typed; several lines are one command.
    pub text: Vec<u8>,
    /// The standard input.
    pub input: StdinInput,
    /// The time limit.
    pub deadline: Option<Duration>,
    /// The number of bytes kept of each stream.
    pub limit: usize,
    /// The destination of standard error.
    pub errors: Errors,
}

/// The destination of a command's standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Errors {
    /// A separate stream.
    #[default]
    Separate,
    /// Standard output, so that both keep their order.
    WithOutput,
}

impl ShellCommand {
    /// Creates a command without input and without a time limit.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        const LIMIT: usize = 1024 * 1024;
        Self {
            text: text.into(),
            input: StdinInput::Empty,
            deadline: None,
            limit: LIMIT,
            errors: Errors::Separate,
        }
    }
}

/// The standard input of a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StdinInput {
    /// Empty.
    #[default]
    Empty,
    /// These bytes.
    Given(Vec<u8>),
    /// Bytes that the caller feeds while the command runs.
    Streamed,
}

impl From<Vec<u8>> for StdinInput {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { StdinInput::Empty } else { StdinInput::Given(bytes) }
    }
}

/// An output stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum OutputStream {
    /// Standard output.
    #[serde(rename = "stdout")]
    Out,
    /// Standard error.
    #[serde(rename = "stderr")]
    Err,
}

/// The state of a shell after a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShellState {
    /// Waiting for the next command.
    #[default]
    Alive,
    /// Ended by the command, with `exit` or otherwise.
    Ended,
}

/// The result of a shell command.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellCommandResult {
    /// The standard output.
    pub stdout: StreamOutput,
    /// The standard error.
    pub stderr: StreamOutput,
    /// The output of earlier commands' background processes, on either stream, since the previous
    /// command.
    pub background: StreamOutput,
    /// The exit status.
    pub status: ExitStatus,
    /// True if the time limit ended it. False after an interrupt or an exceeded output limit.
    pub timed_out: bool,
    /// The limits that it exceeded.
    pub breaches: Vec<LimitBreach>,
    /// The duration.
    pub duration: Duration,
    /// The resource usage, as far as it is known.
    pub usage: ResourceUsage,
    /// The denials, up to a maximum number.
    pub denials: Vec<Denial>,
    /// The number of denials that are not listed.
    pub denials_dropped: u64,
    /// Accesses that an answer allowed.
    pub granted: Vec<GrantedAccess>,
    /// The connections, and the number of those not listed.
    pub connections: (Vec<ConnectionRecord>, u64),
    /// The state of the shell.
    pub shell: ShellState,
}

impl ShellCommandResult {
    /// Returns the exit status as a shell reports it: 128 + the signal, 124 for the time limit.
    pub fn exit_code(&self) -> i32 {
        if self.timed_out { ExitStatus::TIME_LIMIT } else { self.status.code() }
    }
}
