//! From a plan to a confined process.
//!
//! `survey` reads the host for the plan of `ringfence-plan`, `apply` makes the changes: ringfence
//! re-executes itself as a helper, which builds the sandbox from the plan and becomes its
//! supervisor.

#![forbid(unsafe_code)]

mod fuse_nodes;
mod survey;

#[cfg(target_os = "linux")]
pub mod apply;

pub use fuse_nodes::node_tree;
pub use survey::{
    Known, RememberedFiles, digest_unchanged, grant_if_tracked, remember_contents,
    skipped_directory_names, survey, survey_with_known,
};
