//! Trees of the host that a command may write to. The sweep opens nothing outside them.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use crate::inode::{InodeId, inode_id};

use ringfence_plan::{MountAccess, Plan, Step};
use ringfence_policy::AbsPath;

use super::held_dir::{self, HeldDir};

/// Writable trees, as they were before the command started.
#[derive(Debug, Default)]
pub(crate) struct WritableRoots(Vec<(AbsPath, InodeId)>);

impl WritableRoots {
    pub(crate) fn from_plan(plan: &Plan) -> Self {
        let root = |step: &Step| match step {
            // Real paths: the survey has resolved them.
            Step::Bind { path, access: MountAccess::ReadWrite, .. } => {
                let status = rustix::fs::lstat(path.as_path()).ok()?;
                Some((path.clone(), inode_id(&status)))
            }
            _ => None,
        };
        Self(plan.steps.iter().filter_map(root).collect())
    }

    pub(super) fn from_entries(entries: Vec<(AbsPath, InodeId)>) -> Self {
        Self(entries)
    }

    pub(super) fn entries(&self) -> &[(AbsPath, InodeId)] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn at(path: AbsPath) -> Self {
        Self(vec![(path, (0, 0))])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &AbsPath> {
        self.0.iter().map(|(path, _)| path)
    }

    /// True if a directory is itself a writable root.
    pub(super) fn contains(&self, identity: InodeId) -> bool {
        self.0.iter().any(|(_, root)| *root == identity)
    }

    /// The root that contains `path`, by name.
    pub(super) fn root_of(&self, path: &AbsPath) -> Option<&AbsPath> {
        self.iter().find(|root| path.is_within(root))
    }

    /// Opens a directory within the roots by a path without links.
    pub(super) fn open(&self, path: &AbsPath) -> Option<HeldDir> {
        let (root, identity) = self
            .0
            .iter()
            .filter(|(root, _)| path.is_within(root))
            .max_by_key(|(root, _)| root.depth())?;
        let top = held_dir::open_at(root.as_path())
            .ok()
            .filter(|top| held_dir::identity(top) == Some(*identity))?;
        held_dir::open_below(&top, path.relative_to(root)?).ok()
    }

    /// The host's own view of a directory of the sandbox, and its path now. In the sandbox's view
    /// nothing can be renamed out of it, and no path can be followed.
    ///
    /// Once the sandbox's mounts are gone, the kernel reports only the part of a path below the
    /// mount. A path counts only if it leads to the same inode.
    pub(super) fn locate(
        &self,
        directory: &OwnedFd,
        reported: &AbsPath,
    ) -> Option<(HeldDir, AbsPath)> {
        let own = held_dir::identity(directory)?;
        let now = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .ok()
            .and_then(AbsPath::new);
        let below = now
            .as_ref()
            .map(|now| now.relative_to(&AbsPath::root()).unwrap_or(Path::new("")).to_owned());
        let guesses = below.iter().flat_map(|below| self.iter().map(move |root| root.join(below)));
        now.iter().cloned().chain(guesses).chain([reported.clone()]).find_map(|path| {
            let found = self.open(&path).filter(|found| held_dir::identity(found) == Some(own))?;
            Some((found, path))
        })
    }
}
