//! What somebody opened while the command runs, by that very path.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use ringfence_policy::{AbsPath, Rule, Source};

use crate::apply::Addendum;

/// Paths that are not covered, although a rule shuts them.
pub(super) struct Lifted {
    plan: OwnedFd,
    /// How much of the plan's file is known.
    known: u64,
    paths: HashSet<AbsPath>,
}

impl Lifted {
    /// Those that stand behind `length` of the plan's file, now or later.
    pub(super) fn since(plan: OwnedFd, length: u64) -> Self {
        Self { plan, known: length, paths: HashSet::new() }
    }

    /// Whether `path` is one of them. Whoever opens something says so before it is there.
    pub(super) fn has(&mut self, path: &AbsPath) -> bool {
        if let Some((added, end)) = Addendum::read(&self.plan, self.known) {
            self.known = end;
            let opened = added.into_iter().flat_map(|added| added.rules).filter(is_opened_since);
            self.paths.extend(opened.map(|rule| rule.root));
        }
        self.paths.contains(path)
    }
}

/// Whether a rule is somebody's answer, given while the command runs.
pub(super) fn is_opened_since(rule: &Rule) -> bool {
    rule.opens() && rule.origin.source == Source::Session
}
