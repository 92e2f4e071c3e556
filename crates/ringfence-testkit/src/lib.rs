//! Support for ringfence's tests.
//!
//! A [`TestProject`] is a new directory in a new home, with secrets in both. [`each_user`] runs a
//! test body as every user that the runner can be. Probes run both inside the sandbox and bare: a
//! probe that cannot succeed bare proves nothing.

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
pub use output::{TestOutput, becomes_true, finish, signal, wait_at_most};
pub use outside_process::OutsideProcess;
pub use probe::{PRELUDE, ProbeResult};
pub use process_per_test::ProcessPerTest;
pub use program::{compile, python};
pub use project::{SECRET, TestProject, TreeListing, own_policy};
pub use repeat::{STRESS_VARIABLE, repetitions};
pub use require::{fuse_for_all, needs, skip};
pub use user::{TestUser, each_user};
