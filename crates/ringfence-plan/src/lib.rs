//! The plan: the steps that confine a command, as data.
//!
//! [`linux::plan`] makes it from grants and a survey of the host, [`revise`] compares it with a
//! changed policy, and [`seccomp`] assembles the filter.
//!
//! The crate is pure. It opens no file, makes no syscall, and reads no environment variable and no
//! clock: `ringfence-linux` surveys the host and applies the plan. It builds for Linux, macOS and
//! Windows, so every plan can be shown and tested on any host. Numbers of the Linux ABI are in
//! [`abi`].

#![forbid(unsafe_code)]

pub mod abi;
mod gaps;
mod git_index;
pub mod landlock;
pub mod linux;
mod plan;
mod revision;
pub mod seccomp;
mod support;
mod survey;

pub use git_index::{
    GitEntry, GitIndex, IndexFault, ObjectNames, Tracked, has_foreign_trees, index_fault, is_index,
    parse_blobs, parse_entries, parse_gitlinks, shared_index_name, without_trees,
};
pub use plan::{
    CONCURRENT, FileKind, MountAccess, NetworkNamespace, Overmount, OwnPlaces, PinReason,
    PinnedDir, Plan, Step, UPPER, UserIds, WORK,
};
pub use revision::{PlanRevision, PolicyView, RevisionStep, revise};
pub use support::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
pub use survey::{BuildSystem, CaseFolding, HardLinks, ResolvedRoot, Survey};
