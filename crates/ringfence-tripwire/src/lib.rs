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
mod disguised;
mod fuse_protocol;
mod nodes;
mod open_table;
mod placeholders;
mod serve;
mod serving_cpu;

pub use company::{CpuContention, only, stay_at};
pub use nodes::{Node, NodeKind, NodeTree};
pub use open_table::PendingOpen;
pub use placeholders::HostEntry;
pub use serve::{TripHandler, TripwireFs};

use ringfence_api::Operation;
use ringfence_policy::AbsPath;

/// The name of the tree that becomes the sandbox's root.
pub const ROOT: &str = "root";
/// The name of the directory that has the covers.
pub const COVERS: &str = "covers";

/// Somebody wanted something that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TripEvent {
    /// What was wanted.
    pub path: AbsPath,
    /// For what.
    pub operation: Operation,
    /// By whom, as numbered where the file system was mounted.
    pub pid: u32,
}
