//! A shell that lives on from one command to the next: what it is told, and how it tells
//! that a command has ended.
//!
//! The shell reads a script that never ends from a pipe that only it has: programs started by
//! it do not get that descriptor. Each command is a few lines of the script, and the last of
//! them says a word that nobody has seen before. Until the command has ended that line lies
//! in the pipe unread, so whatever a command prints or writes, and wherever, it cannot say
//! that word. The word comes back by a pipe of its own, on which everything else is noise.

#![forbid(unsafe_code)]

mod capture;
mod end_marker;
mod script;

pub use capture::BoundedCapture;
pub use end_marker::EndMarkerReader;
pub use script::{
    EndMarker, LineError, RUNNER, RUNNER_TEXT, ShellKind, ShellLine, StdinMode, prelude, refitting,
    script, telling,
};
