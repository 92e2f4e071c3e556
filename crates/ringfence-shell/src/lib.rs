//! A shell that lives on from one command to the next: what it is told, and how it tells
//! that a command has ended.
//!
//! The shell reads a script that never ends from a pipe that only it has: programs started by
//! it do not get that descriptor. Each command is a few lines of the script, and the last of
//! them says a word that nobody has seen before. Until the command has ended that line lies
//! in the pipe unread, so whatever a command prints or writes, and wherever, it cannot say
//! that word. The word comes back on a socket of its own, with the number of the process that
//! sent it.

#![forbid(unsafe_code)]

mod capture;
mod script;

pub use capture::Capture;
pub use script::{Kind, LineError, REPORT, RUNNER, RUNNER_TEXT, SCRIPT, Word, ended, prelude, script};
