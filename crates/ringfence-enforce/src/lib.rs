//! From grants to a confined process.
//!
//! `survey` looks at the host, `plan` is pure, `apply` touches the world: our own binary,
//! started anew as a helper, builds what the plan says and becomes the sandbox's warden.

#![forbid(unsafe_code)]

mod gaps;
pub mod limits;
mod linux;
mod plan;
mod revision;
mod scene;
pub mod seccomp;
mod support;
mod survey;

#[cfg(target_os = "linux")]
pub mod apply;

pub use linux::{Person, SettingsCopy, Trust, plan};
pub use plan::{Access, Cover, Guard, GuardKind, Identity, Kind, Network, OwnPlaces, Plan, Step};
pub use revision::{Act, Revision, View, revision};
pub use scene::scene;
pub use support::{Accounts, Fuse, Numbers, Support};
pub use survey::{
    Builds, Folding, Found, IndexFault, Known, Linked, ObjectNames, RememberedFiles, Survey,
    Tracked, digest_own, gitlinks, index_fault, is_index, open_tracked, remember, survey,
    survey_beside, tracked, vendored,
};
