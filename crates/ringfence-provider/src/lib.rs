//! The protocol of sandbox providers.
//!
//! A [`Provider`] prepares a [`PreparedSandbox`] for a policy, which runs commands. The traits
//! carry plain data only, so a provider may confine on this host, in a container or elsewhere. Each
//! call may block for seconds. The crate `ringfence-conformance` checks every provider against the
//! documented behaviour.

#![forbid(unsafe_code)]

mod demand;
mod description;
mod error;
mod files;
mod finding;
mod mounts;
mod prepared;
mod process;
mod program;
mod provider;
mod sandbox;
mod shell;

pub use demand::PolicyDemand;
pub use description::{DescribedPath, HardeningLine, PathRole, SandboxDescription};
pub use error::ProviderError;
pub use finding::{DoctorFinding, FindingState};
pub use mounts::{TreeMount, find_mounts};
pub use prepared::PreparedSandbox;
pub use process::{ProcessSpec, ProcessStdio, SandboxedProcess, Terminal};
pub use program::{find_program, run_program};
pub use provider::{Capabilities, Provider, Support};
pub use sandbox::{PolicyRevision, Sandbox};
pub use shell::{Interrupter, OutputSink, SandboxShell, ShellSpec, StdinFeeder};
