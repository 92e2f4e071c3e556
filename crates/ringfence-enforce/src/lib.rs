//! From grants to a confined process.
//!
//! `survey` reads the host, `plan` is pure, `apply` makes the changes: ringfence re-executes itself
//! as a helper, which builds the sandbox from the plan and becomes its supervisor.

#![forbid(unsafe_code)]

mod fuse_nodes;
mod gaps;
pub mod limits;
mod linux;
mod plan;
mod revision;
pub mod seccomp;
mod support;
mod survey;

#[cfg(target_os = "linux")]
pub mod apply;

pub use fuse_nodes::node_tree;
pub use linux::{CaTrust, SandboxUser, SettingsCopy, plan};
pub use plan::{
    FileKind, MountAccess, NetworkNamespace, Overmount, OwnPlaces, PinReason, PinnedDir, Plan,
    Step, UserIds,
};
pub use revision::{PlanRevision, PolicyView, RevisionStep, revise};
pub use support::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
pub use survey::{
    BuildSystem, CaseFolding, HardLinks, IndexFault, Known, ObjectNames, RememberedFiles,
    ResolvedRoot, Survey, Tracked, digest_unchanged, grant_if_tracked, holds_secret, index_fault,
    is_index, parse_entries, parse_gitlinks, remember_contents, skipped_directory_names, survey,
    survey_with_known,
};
