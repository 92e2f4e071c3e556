//! A command, and how it is to be run.

use std::fmt;
use std::time::Duration;

use ringfence_api::{OutputStream, ShellCommand};

/// A command for the shell of a sandbox, as it would be typed there.
pub struct Command {
    pub(crate) line: ShellCommand,
    pub(crate) sink: Option<Box<OutputFn>>,
}

/// Whoever wants to see output as it comes.
pub(crate) type OutputFn = dyn FnMut(OutputStream, &[u8]) + Send;

impl Command {
    /// The command `text`; several lines are one command as well.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { line: ShellCommand::new(text), sink: None }
    }

    /// What it reads from its standard input; without, there is nothing to read.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.line.input = bytes.into().into();
        self
    }

    /// How long it may take; then it is interrupted, and ended if it does not mind.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.line.deadline = Some(limit);
        self
    }

    /// The same in milliseconds.
    pub fn timeout_ms(self, limit: u64) -> Self {
        self.timeout(Duration::from_millis(limit))
    }

    /// How many bytes of each stream the result keeps, of the beginning and of the end;
    /// one mebibyte unless said.
    pub fn keep(mut self, bytes: usize) -> Self {
        self.line.limit = bytes;
        self
    }

    /// Passes on what it writes as it comes, all of it, on the thread of the sandbox: a
    /// receiver that is slow slows the command down.
    pub fn on_output(mut self, sink: impl FnMut(OutputStream, &[u8]) + Send + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// As it was given.
    pub fn text(&self) -> &[u8] {
        &self.line.text
    }

    /// How it is to be run, for other providers: text, input, limits.
    pub fn line(&self) -> &ShellCommand {
        &self.line
    }

    /// Hands over a piece of output, for other providers.
    pub fn pass_on(&mut self, stream: OutputStream, bytes: &[u8]) {
        if let Some(sink) = &mut self.sink {
            sink(stream, bytes);
        }
    }
}

impl From<&str> for Command {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Command {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl From<&[u8]> for Command {
    fn from(text: &[u8]) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("text", &String::from_utf8_lossy(&self.line.text))
            .finish_non_exhaustive()
    }
}
