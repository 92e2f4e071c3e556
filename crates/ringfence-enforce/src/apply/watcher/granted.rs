//! What somebody opened while the command runs, by that very path.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use ringfence_policy::{AbsPath, Access, Effect, Grants, Rule, Source, Verdict};

use crate::apply::PlanUpdate;
use crate::plan::Overmount;

/// Paths that are not covered, although a rule shuts them.
pub(super) struct GrantedPaths {
    plan: OwnedFd,
    /// How much of the plan's file is known.
    known: u64,
    paths: HashSet<AbsPath>,
    /// Those of them that may be written as well.
    writable: HashSet<AbsPath>,
    /// Another policy that holds by now, for which another lookout is about to take over.
    newest: Option<Grants>,
}

impl GrantedPaths {
    /// Those that were `opened`, and those that will stand behind `length` of the plan's file.
    pub(super) fn since(plan: OwnedFd, length: u64, opened: &[Rule]) -> Self {
        let mut lifted = Self {
            plan,
            known: length,
            paths: HashSet::new(),
            writable: HashSet::new(),
            newest: None,
        };
        opened.iter().for_each(|rule| lifted.note(rule));
        lifted
    }

    fn note(&mut self, rule: &Rule) {
        if rule.effect == Effect::Write {
            self.writable.insert(rule.root.clone());
        }
        self.paths.insert(rule.root.clone());
    }

    /// Whether `path` is not to have this cover. Whoever opens something says so before it is
    /// there.
    pub(super) fn is_off(&mut self, path: &AbsPath, cover: Overmount) -> bool {
        if let Some((added, end)) = PlanUpdate::read(&self.plan, self.known) {
            self.known = end;
            let opened =
                added.iter().flat_map(|added| &added.rules).filter(|rule| is_opened_since(rule));
            opened.for_each(|rule| self.note(rule));
            if let Some(revised) = added.into_iter().rev().find_map(|added| added.revised) {
                self.newest = Some(revised.grants);
            }
        }
        let wanted = if matches!(cover, Overmount::Deny(_)) { Access::Read } else { Access::Write };
        if self
            .newest
            .as_ref()
            .is_some_and(|grants| grants.verdict(path, wanted) == Verdict::Allowed)
        {
            return true;
        }
        if matches!(cover, Overmount::Deny(_)) {
            self.paths.contains(path)
        } else {
            self.writable.contains(path)
        }
    }
}

/// Whether a rule is somebody's answer, given while the command runs.
pub(super) fn is_opened_since(rule: &Rule) -> bool {
    rule.opens() && rule.origin.source == Source::Session
}
