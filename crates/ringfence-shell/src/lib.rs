//! Persistent shell: the script it reads, and the detection of the end of each command.
//!
//! The shell reads an endless script from a pipe that only it has: programs started by it do not
//! get that fd. Each command is a few lines of the script, and the last of them prints a fresh
//! random marker. Until the command has ended that line is unread in the pipe, so no output of a
//! command can contain the marker. The marker comes back on a channel of its own, on which all
//! other text is noise.

#![forbid(unsafe_code)]

mod capture;
mod end_marker;
mod script;

pub use capture::BoundedCapture;
pub use end_marker::EndMarkerReader;
pub use script::{
    EndMarker, LineError, RUNNER, RUNNER_TEXT, ShellKind, ShellLine, StdinMode, prelude,
    redirection_line, report_line, script,
};
