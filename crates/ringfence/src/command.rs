//! A command and its options.

use std::fmt;
use std::time::Duration;

use ringfence_api::{OutputStream, ShellCommand};

/// A command for the shell of a sandbox, as typed at a prompt.
pub struct Command {
    pub(crate) line: ShellCommand,
    pub(crate) sink: Option<Box<OutputFn>>,
}

/// Receives output as it is written.
pub(crate) type OutputFn = dyn FnMut(OutputStream, &[u8]) + Send;

impl Command {
    /// The command `text`; it may span several lines.
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { line: ShellCommand::new(text), sink: None }
    }

    /// Sets its standard input; the default is empty.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.line.input = bytes.into().into();
        self
    }

    /// Sets the time limit; then the command is interrupted, and killed if it does not end.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.line.deadline = Some(limit);
        self
    }

    /// Sets the time limit in milliseconds.
    pub fn timeout_ms(self, limit: u64) -> Self {
        self.timeout(Duration::from_millis(limit))
    }

    /// Sets how many bytes of each stream the result keeps, from the beginning and from the end.
    /// The default is 1 MiB.
    pub fn output_limit(mut self, bytes: usize) -> Self {
        self.line.limit = bytes;
        self
    }

    /// Passes all output to `sink` as it is written, on the sandbox's thread: a slow `sink` slows
    /// the command down.
    pub fn on_output(mut self, sink: impl FnMut(OutputStream, &[u8]) + Send + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// The command text.
    pub fn text(&self) -> &[u8] {
        &self.line.text
    }

    /// Text, input and limits, for other providers.
    pub fn line(&self) -> &ShellCommand {
        &self.line
    }

    /// Passes a piece of output to the sink, for other providers.
    pub fn emit_output(&mut self, stream: OutputStream, bytes: &[u8]) {
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
