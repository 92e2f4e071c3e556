//! Windows: private caches are overlay mounts, so there are none. Never run, only compiled.

use std::io;

use ringfence_policy::Facts;

use super::{Cleared, ProjectCaches};

/// The caches of all projects of this user, by path.
pub fn list_caches(_: &Facts) -> io::Result<Vec<ProjectCaches>> {
    Ok(Vec::new())
}

/// Removes the caches of a project, unless a run has one of them open.
pub fn clear_caches(_: &ProjectCaches) -> io::Result<Cleared> {
    Err(io::ErrorKind::Unsupported.into())
}
