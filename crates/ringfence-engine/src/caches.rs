//! Private caches of projects: list, size and removal.
//!
//! A cache is a directory with an `upper` in it, below `~/.cache/ringfence/projects/PROJECT`. The
//! quarantine and the run marks are in the same directory and stay: they are not copies.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::time::SystemTime;

use ringfence_policy::AbsPath;

#[cfg(unix)]
pub use unix::{clear_caches, list_caches};
#[cfg(windows)]
pub use windows::{clear_caches, list_caches};

/// The caches of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectCaches {
    /// The directory of the project, if the cache's name encodes it.
    pub project: Option<AbsPath>,
    /// The directory of the caches.
    pub store: AbsPath,
    /// Their names, such as `.npm`.
    pub names: Vec<String>,
    /// Bytes on disk, all together.
    pub bytes: u64,
    /// The time of the last run that used them.
    pub last_use: Option<SystemTime>,
    /// True while a run has them open.
    pub in_use: bool,
}

/// Outcome of clearing the caches of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// The caches were removed.
    Removed,
    /// A run has them open, so they stay.
    InUse,
}
