//! The provider `local`: sandboxes on this machine, confined by the Linux kernel.
//!
//! `survey` reads the host for the plan of `ringfence-plan`. `launcher` runs in the process that
//! starts a sandbox. `apply` carries out a plan: ringfence re-executes itself as a helper, which
//! builds the sandbox and becomes its supervisor. `fuse` is the file system at the sandbox's root.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod apply;
mod clock;
mod fuse;
mod fuse_nodes;
mod inode;
mod launcher;
mod locks;
mod new_denial;
mod open;

pub use apply::reexec::enter_if_helper;
pub use apply::{UsernsObstacle, probe};
pub use launcher::{
    EngineChoice, HostDiagnosis, LocalProvider, ProcessProvider, die_of_interrupt, own_addresses,
    provider_factory, reap_children,
};
