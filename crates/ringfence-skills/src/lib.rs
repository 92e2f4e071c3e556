//! Skills of many tenants on disk.
//!
//! A skill is a directory with a `SKILL.md` in it. Tenants bring them as archives, which are
//! taken in as a whole or not at all; a skill that was there is replaced in one step, so that
//! whoever reads sees the old one or the new one. What runs in a skill's directory is not
//! trusted: it may leave links, pipes and whatever else there, so everything is opened by
//! descriptor, through no link, and nothing that it writes widens what it may do.
//!
//! Nothing here runs a command or knows of a network.

#![forbid(unsafe_code)]

mod archive;
mod bounds;
mod content;
mod edit;
mod error;
mod files;
mod info;
mod lease;
mod lines;
mod metadata;
mod name;
mod needs;
mod remove;
mod store;
mod tree;
mod upload;
mod usage;
mod versions;

pub use archive::{ArchiveError, ArchiveFault};
pub use bounds::UploadBounds;
pub use content::{SkillFileBody, SkillFileContent};
pub use edit::{EditPrecondition, Replacement, SkillEdit, SkillEditResult};
pub use error::StoreError;
pub use files::{FileInfo, SkillFileKind, SkillFiles};
pub use info::{NestedSkill, SkillInfo, SkillWarning};
pub use lease::SkillLease;
pub use lines::LineRange;
pub use name::{SkillId, SkillName, SkillNameError};
pub use needs::{SkillNeeds, SkillNeedsError};
pub use store::SkillStore;
pub use tree::delete_tree;
pub use upload::{UploadResult, UploadedSkill};
pub use usage::StorageUsage;
