//! Commands of a persistent shell.

use std::time::Duration;

use serde::{Deserialize, Serialize};

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
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ShellState {
    /// Waiting for the next command.
    #[serde(rename = "lives-on")]
    Alive,
    /// Ended by the command, or never there: the next command starts in a new shell.
    #[default]
    Ended,
}
