//! The tree of the host, or of the sandbox's own, that a path lies in.

use std::collections::BTreeSet;

use ringfence_policy::AbsPath;

use super::RootBuilder;

impl RootBuilder {
    /// True if a path lies in a tree that is mounted after the root is sealed.
    pub(super) fn is_mounted_late(&self, path: &AbsPath) -> bool {
        self.writable.iter().any(|above| path.is_within(above))
            || self.is_below_bound(path)
            || self.is_in_cache(path)
    }

    /// True if a private cache is the innermost tree around a path.
    pub(super) fn is_in_cache(&self, path: &AbsPath) -> bool {
        let deepest = |roots: &BTreeSet<AbsPath>| {
            roots
                .iter()
                .filter(|root| path != *root && path.is_within(root))
                .map(AbsPath::depth)
                .max()
        };
        let cache = deepest(&self.private);
        cache.is_some() && cache > deepest(&self.bound)
    }

    pub(super) fn note_bound(&mut self, path: &AbsPath) {
        self.bound.insert(path.clone());
        if !self.is_bound(path) {
            self.outermost.retain(|below| !below.is_within(path));
            self.outermost.insert(path.clone());
        }
    }

    /// The outermost bound tree that contains `path`, or is it.
    pub(super) fn host_tree(&self, path: &AbsPath) -> Option<&AbsPath> {
        // Paths below a directory sort directly after it.
        self.outermost.range(..=path).next_back().filter(|above| path.is_within(above))
    }

    pub(super) fn is_bound(&self, path: &AbsPath) -> bool {
        self.host_tree(path).is_some()
    }

    /// True if `path` lies in a tree of the sandbox's own rather than of the host.
    pub(super) fn is_own(&self, path: &AbsPath) -> bool {
        let deepest = |roots: &BTreeSet<AbsPath>| {
            roots.iter().filter(|root| path.is_within(root)).map(AbsPath::depth).max()
        };
        deepest(&self.private).max(deepest(&self.writable)) > deepest(&self.bound)
    }

    pub(super) fn is_below_bound(&self, path: &AbsPath) -> bool {
        self.host_tree(path).is_some_and(|above| above != path)
    }
}
