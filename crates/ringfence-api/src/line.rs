//! Commands of a shell that lives on from one to the next.

use std::time::Duration;

use crate::{Breach, Connection, Denial, Granted, Output, Status, Usage};

/// A command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// As it would be typed; several lines are one command as well.
    pub text: Vec<u8>,
    /// What it reads from its standard input.
    pub input: Input,
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

impl Line {
    /// Without input or limits of time.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        const LIMIT: usize = 1024 * 1024;
        Self {
            text: text.into(),
            input: Input::Nothing,
            deadline: None,
            limit: LIMIT,
            errors: Errors::Apart,
        }
    }
}

/// What a command reads from its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Input {
    /// Its end, at once.
    #[default]
    Nothing,
    /// This, and then its end.
    Given(Vec<u8>),
    /// What somebody feeds it with while it runs.
    Fed,
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() { Input::Nothing } else { Input::Given(bytes) }
    }
}

/// One of a command's two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What became of a shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// It waits for the next command.
    LivesOn,
    /// The command ended it, by `exit` or otherwise.
    Ended,
}

/// What became of a command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Ran {
    /// What it wrote to standard output.
    pub stdout: Output,
    /// What it wrote to standard error.
    pub stderr: Output,
    /// What those wrote, to either, that earlier commands of the shell have left running: all
    /// since the command before this one.
    pub background: Output,
    /// How it ended.
    pub status: Status,
    /// Whether the time limit, or somebody who did not want to wait, ended it.
    pub timed_out: bool,
    /// The limits that it went beyond.
    pub breaches: Vec<Breach>,
    /// How long it took.
    pub duration: Duration,
    /// What it used, as far as that is known.
    pub usage: Usage,
    /// What was refused meanwhile, as much of it as anybody will read.
    pub denials: Vec<Denial>,
    /// How often something else was refused that is not among them.
    pub denials_dropped: u64,
    /// What was about to be refused meanwhile, and went through because somebody said so.
    pub granted: Vec<Granted>,
    /// Who was connected to meanwhile, and how many more there were.
    pub connections: (Vec<Connection>, u64),
    /// What became of the shell.
    pub shell: Afterwards,
}

impl Ran {
    /// The exit status as a shell would see it: 128 + the signal, 124 for the time limit.
    pub fn exit_code(&self) -> i32 {
        if self.timed_out { Status::TIME_LIMIT } else { self.status.code() }
    }
}
