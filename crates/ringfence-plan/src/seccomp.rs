//! The seccomp filter: a table with a reason per rule, and its assembler.

mod bpf;
pub mod calls;
pub mod ioctls;
mod limited;
mod plain;
mod table;

pub use bpf::{FilterAction, FilterInsn};
pub use plain::{HostNetwork, PlainFilterOptions, Truncation, plain_filter, plain_rules_for};
pub use table::{
    ArgCondition, EXECUTE_BITS, FD_PASSING_FLAGS, FilterRule, find_refusal,
    is_notified_for_close_only, is_only_observed, is_only_reported, opens_for_writing, rules_for,
};

use ringfence_policy::Observe;

use bpf::BpfAssembler;
use calls::Arch;

/// Inputs that select the filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterOptions {
    /// Handling of `kill(0, …)`.
    pub group_signals: GroupSignals,
    /// Owner of files that the command creates.
    pub owner: FileOwner,
    /// Observation of successful syscalls.
    pub observe: Observe,
    /// Handling of `connect`.
    pub connects: ConnectHandling,
    /// Handling of syscalls whose disk usage the kernel counts for no process.
    pub disk: Uncounted,
    /// Handling of syscalls whose memory the kernel counts for no process.
    pub memory: Uncounted,
}

/// Syscalls with uncounted resource usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// There is no limit, or a cgroup counts it.
    Allowed,
    /// There is a limit, and only per-process numbers are counted.
    Refused,
}

/// Handling of `connect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectHandling {
    /// The kernel connects, except to the paths of Unix sockets, which the notify handler checks.
    KernelExceptUnixPaths,
    /// The program connects in a network without a way out; destinations are reported.
    Isolated,
    /// The notify handler connects for the program, or hands it to the launcher: an allowed
    /// program gets sockets of the host's network.
    Notified,
}

/// Owner of files that the command creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOwner {
    /// Root.
    Root,
    /// Any other user.
    User,
}

impl FileOwner {
    /// Owner if the command runs as this user.
    pub fn from_uid(uid: Option<u32>) -> Self {
        if uid == Some(0) { FileOwner::Root } else { FileOwner::User }
    }
}

/// Handling of signals to the own process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupSignals {
    /// Landlock keeps them inside.
    Scoped,
    /// The filter refuses the syscall.
    Refused,
}

/// Assembles the filter.
pub fn filter(shape: FilterOptions) -> Vec<FilterInsn> {
    let mut assembler = BpfAssembler::default();
    for arch in Arch::NATIVE_FIRST {
        assembler.add_architecture(*arch, &rules_for(*arch, shape));
    }
    assembler.finish()
}
