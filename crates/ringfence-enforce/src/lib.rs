//! From grants to a confined process.
//!
//! `survey` looks at the host, `plan` is pure, `apply` touches the world: our own binary,
//! started anew as a helper, builds what the plan says and becomes the sandbox's warden.

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

pub use fuse_nodes::scene;
pub use linux::{CaTrust, SandboxUser, SettingsCopy, plan};
pub use plan::{
    FileKind, MountAccess, NetworkNamespace, Overmount, OwnPlaces, PinReason, PinnedDir, Plan,
    Step, UserIds,
};
pub use revision::{PlanRevision, PolicyView, RevisionStep, revision};
pub use support::{FuseSupport, HostSupport, PidAllocation, ProcAccounting};
pub use survey::{
    BuildSystem, CaseFolding, HardLinks, IndexFault, Known, ObjectNames, RememberedFiles,
    ResolvedRoot, Survey, Tracked, digest_own, gitlinks, index_fault, is_index, open_tracked,
    remember, survey, survey_beside, tracked, vendored,
};
