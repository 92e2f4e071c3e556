//! Commands of a shell that lives on from one to the next.

use std::time::Duration;

use crate::{
    ConnectionRecord, Denial, ExitStatus, GrantedAccess, LimitBreach, ResourceUsage, StreamOutput,
};

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// As it would be typed; several lines are one command as well.
    pub text: Vec<u8>,
    /// What it reads from its standard input.
    pub input: StdinInput,
    /// How long it may take.
    pub deadline: Option<Duration>,
    /// How many bytes of each stream are kept.
    pub limit: usize,
    /// Where its standard error goes.
    pub errors: Errors,
}

/// Where the standard error of a command goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Errors {
    /// Into a stream of its own.
    #[default]
    Apart,
    /// Into standard output, so that both keep their order.
    WithOutput,
}

impl ShellCommand {
    /// Without input or limits of time.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        const LIMIT: usize = 1024 * 1024;
        Self {
            text: text.into(),
            input: StdinInput::Nothing,
            deadline: None,
            limit: LIMIT,
            errors: Errors::Apart,
        }
    }
}

/// What a command reads from its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StdinInput {
    /// Its end, at once.
    #[default]
    Nothing,
    /// This, and then its end.
    Given(Vec<u8>),
    /// What somebody feeds it with while it runs.
    Fed,
}

impl From<Vec<u8>> for StdinInput {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { StdinInput::Nothing } else { StdinInput::Given(bytes) }
    }
}

/// One of a command's two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What became of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellState {
    /// It waits for the next command.
    LivesOn,
    /// The command ended it, by `exit` or otherwise.
    Ended,
}

/// What became of a command line.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellCommandResult {
    /// What it wrote to standard output.
    pub stdout: StreamOutput,
    /// What it wrote to standard error.
    pub stderr: StreamOutput,
    /// What those wrote, to either, that earlier commands of the shell have left running: all
    /// since the command before this one.
    pub background: StreamOutput,
    /// How it ended.
    pub status: ExitStatus,
    /// Whether the time limit, or somebody who did not want to wait, ended it.
    pub timed_out: bool,
    /// The limits that it went beyond.
    pub breaches: Vec<LimitBreach>,
    /// How long it took.
    pub duration: Duration,
    /// What it used, as far as that is known.
    pub usage: ResourceUsage,
    /// What was refused meanwhile, as much of it as anybody will read.
    pub denials: Vec<Denial>,
    /// How often something else was refused that is not among them.
    pub denials_dropped: u64,
    /// What was about to be refused meanwhile, and went through because somebody said so.
    pub granted: Vec<GrantedAccess>,
    /// Who was connected to meanwhile, and how many more there were.
    pub connections: (Vec<ConnectionRecord>, u64),
    /// What became of the shell.
    pub shell: ShellState,
}

impl ShellCommandResult {
    /// The exit status as a shell would see it: 128 + the signal, 124 for the time limit.
    pub fn exit_code(&self) -> i32 {
        if self.timed_out { ExitStatus::TIME_LIMIT } else { self.status.code() }
    }
}
