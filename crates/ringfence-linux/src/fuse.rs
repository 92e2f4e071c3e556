//! Tripwire: an empty FUSE file system that reports accesses.
//!
//! It is the root of a sandbox. Opened paths are mounted over its names, and an access that stays
//! on them never reaches it; every other one does, with its full path and pid. A denied path in an
//! opened tree is masked by a node of the same file system, which reports as well.
//!
//! If the user can be asked, an open that would be denied waits instead, and an answer may open the
//! host's own file for it.

mod cpu_contention;
mod disguised;
mod fuse_protocol;
mod nodes;
mod open_table;
mod placeholders;
mod serve;
mod serving_cpu;

pub(crate) use cpu_contention::{CpuContention, cpu_set_of, pin_to};
pub(crate) use nodes::{NodeKind, NodeTree};
pub(crate) use open_table::PendingOpen;
pub(crate) use placeholders::HostEntry;
pub(crate) use serve::{TripHandler, TripwireFs};

use ringfence_api::Operation;
use ringfence_policy::AbsPath;

/// Name of the tree that becomes the sandbox's root.
pub(crate) const ROOT: &str = "root";
/// Name of the directory that holds the masks.
pub(crate) const MASKS: &str = "covers";

/// An access that was denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TripEvent {
    /// The path that the process wanted.
    pub path: AbsPath,
    /// The operation on it.
    pub operation: Operation,
    /// The calling pid, in the pid namespace of the mount.
    pub pid: u32,
}
