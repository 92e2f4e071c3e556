//! Command lines, what is read in them, and what the rules say.
//!
//! The table in `lines.txt` is the truth that the parser is held to; bash is asked whether the
//! table is true.
// The crate is pure; these tests ask a real shell.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bash;
mod doubt;
mod everyday;
mod lines;
mod property;
mod table;
