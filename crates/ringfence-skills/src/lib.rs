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
mod card;
mod content;
mod edit;
mod error;
mod files;
mod info;
mod lease;
mod lines;
mod name;
mod needs;
mod remove;
mod store;
mod table;
mod tree;
mod upload;
mod usage;

pub use archive::{ArchiveError, Fault};
pub use bounds::Bounds;
pub use content::{Body, Content};
pub use edit::{Edit, Edited, Expect, Replacement};
pub use error::StoreError;
pub use files::{FileInfo, FileKind, Files};
pub use info::{NestedSkill, SkillInfo, Warning};
pub use lease::Lease;
pub use lines::LineRange;
pub use name::{Name, NameError, SkillId};
pub use needs::{Needs, NeedsError};
pub use store::Store;
pub use tree::delete_tree;
pub use upload::{Taken, Uploaded};
pub use usage::Usage;
