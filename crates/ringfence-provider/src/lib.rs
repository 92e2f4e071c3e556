//! The protocol of sandbox providers.
//!
//! A [`Provider`] prepares a [`PreparedSandbox`] for a policy, which runs commands. The traits
//! carry plain data only, so a provider may confine on this host, in a container or elsewhere. Each
//! call may block for seconds. The checks in [`conformance`] test every provider against the
//! documented behaviour.

#![forbid(unsafe_code)]

// The commands of the checks need `sh`, users and modes of files.
#[cfg(unix)]
pub mod conformance;
mod description;
mod error;
mod finding;
mod prepared;
mod process;
mod provider;
mod sandbox;
mod shell;

pub use description::{DescribedPath, HardeningLine, PathRole, SandboxDescription};
pub use error::ProviderError;
pub use finding::{DoctorFinding, FindingState};
pub use prepared::PreparedSandbox;
pub use process::{ProcessSpec, ProcessStdio, SandboxedProcess, Terminal};
pub use provider::{Capabilities, Provider, Support};
pub use sandbox::{PolicyRevision, Sandbox};
pub use shell::{Interrupter, OutputSink, SandboxShell, ShellSpec, StdinFeeder};
