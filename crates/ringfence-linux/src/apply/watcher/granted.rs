//! Paths that the user granted while the command runs.

use std::collections::HashSet;
use std::os::fd::OwnedFd;

use ringfence_plan::Overmount;
use ringfence_policy::{AbsPath, Access, Effect, Grants, Rule, Source, Verdict};

use crate::apply::PlanUpdate;

/// Paths that get no mask, although a rule denies them.
pub(super) struct GrantedPaths {
    plan: OwnedFd,
    /// Bytes of the plan file that were read so far.
    known: u64,
    paths: HashSet<AbsPath>,
    /// Those of them that are also writable.
    writable: HashSet<AbsPath>,
    /// The newest policy, for which a new watcher is about to take over.
    newest: Option<Grants>,
}

impl GrantedPaths {
    /// Starts with the rules in `opened`; later grants are read from the plan file after `length`.
    pub(super) fn new(plan: OwnedFd, length: u64, opened: &[Rule]) -> Self {
        let mut granted = Self {
            plan,
            known: length,
            paths: HashSet::new(),
            writable: HashSet::new(),
            newest: None,
        };
        opened.iter().for_each(|rule| granted.note(rule));
        granted
    }

    fn note(&mut self, rule: &Rule) {
        if rule.effect == Effect::Write {
            self.writable.insert(rule.root.clone());
        }
        self.paths.insert(rule.root.clone());
    }

    /// True if `path` must not get this mask. A grant is written to the plan file before it is
    /// mounted.
    pub(super) fn is_granted(&mut self, path: &AbsPath, mask: Overmount) -> bool {
        if let Some((added, end)) = PlanUpdate::read(&self.plan, self.known) {
            self.known = end;
            let opened =
                added.iter().flat_map(|added| &added.rules).filter(|rule| is_session_grant(rule));
            opened.for_each(|rule| self.note(rule));
            if let Some(revised) = added.into_iter().rev().find_map(|added| added.revised) {
                self.newest = Some(revised.grants);
            }
        }
        let wanted = if matches!(mask, Overmount::Deny(_)) { Access::Read } else { Access::Write };
        if self
            .newest
            .as_ref()
            .is_some_and(|grants| grants.verdict(path, wanted) == Verdict::Allowed)
        {
            return true;
        }
        if matches!(mask, Overmount::Deny(_)) {
            self.paths.contains(path)
        } else {
            self.writable.contains(path)
        }
    }
}

/// True if a rule is the user's answer, given while the command runs.
pub(super) fn is_session_grant(rule: &Rule) -> bool {
    rule.opens() && rule.origin.source == Source::Session
}
