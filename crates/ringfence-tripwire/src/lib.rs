//! A file system with nothing in it, that tells who looked.
//!
//! It is the root of a sandbox. What is opened is mounted over its names, and a path that
//! stays on what is opened never comes by here; every other one does, with its full path
//! and the process that wants it. What is denied in an opened tree is covered by a node
//! of the same file system, and tells as well.
//!
//! Where somebody can be asked, an open that would be refused waits instead, and whoever
//! answers may open the host's own file for it.

#![forbid(unsafe_code)]

mod company;
mod desk;
mod disguised;
mod ghosts;
mod post;
mod scene;
mod serve;
mod wire;

pub use company::{Company, only, stay_at};
pub use desk::Pending;
pub use ghosts::Lead;
pub use scene::{Prop, PropKind, Scene};
pub use serve::{Tripwire, Watcher};

use ringfence_api::Operation;
use ringfence_policy::AbsPath;

/// The name of the tree that becomes the sandbox's root.
pub const ROOT: &str = "root";
/// The name of the directory that has the covers.
pub const COVERS: &str = "covers";

/// Somebody wanted something that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// What was wanted.
    pub path: AbsPath,
    /// For what.
    pub operation: Operation,
    /// By whom, as numbered where the file system was mounted.
    pub pid: u32,
}
