//! Command lines, their parts, and the verdicts of the rules.
//!
//! The table in `lines.txt` is the reference for the parser; bash checks the table.
// The crate is pure; these tests run a real shell.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bash;
mod doubt;
mod everyday;
mod lines;
mod property;
mod table;
