//! What the tests of ringfence stand on.
//!
//! A [`Project`] is a fresh directory in a fresh home, with secrets in it and beside it. A
//! test is a body that [`each_user`] tries as every user the runner can be. Probes run both
//! inside the sandbox and bare: one that cannot succeed bare would prove nothing.

#![forbid(unsafe_code)]

mod alone;
mod bystander;
mod census;
mod corpus;
mod gate;
mod lan;
mod probe;
mod program;
mod project;
mod ran;
mod repeat;
mod terminal;
mod toolchain;
mod user;

pub use alone::{Alone, Body};
pub use bystander::Bystander;
pub use census::{Census, processes_with};
pub use corpus::{Came, Entry, Guess, Refused, Score, corpus};
pub use gate::{fuse_for_all, needs, skip};
pub use lan::Lan;
pub use probe::{PRELUDE, Tried};
pub use program::{compiled, python};
pub use project::{Entries, Project, SECRET, own_policy};
pub use ran::{Ran, finish, signal, soon, wait_at_most};
pub use repeat::{STRESS_VARIABLE, repetitions};
pub use user::{As, each_user};
