//! Skills of many tenants on disk.
//!
//! A skill is a directory with a `SKILL.md`. Tenants upload archives, which are stored completely
//! or not at all. A skill is replaced atomically, so a reader sees the old or the new version.
//! Commands in a skill's directory are not trusted: they may leave links and pipes there. So every
//! file is opened by fd without following links, and nothing that a command writes gives it more
//! permissions.
//!
//! This crate runs no commands and uses no network.

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
