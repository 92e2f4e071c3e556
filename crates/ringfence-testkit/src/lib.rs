//! What the tests of ringfence stand on.
//!
//! A [`Project`] is a fresh directory in a fresh home, with secrets in it and beside it. A
//! test is a body that [`each_user`] tries as every user the runner can be. Probes run both
//! inside the sandbox and bare: one that cannot succeed bare would prove nothing.

#![forbid(unsafe_code)]

mod corpus;
mod host_snapshot;
mod lan;
mod output;
mod outside_process;
mod probe;
mod process_per_test;
mod program;
mod project;
mod repeat;
mod require;
mod terminal;
mod toolchain;
mod user;

pub use corpus::{CorpusEntry, CorpusResult, CorpusScore, ExpectedDenial, StderrGuess, corpus};
pub use host_snapshot::{HostSnapshot, processes_with};
pub use lan::TestNetwork;
pub use output::{TestOutput, finish, signal, soon, wait_at_most};
pub use outside_process::OutsideProcess;
pub use probe::{PRELUDE, ProbeResult};
pub use process_per_test::{ProcessPerTest, TestBody};
pub use program::{compiled, python};
pub use project::{SECRET, TestProject, TreeListing, own_policy};
pub use repeat::{STRESS_VARIABLE, repetitions};
pub use require::{fuse_for_all, needs, skip};
pub use user::{TestUser, each_user};
